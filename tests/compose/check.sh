#!/usr/bin/env bash
# Checks deploy/compose.yaml and the files it mounts, as far as that can be done without its images: compose itself,
# nginx and promtool read them, and what one file says of another must be so. With MCPPROXY_BINARY (or a built
# target/debug/mcpproxy) the program is asked about its settings.
#
#   tests/compose/check.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

PATH="$PATH:/usr/sbin"
tools="$(tests/helm/tools.sh)"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT

fail() {
  echo "check.sh: $*" >&2
  exit 1
}

compose() {
  if docker compose version >/dev/null 2>&1; then docker compose "$@"; else docker-compose "$@"; fi
}

deploy/compose/env.sh "$out/env" 2>/dev/null
[ "$(stat -c %a "$out/env")" = 600 ] || fail "others can read the secrets"
cp "$out/env" "$out/before"
deploy/compose/env.sh "$out/env"
cmp -s "$out/before" "$out/env" || fail "a second run of env.sh changed secrets"

compose --env-file "$out/env" -f deploy/compose.yaml config >"$out/compose.yaml"
touch "$out/nothing"
if compose --env-file "$out/nothing" -f deploy/compose.yaml config >/dev/null 2>"$out/refused"; then
  fail "compose goes without secrets"
fi
grep -q 'run deploy/compose/env.sh' "$out/refused" || fail "what to do without secrets is not said: $(cat "$out/refused")"

# the names of gateways are known within compose only
sed 's/gateway-\([0-9]\):/127.0.0.\1:/' deploy/compose/nginx.conf >"$out/nginx.conf"
nginx -t -q -p "$out" -e stderr -g "pid $out/nginx.pid;" -c "$out/nginx.conf"

promtool check config --syntax-only deploy/compose/prometheus.yml >/dev/null

"$tools/venv/bin/python" tests/compose/rules.py "$out/compose.yaml"

binary="${MCPPROXY_BINARY:-${CARGO_TARGET_DIR:-target}/debug/mcpproxy}"
if [ -x "$binary" ]; then
  "$tools/venv/bin/python" tests/helm/settings.py "$binary" "$out/compose.yaml"
else
  echo "check.sh: $binary is not built, so the program was not asked about the settings" >&2
fi
echo "deploy/compose.yaml is as it should be"
