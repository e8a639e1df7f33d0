# shellcheck shell=bash
# What the scripts that run the gateway in containers share. Sourced.

say() { printf '%s  %s\n' "$(date +%T)" "$*" >&2; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# wait_for SECONDS WHAT COMMAND...: until COMMAND succeeds.
wait_for() {
  local deadline=$((SECONDS + $1)) what="$2"
  shift 2
  until "$@" >/dev/null 2>&1; do
    [[ $SECONDS -lt $deadline ]] || die "gave up waiting for $what"
    sleep 0.2
  done
}

# The folder of PostgreSQL's programs, of the newest version.
postgres_bin() { find /usr/lib/postgresql -maxdepth 3 -name initdb -printf '%h\n' | sort -V | tail -n 1; }
