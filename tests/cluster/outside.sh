# shellcheck shell=bash
# What the gateway needs and the cluster does not have: a Postgres and an MCP server, beside it on the address of the bridge.
# Sourced by run.sh, after settings.sh.
# shellcheck disable=SC2034 # for gateway.sh

readonly DATABASE_HOST=postgres.outside.test
readonly UPSTREAM_URL=http://upstream.outside.test:9200/mcp
readonly UPSTREAM_LOG="$STATE/upstream.jsonl"

# Postgres refuses to run as root.
as_postgres() { inside setpriv --reuid=postgres --regid=postgres --init-groups -- env -C "$STATE/postgres" "$@"; }

start_postgres() {
  local bin folder="$STATE/postgres"
  bin="$(postgres_bin)"
  rm -rf "$folder"
  install -d -o postgres -g postgres -m 755 "$folder"
  as_postgres "$bin/initdb" --pgdata "$folder/data" --username postgres --auth-local trust --auth-host scram-sha-256 \
    --encoding UTF8 --locale C --no-instructions >"$LOGS/initdb.log"
  echo "host all all $POD_NETWORK scram-sha-256" >>"$folder/data/pg_hba.conf"
  cat >>"$folder/data/postgresql.conf" <<CONF
listen_addresses = '$BRIDGE'
unix_socket_directories = '$folder'
log_min_messages = warning
CONF
  postgres_ctl start
  # two logins, as the documents advise: one that migrates, one that serves
  as_postgres "$bin/psql" --quiet --host "$folder" --set ON_ERROR_STOP=1 --dbname postgres <<SQL
create role migrator login createrole password '$1';
create role gateway login password '$1';
create database mcpproxy owner migrator;
SQL
}

# postgres_ctl start|stop
postgres_ctl() {
  as_postgres "$(postgres_bin)/pg_ctl" "$1" --pgdata "$STATE/postgres/data" --mode fast --wait --timeout 60 \
    --log "$STATE/postgres/log" >/dev/null
}

start_upstream() {
  local python="$CACHE/python/bin/python" pins=../../deploy/demo/requirements.txt
  if ! cmp --silent "$pins" "$CACHE/python/.installed"; then
    say "installing the MCP server's SDK"
    python3 -m venv --clear "$CACHE/python"
    "$python" -m pip install --quiet --disable-pip-version-check --requirement "$pins"
    cp "$pins" "$CACHE/python/.installed"
  fi
  inside "$python" upstream.py "$BRIDGE" 9200 "$UPSTREAM_LOG" >"$LOGS/upstream.log" 2>&1 </dev/null &
  wait_for 60 "the MCP server" inside curl --silent --max-time 2 "$UPSTREAM_URL"
}
