# shellcheck shell=bash
# shellcheck disable=SC2154 # demo.sh sets the paths, ports and the URL
# Starting and ending the processes of the demo. Sourced by demo.sh.
#
# Each process gets a group of its own, so that Ctrl-C in the terminal reaches
# this script alone and it can end them in order. Those that support it hold
# the read end of a pipe, the leash: when this script is killed without a
# chance to clean up, the pipe closes and they end by themselves.

GATEWAY_STOP_WAIT_S_MAX=40
SERVER_STOP_WAIT_S_MAX=5

# Parallel lists, in the order of starting.
names=()
pids=()
pause_pid=

# Opens the leash as file descriptor 9.
open_leash() {
  local fifo="$demo_dir/leash"
  rm -f "$fifo"
  mkfifo -m 600 "$fifo"
  exec 9<>"$fifo"
}

# start NAME STDIN COMMAND...: starts it in the background, output in logs/NAME.log.
start() {
  local name="$1" input="$2"
  shift 2
  set -m
  "$@" <"$input" >"$logs_dir/$name.log" 2>&1 9>&- &
  set +m
  names+=("$name")
  pids+=("$!")
}

# start_leashed NAME COMMAND...
start_leashed() {
  local name="$1"
  shift
  start "$name" "$demo_dir/leash" "$@"
}

is_running() { kill -0 "$1" 2>/dev/null; }

# The name of a process that has ended by itself, if there is one.
first_ended() {
  local i
  for ((i = 0; i < ${#pids[@]}; i++)); do
    if ! is_running "${pids[i]}"; then
      echo "${names[i]}"
      return 0
    fi
  done
  return 1
}

# Stops with the end of its log if a process of ours has ended.
check_running() {
  local name
  if ! name="$(first_ended)"; then return 0; fi
  tail -n 20 "$logs_dir/$name.log" >&2
  die "$name ended; the end of $logs_dir/$name.log is above"
}

# wait_for SECONDS WHAT COMMAND...: until COMMAND succeeds. Stops when the time is over.
wait_for() {
  local deadline=$((SECONDS + $1)) what="$2"
  shift 2
  until "$@"; do
    check_running
    [[ $SECONDS -lt $deadline ]] || die "gave up waiting for $what; the logs are in $logs_dir"
    pause 0.2
  done
}

# A sleep that a signal can interrupt.
pause() {
  sleep "$1" 9>&- &
  pause_pid=$!
  wait "$pause_pid" || true
  pause_pid=
}

# stop PID SECONDS: asks it to end, then insists.
stop() {
  local pid="$1" deadline=$((SECONDS + $2))
  is_running "$pid" || return 0
  kill -TERM "$pid" 2>/dev/null || true
  while is_running "$pid"; do
    if [[ $SECONDS -ge $deadline ]]; then
      kill -KILL -- "-$pid" 2>/dev/null || true
      echo "demo: $pid had to be killed" >&2
      break
    fi
    sleep 0.1
  done
}

# A gateway that was killed could not stop its private Postgres.
stop_orphaned_postgres() {
  local file pid
  while IFS= read -r file; do
    pid="$(head -n 1 "$file")"
    if [[ "$pid" =~ ^[0-9]+$ && "$(ps -o comm= -p "$pid")" == *postgres* ]]; then
      kill -INT "$pid" 2>/dev/null || true
      stop "$pid" "$SERVER_STOP_WAIT_S_MAX"
    fi
  done < <(find "$demo_dir/data" -maxdepth 3 -name postmaster.pid 2>/dev/null)
}

# Ends everything that was started, the last first.
stop_all() {
  local i wait_s
  # A second Ctrl-C must not leave half of it running.
  trap '' INT TERM HUP
  [[ -z "$pause_pid" ]] || kill "$pause_pid" 2>/dev/null || true
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    wait_s="$SERVER_STOP_WAIT_S_MAX"
    [[ "${names[i]}" != gateway ]] || wait_s="$GATEWAY_STOP_WAIT_S_MAX"
    stop "${pids[i]}" "$wait_s"
    wait "${pids[i]}" 2>/dev/null || true
  done
  stop_orphaned_postgres
  exec 9>&- || true
  rm -f "$demo_dir/leash"
}

port_is_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# check_ports_free PORT...
check_ports_free() {
  local port
  for port in "$@"; do
    ! port_is_taken "$port" || die "port $port is in use; stop what listens there, or choose others:
  DEMO_PORT (now $port_base, and the one after it) and DEMO_ADMIN_PORT (now $admin_port)"
  done
}
