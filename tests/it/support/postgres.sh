#!/usr/bin/env bash
# Runs a throw-away Postgres for as long as the process WATCHED lives.
#
#   postgres.sh STATE PORT WATCHED
#
# STATE/ready appears when it takes connections on 127.0.0.1:PORT, STATE/failed when it never will;
# STATE/log says why. Gateways that a killed test left behind, and nginx before them (one file named by pid in
# STATE/gateways), end with it.
set -euo pipefail

state="$1" port="$2" watched="$3"
mkdir -p "$state/gateways"
trap 'touch "$state/failed"' ERR

# The folder of the programs: PATH, or where distributions keep them, the newest first.
programs() {
  local found
  if found="$(command -v initdb)" && [[ -x "$(dirname "$found")/postgres" ]]; then
    dirname "$found"
    return
  fi
  found="$(find /usr/lib/postgresql /opt/homebrew/opt /usr/local/opt -maxdepth 3 -name initdb -path '*bin*' \
    2>/dev/null | sort -rV | head -n 1)"
  [[ -n "$found" ]] || { echo "initdb is missing: install postgresql" >&2; return 1; }
  dirname "$found"
}

# The folder for the data: memory, where 4 GiB are free in it. Each test makes a database and drops it, and on a disk's
# file system those files take more of the processors' time than Postgres does.
place() {
  local room memory
  room="$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $1 == "tmpfs" { print $4 }')" || true
  memory="$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo 2>/dev/null)" || true
  if [[ "${room:-0}" -ge 4194304 && "${memory:-0}" -ge 6291456 ]]; then echo /dev/shm; else echo "${TMPDIR:-/tmp}"; fi
}

bin="$(programs)"
data="$(mktemp -d "$(place)/mcpproxy-it-XXXXXX")"
as=()
# Postgres refuses to run as root.
if [[ "$(id -u)" -eq 0 ]]; then
  as=(setpriv --reuid=postgres --regid=postgres --init-groups --)
  chown postgres: "$data"
fi
cd "$data"

"${as[@]}" "$bin/initdb" --pgdata="$data/cluster" --username=postgres --auth=trust --encoding=UTF8 \
  --locale=C --no-sync --no-instructions >&2

# No fsync: what a killed process has committed is in the hands of the system, which no test kills; it would be half
# of the time of making and dropping databases. Tests whose subject are kills and commits under load have a cluster of
# their own, with it (own_postgres.rs).
"${as[@]}" "$bin/postgres" -D "$data/cluster" -p "$port" -h 127.0.0.1 -k "$data" \
  -c max_connections=500 -c shared_buffers=32MB -c max_wal_size=256MB -c fsync=off -c synchronous_commit=on \
  -c timezone=UTC -c log_min_messages=warning &
postgres=$!

clean_up() {
  local file pid tries=100
  for file in "$state"/gateways/*; do
    pid="$(basename "$file")"
    case "$(ps -o comm= -p "$pid" 2>/dev/null)" in mcpproxy | nginx) kill -KILL "$pid" || true ;; esac
  done
  kill -INT "$postgres" 2>/dev/null || true
  while kill -0 "$postgres" 2>/dev/null && [[ $((tries--)) -gt 0 ]]; do sleep 0.1; done
  kill -QUIT "$postgres" 2>/dev/null || true
  wait "$postgres" || true
  rm -rf "$data" "$state"
}

for ((tries = 300; tries > 0; tries--)); do
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
  kill -0 "$postgres" || { touch "$state/failed"; rm -rf "$data"; exit 1; }
  sleep 0.1
done
trap - ERR
trap clean_up EXIT
touch "$state/ready"
while kill -0 "$watched" 2>/dev/null && kill -0 "$postgres" 2>/dev/null; do sleep 0.5; done
