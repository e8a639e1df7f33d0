# shellcheck shell=bash
# shellcheck disable=SC2154 # demo.sh sets the paths, ports and the URL
# The commands that the demo prints, and their check. Sourced by demo.sh.

INSPECTOR=@modelcontextprotocol/inspector@2.12.0

# Parallel lists: what a command shows, the command, and what its output must match.
titles=()
commands=()
patterns=()

# show TITLE PATTERN COMMAND. The pattern is an extended regular expression.
show() {
  titles+=("$1")
  patterns+=("$2")
  commands+=("$3")
}

# mcp_call KEY_VARIABLE TOOL ARGUMENTS [PATH]: the command for one tools/call, on /mcp if no path is given.
mcp_call() {
  cat <<END
curl -sS -w '\n' "\$DEMO_URL${4:-/mcp}" -H "X-API-Key: \$$1" \\
  -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\
  -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"$2","arguments":$3}}'
END
}

list_commands() {
  local target='"name":"filesystem:read_text_file","args":{"path":"hello.txt"}'
  local read_args="{$target}" declared_args="{$target,\"intent\":{\"operation_type\":\"read\"}}"
  local write_args='{"name":"filesystem:write_file","args":{"path":"written.txt","content":"Written through the gateway."}}'
  show 'Find the right tool among all servers' 'filesystem:read_text_file' \
    "$(mcp_call DEMO_AGENT_KEY retrieve_tools '{"query":"read a text file","limit":3}')"
  show 'Read a file' 'Hello from the demo' \
    "$(mcp_call DEMO_AGENT_KEY call_tool_read "$read_args")"
  show 'A write disguised as a read is refused: the server marks this tool destructive' 'server_mismatch' \
    "$(mcp_call DEMO_AGENT_KEY call_tool_read "$write_args")"
  show 'The same, called as what it is' 'Successfully wrote' \
    "$(mcp_call DEMO_AGENT_KEY call_tool_destructive "$write_args")"
  show 'A key that requires intent refuses a call that declares none' 'missing_intent' \
    "$(mcp_call DEMO_STRICT_KEY call_tool_read "$read_args")"
  show 'The same with the intent declared' 'Hello from the demo' \
    "$(mcp_call DEMO_STRICT_KEY call_tool_read "$declared_args")"
  show 'On /mcp/direct, where every tool has its own name' 'Hello from the demo' \
    "$(mcp_call DEMO_AGENT_KEY filesystem__read_text_file '{"path":"hello.txt"}' '/mcp/direct?names=safe')"
  # shellcheck disable=SC2016 # the variable is for whoever pastes it
  show 'Everything above is on record, refusals too' 'missing_intent.*server_mismatch|server_mismatch.*missing_intent' \
    'sleep 1; curl -sS -w "\n" "$DEMO_URL/api/v1/activity?limit=10" -H "X-API-Key: $DEMO_AUDITOR_KEY"'
  show 'The same at the command line' 'TOOL +INTENT +STATUS' \
    "MCPPROXY_URL=\$DEMO_URL MCPPROXY_API_KEY=\$DEMO_AUDITOR_KEY $gateway activity list --limit 5"
  show 'What a server that is a program says on standard error' 'started, process' \
    "MCPPROXY_URL=\$DEMO_URL MCPPROXY_API_KEY=\$DEMO_ADMIN_KEY $gateway upstream logs filesystem -n 500"
  # shellcheck disable=SC2016
  show 'The official inspector' 'call_tool_destructive' \
    "${node_path:+PATH=\"$node_path:\$PATH\" }npx -y $INSPECTOR --cli \"\$DEMO_URL/mcp\" --transport http \\
  --header \"X-API-Key: \$DEMO_AGENT_KEY\" --method tools/list"
}

print_commands() {
  local i
  cat <<END

mcpproxy is running: $url/mcp
Its console for people: $url/console (log in with a key)
Its keys, of agents, an auditor, an operator, an approver and an admin of the tenant $TENANT, are in $keys_file
Paste these into another terminal:

source $keys_file
export PATH="$(dirname "$gateway"):\$PATH"

# The command line, as the admin of the tenant (for another role: export MCPPROXY_API_KEY=\$DEMO_OPERATOR_KEY)
export MCPPROXY_URL=\$DEMO_URL MCPPROXY_API_KEY=\$DEMO_ADMIN_KEY
$gateway doctor

# Risky calls wait for a person: after this, log in to the console with DEMO_APPROVER_KEY, and make the destructive call below
# $gateway key settings --set policy_mode=by_risk

# An IDE or agent of yours: writes its configuration, with a key of its own (codex, cursor, vscode, gemini, windsurf as well)
# mcpproxy connect claude-code

# The same as the platform, whose key makes tenants
MCPPROXY_API_KEY=\$(cat $demo_dir/data/secrets/bootstrap_key) $gateway tenant list

# Its settings, programs for the tenant $TENANT among them, are in $settings_file. After a change there:
MCPPROXY_API_KEY=\$(cat $demo_dir/data/secrets/bootstrap_key) $gateway reload
END
  for ((i = 0; i < ${#commands[@]}; i++)); do
    printf '\n# %s\n%s\n' "${titles[i]}" "${commands[i]}"
  done
  printf '\nCtrl-C stops everything.\n'
}

# run_command COMMAND: its output on one line.
run_command() {
  (
    set +eu
    exec 9>&-
    # shellcheck source=/dev/null
    source "$keys_file"
    eval "$1"
  ) 2>&1 | tr '\n' ' '
}

# matches COMMAND PATTERN: whether its output does; keeps it in last_output.
matches() {
  last_output="$(run_command "$1")"
  [[ "$last_output" =~ $2 ]]
}

# Reads appear in the activity log a moment later, so a miss gets a few more tries.
check_command() {
  local tries
  for tries in 1 2 3 4 5; do
    if matches "$1" "$2"; then return 0; fi
    [[ "$1" == *"/api/v1/activity"* && "$tries" -lt 5 ]] || return 1
    pause 0.5
  done
}

# Runs every printed command and compares. Fails after the last if one did not match.
check_commands() {
  local i failed=0
  rm -f "$files_dir/written.txt"
  for ((i = 0; i < ${#commands[@]}; i++)); do
    if check_command "${commands[i]}" "${patterns[i]}"; then
      say "ok: ${titles[i]}"
    else
      failed=1
      say "MISMATCH: ${titles[i]}: expected ${patterns[i]}, got: ${last_output:0:2000}"
    fi
    if [[ "${patterns[i]}" == server_mismatch && -e "$files_dir/written.txt" ]]; then
      failed=1
      say "MISMATCH: a refused call wrote the file"
    fi
  done
  if [[ ! -s "$files_dir/written.txt" ]]; then
    failed=1
    say "MISMATCH: the destructive call wrote no file"
  fi
  [[ "$failed" -eq 0 ]] || die "the demo does not do what it says"
}
