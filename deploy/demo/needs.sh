# shellcheck shell=bash
# What the demo needs on this machine. Sourced by demo.sh.

NODE_MAJOR_MIN=20
POSTGRES_MAJOR_MIN=14

have() { command -v "$1" >/dev/null 2>&1; }

node_is_new_enough() {
  have node && have npm && [[ "$(node -p 'process.versions.node.split(".")[0]')" -ge "$NODE_MAJOR_MIN" ]]
}

# ensurepip is what Debian splits off into python3-venv; fastmcp wants 3.10.
python_has_venv() {
  have python3 && python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

postgres_is_new_enough() {
  local version
  version="$("$1/postgres" --version 2>/dev/null | sed -n 's/^[^0-9]*\([0-9][0-9]*\).*/\1/p')"
  [[ -n "$version" && "$version" -ge "$POSTGRES_MAJOR_MIN" ]]
}

has_postgres() {
  local folder
  for folder in "$(dirname "$(command -v initdb 2>/dev/null || echo /nowhere/initdb)")" \
    /usr/lib/postgresql/*/bin /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin; do
    if [[ -x "$folder/initdb" && -x "$folder/postgres" ]] && postgres_is_new_enough "$folder"; then return 0; fi
  done
  return 1
}

# The Debian packages of what is missing, one per line.
missing_packages() {
  have curl || echo curl
  node_is_new_enough || printf '%s\n' nodejs npm
  python_has_venv || echo python3-venv
  has_postgres || echo postgresql
}

# package_hint PACKAGE...: how to get them here.
package_hint() {
  if have apt-get; then
    echo "  sudo apt-get install -y $*"
  elif have brew; then
    echo "  brew install $*" | sed -e 's/ nodejs npm/ node/' -e 's/python3-venv/python3/'
  else
    echo "  with this system's package manager: $*"
  fi
}

install_packages() {
  say "installing with apt-get: $*"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

# Anything that a package install could not settle, in the user's words.
name_what_is_missing() {
  have curl || echo "  curl"
  node_is_new_enough || echo "  Node.js $NODE_MAJOR_MIN or newer, with npm (https://nodejs.org/en/download)"
  python_has_venv || echo "  Python 3.10 or newer with its venv module"
  has_postgres || echo "  PostgreSQL $POSTGRES_MAJOR_MIN or newer: the programs initdb and postgres"
}

check_rust() {
  [[ -z "${DEMO_BINARY:-}" ]] || return 0
  if have cargo && have rustc; then return 0; fi
  die "cargo and rustc are missing; install them with
  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
}

# Sees to it that everything is there, or stops with what to do.
check_needs() {
  check_rust
  local wanted=()
  while IFS= read -r package; do wanted+=("$package"); done < <(missing_packages)
  [[ ${#wanted[@]} -gt 0 ]] || return 0
  if [[ "$(id -u)" -eq 0 && -f /etc/debian_version ]] && have apt-get; then
    install_packages "${wanted[@]}"
  else
    die "something is missing; install it and run this again:
$(package_hint "${wanted[@]}")"
  fi
  local rest
  rest="$(name_what_is_missing)"
  [[ -z "$rest" ]] || die "this is still missing, or too old here:
$rest"
}
