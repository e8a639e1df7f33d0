# shellcheck shell=bash
# shellcheck disable=SC2154 # demo.sh sets the paths, ports and the URL
# Setting up the gateway over its REST API: tenant, keys, servers. Sourced by demo.sh.

TENANT=demo
# The name in keys.env, the role, the settings. The key for IDEs distrusts tools that say nothing about themselves, since IDEs
# approve reads by themselves.
KEYS=(
  'DEMO_AGENT_KEY agent {"unannotated_tools":"distrust"}'
  'DEMO_STRICT_KEY agent {"intent_declaration":"required"}'
  'DEMO_AUDITOR_KEY auditor {}'
  'DEMO_OPERATOR_KEY operator {}'
  'DEMO_APPROVER_KEY approver {}'
  'DEMO_ADMIN_KEY admin {}'
)

# field PATH: the value at a dotted path of the JSON on stdin; nothing if it is not there.
field() {
  node -e '
    const value = process.argv[1].split(".").reduce((v, k) => v?.[k], JSON.parse(require("fs").readFileSync(0, "utf8")));
    if (value !== undefined && value !== null) process.stdout.write(String(value));
  ' "$1"
}

# json NAME VALUE...: an object of strings.
json() {
  node -e '
    const pairs = process.argv.slice(1);
    const object = {};
    for (let i = 0; i < pairs.length; i += 2) object[pairs[i]] = pairs[i + 1];
    process.stdout.write(JSON.stringify(object));
  ' "$@"
}

# The tenant that the platform's key acts for; every other key knows its own.
acting_for=

auth_headers() {
  printf 'X-API-Key: %s\n' "$1"
  [[ -z "$acting_for" ]] || printf 'X-Tenant: %s\n' "$acting_for"
}

# api KEY METHOD PATH [BODY]: sets api_status and api_body.
# The key goes in by file, so that it shows in no process list.
api() {
  local key="$1" method="$2" path="$3" answer
  local options=(-sS --max-time 30 -X "$method" -w '\n%{http_code}' -H 'Content-Type: application/json')
  [[ $# -lt 4 ]] || options+=(--data-binary "$4")
  answer="$(curl "${options[@]}" -H @<(auth_headers "$key") "$url/api/v1$path")" ||
    die "the gateway did not answer $method $path"
  api_status="${answer##*$'\n'}"
  api_body="${answer%$'\n'*}"
}

# expect STATUS... : stops unless the last answer had one of them.
expect() {
  local status
  for status in "$@"; do
    [[ "$api_status" != "$status" ]] || return 0
  done
  # Not the whole body: it could hold a key.
  die "unexpected answer $api_status: $(field error.message <<<"$api_body" 2>/dev/null || true)"
}

create_tenant() {
  api "$1" POST /tenants "$(json name "$TENANT")"
  expect 200 201 409
}

# Whether the keys kept from an earlier start are all there and still good.
keys_are_good() {
  [[ -f "$keys_file" ]] || return 1
  # shellcheck source=/dev/null
  source "$keys_file"
  local entry name
  for entry in "${KEYS[@]}"; do
    name="${entry%% *}"
    [[ -n "${!name:-}" ]] || return 1
  done
  api "$DEMO_ADMIN_KEY" GET /servers
  [[ "$api_status" == 200 ]]
}

create_key() {
  local bootstrap="$1" name="$2" role="$3" settings="$4" key owner
  owner="${name#DEMO_}"
  owner="${owner%_KEY}"
  owner="demo-${owner,,}"
  api "$bootstrap" POST /keys "{\"role\":\"$role\",\"name\":\"demo $name\",\"owner\":\"$owner\",\"settings\":$settings}"
  expect 200 201
  key="$(field key <<<"$api_body")"
  [[ -n "$key" ]] || die "the gateway made a key without showing it"
  printf -v "$name" '%s' "$key"
}

create_keys() {
  local entry name role settings
  acting_for="$TENANT"
  for entry in "${KEYS[@]}"; do
    read -r name role settings <<<"$entry"
    create_key "$1" "$name" "$role" "$settings"
  done
  acting_for=
}

# Written beside it first: a half-written file must not pass for the whole.
write_keys_file() {
  local entry name
  rm -f "$keys_file.new"
  (
    umask 077
    {
      echo "# How to reach the demo. Written by deploy/demo/demo.sh."
      printf "DEMO_URL='%s'\n" "$url"
      for entry in "${KEYS[@]}"; do
        name="${entry%% *}"
        printf "%s='%s'\n" "$name" "${!name}"
      done
    } >"$keys_file.new"
  )
  mv "$keys_file.new" "$keys_file"
}

# Opens /mcp/direct to the keys of the tenant, but for those that must declare their intent.
open_direct_endpoint() {
  api "$DEMO_ADMIN_KEY" PATCH /settings '{"direct_endpoint":true}'
  expect 200
}

# add_server NAME URL: registers it, or moves it to this URL if it is elsewhere.
add_server() {
  local name="$1" server_url="$2"
  api "$DEMO_ADMIN_KEY" GET "/servers/$name"
  expect 200 404
  if [[ "$api_status" == 404 ]]; then
    api "$DEMO_ADMIN_KEY" POST /servers \
      "{\"name\":\"$name\",\"kind\":\"http\",\"url\":\"$server_url\",\"auto_approve\":false}"
    expect 201
    return 0
  fi
  [[ "$(field url <<<"$api_body")" != "$server_url" ]] || return 0
  local version
  version="$(field version <<<"$api_body")"
  api "$DEMO_ADMIN_KEY" PATCH "/servers/$name" "{\"url\":\"$server_url\",\"version\":$version}"
  expect 200
  # Another origin is another server until somebody says otherwise.
  api "$DEMO_ADMIN_KEY" POST "/servers/$name/unquarantine" '{}'
  expect 200 202 204
}

# add_program NAME: registers the program of this name; what an earlier demo had at a URL makes room for it.
add_program() {
  local name="$1"
  api "$DEMO_ADMIN_KEY" GET "/servers/$name"
  expect 200 404
  if [[ "$api_status" == 200 ]]; then
    [[ "$(field kind <<<"$api_body")" != stdio ]] || return 0
    api "$DEMO_ADMIN_KEY" DELETE "/servers/$name"
    expect 204
  fi
  api "$DEMO_ADMIN_KEY" POST /servers "{\"name\":\"$name\",\"kind\":\"stdio\",\"command\":\"$name\"}"
  expect 201
}

has_tools() {
  api "$DEMO_ADMIN_KEY" GET "/servers/$1/tools"
  [[ "$api_status" == 200 && -n "$(field items.0.name <<<"$api_body")" ]] || return 1
  api "$DEMO_ADMIN_KEY" GET "/servers/$1"
  [[ "$(field connection <<<"$api_body")" == connected ]]
}
