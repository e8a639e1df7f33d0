#!/usr/bin/env bash
# Installs what the tests with real MCP clients and servers need, pinned. Does nothing where that is up to date.
# The servers go below $MCPPROXY_TEST_TOOLS, or else tmp/demo in cargo's target folder.
#
#   tests/it/setup.sh
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
clients="$root/tests/clients"
tools="${MCPPROXY_TEST_TOOLS:-${CARGO_TARGET_DIR:-$root/target}/tmp/demo}"

stamp="$clients/node_modules/.installed"
if ! cmp -s "$clients/package-lock.json" "$stamp"; then
  echo "installing the official clients into $clients" >&2
  (cd "$clients" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
  cp "$clients/package-lock.json" "$stamp"
fi

"$root/deploy/demo/setup.sh" "$tools"
