#!/usr/bin/env bash
# Installs Claude Code and Codex from npm, pinned, and runs the tests that drive them (tests/it/clients/agents.rs). They come
# as programs of nearly 400 MB each, for Linux (x64) here, so `make test` does without.
#
#   tests/clients/agents.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/common.sh
source tests/common.sh

folder=tests/clients/agents stamp=tests/clients/agents/node_modules/.installed
if ! cmp -s "$folder/package-lock.json" "$stamp"; then
  say "installing Claude Code and Codex into $folder/node_modules"
  (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  cp "$folder/package-lock.json" "$stamp"
fi
say "driving them"
cargo nextest run --test it --run-ignored only -E 'test(/^clients::agents::/)'
