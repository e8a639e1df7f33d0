#!/usr/bin/env bash
# The part of check.sh that runs in namespaces of its own: what it starts ends with it, and its loopback is nobody else's.
#
#   tests/image/inside.sh WORK CGROUP PYTHON PROFILE
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=tests/common.sh
source ../common.sh

work="$1" parent="$2" python="$3" profile="$4"
readonly IMAGE=localhost/mcpproxy:check
readonly URL=http://127.0.0.1:8080
# What a stop may take: limits.drain_s (25) and what is left for the activity log.
readonly STOP_S_MAX=40
# Unoptimised code is some three times as large as what is released.
declare -r -A SIZE_MB_MAX=([release]=60 [image-check]=120)

# the rights of a pod of the chart
readonly CONFINED=(--read-only --cap-drop all --security-opt no-new-privileges --network host --cgroup-parent "$parent"
  --volume "$work/tls:/tls:ro" --env-file "$work/env")

export CONTAINERS_CONF="$work/containers.conf"
readonly PODMAN=(podman --root "$work/images" --runroot "$work/images-run" --tmpdir "$work/podman" --storage-driver vfs
  --cgroup-manager cgroupfs --runtime runc --events-backend file)

podman_() { "${PODMAN[@]}" "$@"; }

as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups -- env -C "$work/postgres" "$@"; }

# An authority, and a certificate for the names of the database and the MCP server.
certificates() {
  mkdir -p "$work/tls"
  cat >"$work/tls.conf" <<CONF
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:true
[server]
subjectAltName = DNS:*.outside.test
CONF
  openssl req -x509 -config "$work/tls.conf" -extensions authority -newkey rsa:2048 -nodes -days 2 \
    -subj '/CN=authority of this run' -keyout "$work/authority.key" -out "$work/tls/authority.pem" 2>/dev/null
  openssl req -new -config "$work/tls.conf" -newkey rsa:2048 -nodes -subj '/CN=outside' -keyout "$work/server.key" \
    -out "$work/server.csr" 2>/dev/null
  openssl x509 -req -in "$work/server.csr" -CA "$work/tls/authority.pem" -CAkey "$work/authority.key" -days 2 \
    -extfile "$work/tls.conf" -extensions server -out "$work/server.pem" 2>/dev/null
  chmod -R a+rX "$work/tls"
}

surroundings() {
  local bin
  # what a container may open: podman's default is more than root is allowed on some machines
  printf '[containers]\ndefault_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]\n' >"$work/containers.conf"
  ip link set lo up
  # names go to a name server, as in a pod
  printf 'nameserver 127.0.0.1\nsearch outside.test\n' >"$work/resolv.conf"
  mount --bind "$work/resolv.conf" /etc/resolv.conf
  python3 ../cluster/dns.py 127.0.0.1 /dev/null 127.0.0.1 &
  certificates
  bin="$(postgres_bin)"
  install -d -o postgres -g postgres -m 755 "$work/postgres"
  echo not-a-secret >"$work/postgres/password"
  as_postgres "$bin/initdb" --pgdata "$work/postgres/data" --username postgres --auth scram-sha-256 --no-sync \
    --pwfile "$work/postgres/password" --encoding UTF8 --locale C --no-instructions >/dev/null
  install -o postgres -m 600 "$work/server.key" "$work/server.pem" "$work/postgres/"
  as_postgres "$bin/pg_ctl" start --wait --pgdata "$work/postgres/data" --log "$work/postgres/log" --options "-h 127.0.0.1 -k '' \
    -c ssl=on -c ssl_cert_file=$work/postgres/server.pem -c ssl_key_file=$work/postgres/server.key" >/dev/null
  "$python" ../cluster/upstream.py 127.0.0.1 9200 "$work/upstream.jsonl" "$work/server.pem" "$work/server.key" >"$work/upstream.log" 2>&1 &
}


# What an operator gives it; the certificates of database and server are verified against an authority of their own.
settings() {
  local database=database.outside.test:5432/postgres
  (
    umask 077
    cat >"$work/env" <<ENV
DATABASE_URL=postgres://postgres:not-a-secret@$database?sslmode=verify-full&sslrootcert=/tls/authority.pem
MCPPROXY__AUTH__BOOTSTRAP_KEY=$bootstrap_key
MCPPROXY__SESSIONS__KEY=$(openssl rand -base64 32)
MCPPROXY__SECRETS__MASTER_KEY=$(openssl rand -base64 32)
MCPPROXY__EGRESS__ALLOW=127.0.0.0/8
SSL_CERT_FILE=/tls/authority.pem
ENV
  )
}

cli() {
  podman_ run --rm "${CONFINED[@]}" --env MCPPROXY_API_KEY="$bootstrap_key" "$IMAGE" "$@" --url "$URL"
}

is_ready() { [[ "$(curl --silent --max-time 2 "$URL/readyz")" == ready ]]; }

# field NAME: of the status of the gateway's process, which is the container's first.
field() { awk -v name="$1:" '$1 == name { print $2 }' "/proc/$pid/status"; }

# expect WHAT FOUND WANTED
expect() { [[ "$2" == "$3" ]] || die "$1 is '$2', not '$3'"; }

check_size() {
  local bytes
  bytes="$(podman_ image inspect --format '{{.Size}}' "$IMAGE")"
  say "its size: $((bytes / 1000000)) MB"
  [[ "$bytes" -lt $((SIZE_MB_MAX[$profile] * 1000000)) ]] || die "the image has $bytes bytes, more than ${SIZE_MB_MAX[$profile]} MB"
}

check_without_database() {
  if podman_ run --rm --read-only --network none "$IMAGE" >"$work/bare.log" 2>&1; then
    die "it started without a database"
  fi
  grep --quiet 'No database is set, and the container image holds no PostgreSQL' "$work/bare.log" ||
    die "without a database it says: $(cat "$work/bare.log")"
}

check_confinement() {
  expect "the first process in its container" "$(awk '$1 == "NSpid:" { print $NF }' "/proc/$pid/status")" 1
  expect "its user" "$(field Uid)" 10001
  expect "its group" "$(field Gid)" 10001
  expect "its capabilities" "$(field CapEff)" 0000000000000000
  expect "those that it could get" "$(field CapBnd)" 0000000000000000
  expect "no new privileges" "$(field NoNewPrivs)" 1
  awk '$5 == "/" { print $6 }' "/proc/$pid/mountinfo" | grep --quiet '^ro,' || die "its root can be written"
  expect "the number of programs in it" "$(find "/proc/$pid/root/" -xdev -type f -perm /111 | wc -l)" 1
}

adds_up() {
  cli upstream add ledger https://upstream.outside.test:9200/mcp --auto-approve --tenant acme >/dev/null
  finds_tools() { cli tools search 'write an item' --output json --tenant acme | grep --quiet write_item; }
  wait_for 30 "the tools of the server" finds_tools
}

# A call that is under way when the container is told to stop gets its answer.
check_stop() {
  local call started code answer
  curl --silent --max-time 60 "$URL/api/v1/tools/call" --header "X-API-Key: $bootstrap_key" --header 'X-Tenant: acme' \
    --data '{"tool_variant":"call_tool_write","name":"ledger:write_item","args":{"item":"last","attempt":"1","pause_ms":3000}}' \
    >"$work/answer.json" &
  call=$!
  wait_for 10 "the call" grep --quiet '"last"' "$work/upstream.jsonl"
  started=$SECONDS
  podman_ kill --signal TERM gateway >/dev/null
  code="$(timeout "$STOP_S_MAX" "${PODMAN[@]}" wait gateway)" ||
    die "SIGTERM did not stop it within $STOP_S_MAX s"
  expect "its exit code" "$code" 0
  say "SIGTERM ended it after $((SECONDS - started)) s"
  wait "$call" || die "the call under way got no answer"
  answer="$(cat "$work/answer.json")"
  [[ "$answer" == *'wrote last'* ]] || die "the call under way got $answer"
  expect "the record of that call" "$(PGPASSWORD=not-a-secret "$(postgres_bin)/psql" --host 127.0.0.1 --username postgres --tuples-only \
    --no-align --command "select status from activity where tool = 'write_item'")" success
}

main() {
  local bootstrap_key pid
  bootstrap_key="$(openssl rand -base64 32)"
  surroundings
  settings
  check_size
  check_without_database
  say "mcpproxy migrate"
  podman_ run --rm "${CONFINED[@]}" "$IMAGE" migrate >"$work/migrate.log" 2>&1 || die "migrate: $(tail -n 3 "$work/migrate.log")"
  say "mcpproxy serve"
  podman_ run --detach --name gateway "${CONFINED[@]}" --memory 256m --pids-limit 200 "$IMAGE" >/dev/null
  wait_for 30 "/readyz" is_ready
  pid="$(podman_ inspect --format '{{.State.Pid}}' gateway)"
  check_confinement
  cli tenant add acme >/dev/null
  adds_up
  check_stop
}

complain() {
  local code=$?
  if [[ $code -ne 0 ]]; then podman_ logs gateway 2>&1 | tail -n 20 >&2 || true; fi
  podman_ rm --all --force >/dev/null 2>&1 || true
  exit "$code"
}
trap complain EXIT
main
