#!/usr/bin/env bash
# Generates the secrets of deploy/compose.yaml into deploy/.env, which only you can read. What is there already stays: with
# another master key the stored credentials could not be opened, with another password the database neither.
#
#   deploy/compose/env.sh [FILE]
set -euo pipefail

file="${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.env}"
umask 077
touch "$file"
chmod 600 "$file"

# generate NAME COMMAND…: adds the variable, unless it has a value.
generate() {
  local name="$1"
  shift
  if grep -q "^$name=." "$file"; then return; fi
  printf '%s=%s\n' "$name" "$("$@")" >>"$file"
  echo "generated $name into $file" >&2
}

generate MASTER_KEY openssl rand -base64 32
generate BOOTSTRAP_KEY openssl rand -hex 32
generate SESSIONS_KEY openssl rand -hex 32
generate POSTGRES_PASSWORD openssl rand -hex 24
generate GRAFANA_PASSWORD openssl rand -hex 12
