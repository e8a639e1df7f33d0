#!/usr/bin/env bash
# Checks that the programs a command needs are on this machine. On Debian and its kin, root gets missing ones by apt-get.
# Anybody else gets the one line to run, and exit code 2. Tools from crates.io are installed for whoever asks.
#
#   deploy/needs.sh NEED...      a name that `met` knows, a program, or PROGRAM:PACKAGE
#
# Sourced by the demo, which calls `needs NEED...`.

NODE_MAJOR_MIN=22
POSTGRES_MAJOR_MIN=14

have() { command -v "$1" >/dev/null 2>&1; }

# Whether a program is there; Debian keeps servers where only root's PATH looks.
have_server() { have "$1" || [[ -x "/usr/sbin/$1" ]]; }

node_is_new_enough() {
  have node && have npm && [[ "$(node -p 'process.versions.node.split(".")[0]')" -ge "$NODE_MAJOR_MIN" ]]
}

# npm has a pinned Node.js for this system: deploy/demo/setup.sh and tests/it/setup.sh put it into folders of their own.
npm_brings_node() { have node && have npm && [[ "$(uname -sm)" == 'Linux x86_64' ]]; }

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

# A C compiler with the headers of the C library.
compiles_c() { have cc && echo '#include <stdlib.h>' | cc -E -x c - >/dev/null 2>&1; }

# met NEED: whether it is there.
met() {
  case "$1" in
    rust) have cargo && have rustc ;;
    # asked, not looked for: rustup has these names also without the components
    rust-lints) cargo clippy --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1 ;;
    c) compiles_c ;;
    node) node_is_new_enough || npm_brings_node ;;
    python) python_has_venv ;;
    postgres) has_postgres ;;
    compose) have docker-compose || docker compose version >/dev/null 2>&1 ;;
    # where cargo looks, too
    cargo-* | typos) have "$1" || [[ -x "${CARGO_HOME:-${HOME:-}/.cargo}/bin/$1" ]] ;;
    *) have_server "${1%%:*}" ;;
  esac
}

# The Debian packages of a need, one per line.
packages_of() {
  case "$1" in
    c) printf '%s\n' gcc libc6-dev ;;
    node) printf '%s\n' nodejs npm ;;
    python) echo python3-venv ;;
    postgres) echo postgresql ;;
    ps) echo procps ;;
    promtool) echo prometheus ;;
    compose) echo docker-compose ;;
    ip) echo iproute2 ;;
    *) echo "${1#*:}" ;;
  esac
}

# What a need is called towards people.
words_of() {
  case "$1" in
    c) echo "a C compiler, with the headers of the C library" ;;
    node) echo "Node.js $NODE_MAJOR_MIN or newer, with npm (https://nodejs.org/en/download)" ;;
    python) echo "Python 3.10 or newer with its venv module" ;;
    postgres) echo "PostgreSQL $POSTGRES_MAJOR_MIN or newer: the programs initdb and postgres" ;;
    rust-lints) echo "rustfmt and clippy: rustup component add rustfmt clippy" ;;
    *) echo "${1%%:*}" ;;
  esac
}

# stop_for_needs LINE...: says what is missing; exit code 2: it stays missing until somebody acts.
stop_for_needs() {
  printf '%s\n' "$@" >&2
  exit 2
}

# Servers that packages bring are not started: whoever needs one here starts its own, and nginx and Prometheus would take
# the ports 80 and 9090.
NO_SERVICES=(RUNLEVEL=1 SYSTEMD_OFFLINE=1)

# The line that installs these packages here.
install_line() {
  if have apt-get; then
    echo "  sudo apt-get update && sudo ${NO_SERVICES[*]} apt-get install -y --no-install-recommends $*"
  elif have brew; then
    echo "  brew install $*" | sed -e 's/ nodejs npm/ node/' -e 's/python3-venv/python3/' -e 's/ gcc libc6-dev//'
  else
    echo "  with this system's package manager: $*"
  fi
}

install_packages() {
  echo "installing with apt-get: $*" >&2
  apt-get update -qq
  (
    export "${NO_SERVICES[@]}" DEBIAN_FRONTEND=noninteractive
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
  )
}

# Tools of cargo, for whoever runs this; compiled without optimisation, which takes half the time.
install_cargo_tool() {
  local crate="$1" features=()
  case "$1" in
    # without what only its self-update needs
    cargo-nextest) features=(--no-default-features --features default-no-update) ;;
    typos) crate=typos-cli ;;
  esac
  echo "installing $crate from crates.io" >&2
  cargo install --locked --quiet --debug ${features[@]+"${features[@]}"} "$crate"
}

# needs NEED...: sees to it that everything is there, or stops with what to do.
needs() {
  local need package packages=() tools=() rest=()
  for need in "$@"; do
    met "$need" && continue
    case "$need" in
      rust) stop_for_needs "cargo and rustc are missing; install them with" \
        "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" ;;
      rust-lints) ! have rustup || rustup component add rustfmt clippy >&2 || true ;;
      cargo-* | typos) tools+=("$need") ;;
      *) for package in $(packages_of "$need"); do packages+=("$package"); done ;;
    esac
  done
  if [[ ${#packages[@]} -gt 0 ]]; then
    if [[ "$(id -u)" -ne 0 || ! -f /etc/debian_version ]] || ! have apt-get; then
      stop_for_needs "something is missing; install it and run this again:" "$(install_line "${packages[@]}")"
    fi
    install_packages "${packages[@]}"
    hash -r
  fi
  for need in ${tools[@]+"${tools[@]}"}; do install_cargo_tool "$need"; done
  for need in "$@"; do met "$need" || rest+=("  $(words_of "$need")"); done
  [[ ${#rest[@]} -eq 0 ]] || stop_for_needs "this is still missing, or too old here:" "${rest[@]}"
}

if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then
  set -euo pipefail
  needs "$@"
fi
