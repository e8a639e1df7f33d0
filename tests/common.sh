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

# commit_of REVISION: what git calls it.
commit_of() { git rev-parse --verify --quiet "$1^{commit}" || die "git knows no revision '$1'"; }

# check_out COMMIT FOLDER: its tree, in a worktree that later runs use again.
check_out() {
  git worktree prune
  if [[ -e "$2/.git" ]]; then
    git -C "$2" checkout --quiet --force --detach "$1"
  else
    git worktree add --quiet --force --detach "$2" "$1"
  fi
}

# The folder of PostgreSQL's programs, of the newest version.
postgres_bin() { find /usr/lib/postgresql -maxdepth 3 -name initdb -printf '%h\n' | sort -V | tail -n 1; }
