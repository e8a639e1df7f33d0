#!/usr/bin/env bash
# Installs Claude Code, Codex and Gemini CLI from npm, pinned, and runs the tests that drive them (tests/it/clients/agents).
# They come as nearly 900 MB of programs, for Linux (x64) here, so `make test` does without.
#
#   tests/clients/agents.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/common.sh
source tests/common.sh

folder=tests/clients/agents stamp=tests/clients/agents/node_modules/.installed
if ! cmp -s "$folder/package-lock.json" "$stamp"; then
  say "installing Claude Code, Codex and Gemini CLI into $folder/node_modules"
  (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  cp "$folder/package-lock.json" "$stamp"
fi
say "driving them"
cargo nextest run --test it --run-ignored only -E 'test(/^clients::agents::/)'
