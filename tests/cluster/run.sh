#!/usr/bin/env bash
# The gateway on a real Kubernetes, under load, while it is upgraded, rolled back and killed, and while its database is
# restarted. Passes when no client that retries as the protocol says saw a failure, and nothing that ran is without its record.
#
#   tests/cluster/run.sh [--keep]      --keep leaves the cluster up; tests/cluster/down.sh ends it
#
# Needs root, Debian 12 and cargo; installs what else it needs. The first run builds Kubernetes (about 8 minutes).
# MCPPROXY_CLUSTER_PROFILE names the profile of cargo (release), MCPPROXY_CLUSTER_IMAGE an archive of an image
# localhost/mcpproxy:1 to take instead (deploy/image.sh --archive). MCPPROXY_CLUSTER_FROM names a git revision with fewer
# migrations, whose image and chart are installed first.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=tests/cluster/settings.sh
source ./settings.sh
# shellcheck source=tests/cluster/outside.sh
source ./outside.sh
# shellcheck source=tests/cluster/gateway.sh
source ./gateway.sh

keep="${1:-}"
agent_keys="" auditor_key="" load_pid=""
killed_at=()

finish() {
  local code=$?
  if [[ -n "$load_pid" ]]; then
    touch "$STATE/stop"
    wait "$load_pid" || true
  fi
  if [[ $code -ne 0 ]] && is_up; then
    kube get pods,events --output wide >"$LOGS/objects.txt" 2>&1 || true
    for_each_pod_log || true
  fi
  if [[ "$keep" != --keep ]]; then ./down.sh; fi
  exit "$code"
}

for_each_pod_log() {
  local pod
  for pod in $(kube get pods --output name); do
    kube logs "$pod" --all-containers --prefix >"$LOGS/${pod//\//-}.log" 2>&1 || true
    kube logs "$pod" --previous >"$LOGS/${pod//\//-}.previous.log" 2>&1 || true
  done
}

start_load() {
  rm -f "$STATE/stop"
  inside python3 load/main.py "$RELEASE" 8080 ledger "$STATE/stop" "$STATE/items.jsonl" <<<"$agent_keys" >"$LOGS/load.log" 2>&1 &
  load_pid=$!
}

stop_load() {
  touch "$STATE/stop"
  wait "$load_pid" || die "the load ended badly; see $LOGS/load.log"
  load_pid=""
  [[ ! -s "$LOGS/load.log" ]] || die "the load complained; see $LOGS/load.log"
}

# Load goes on for a while (seconds), so that each disturbance meets a gateway that had recovered from the one before.
calm() {
  three_replicas() { [[ "$(gateway_pids | wc -l)" -eq 3 ]]; }
  wait_for 60 "three replicas and none that stops" three_replicas
  sleep "${1:-6}"
}

kill_process() {
  local pid
  pid="$(gateway_pids | head -n 1)"
  inside kill -KILL "$pid"
  killed_at+=("$(date +%s.%N)")
}

# The kubelet grants 2 s all the same, then kills.
delete_pod() {
  local pod pid
  pod="$(any_pod)"
  pid="$(pid_of "$pod")"
  is_dead() { ! inside kill -0 "$pid"; }
  kube delete pod "$pod" --grace-period 0 --force >/dev/null 2>&1
  wait_for 15 "the end of the deleted pod" is_dead
  killed_at+=("$(date +%s.%N)")
}

restart_postgres() {
  postgres_ctl stop
  sleep 2
  postgres_ctl start
}

# The migration's Job is given the settings too, so that a bad one stops there.
refused_upgrade() {
  local before
  before="$(pods)"
  if gateway_helm upgrade --timeout 15s --set config.limits.call_timeout_s=0 >"$LOGS/refused-upgrade.log" 2>&1; then
    die "an upgrade with a setting that the program refuses went through"
  fi
  [[ "$(pods)" == "$before" ]] ||
    die "an upgrade with a setting that the program refuses replaced pods"
}

pods_are_ready() { [[ "$(kube get "deployment/$RELEASE" --output 'jsonpath={.status.readyReplicas}')" -eq "$1" ]]; }

pods() { kube get pods --selector app.kubernetes.io/component=gateway --output name | sort; }

# autoscale PERCENT: keeps three replicas or four, at so much of the processor time that they request.
autoscale() {
  gateway_helm upgrade --set autoscaling.enabled=true,autoscaling.minReplicas=3,autoscaling.maxReplicas=4 \
    --set "autoscaling.scaleDownStabilizationSeconds=10,autoscaling.targetCPUUtilizationPercentage=$1" >/dev/null
}

# As docs/kubernetes.md says, so that no replica ends when the number leaves the Deployment.
hand_replicas_over() {
  kube apply --server-side --validate=false --field-manager=autoscaling-handover --filename - >/dev/null <<YAML
{ apiVersion: apps/v1, kind: Deployment, metadata: { name: $RELEASE }, spec: { replicas: 3 } }
YAML
}

# The load uses more than the first target, and less than the second.
scale() {
  local before
  before="$(pods)"
  hand_replicas_over
  autoscale 5
  wait_for 120 "a fourth replica" pods_are_ready 4
  [[ -z "$(comm -23 <(echo "$before") <(pods))" ]] || die "switching the autoscaler on replaced pods"
  sleep 6
  autoscale 1000
  wait_for 120 "the end of the fourth replica" pods_are_ready 3
}

# The release that was installed first is back. Of another revision no more is asked than to be upgraded and returned to.
leave_first_release() {
  if [[ -z "$FROM" ]]; then
    tag=1
    return
  fi
  say "helm upgrade again, from $FROM"
  gateway_helm upgrade >/dev/null
  calm
}

disturb() {
  calm
  say "helm upgrade, with a setting that the program refuses"
  refused_upgrade
  calm
  say "helm upgrade${FROM:+ from $FROM}: another image and another setting"
  chart="$CHART" tag=2
  gateway_helm upgrade --set config.activity.preview_bytes=2048 >/dev/null
  calm
  say "helm rollback"
  inside helm rollback "$RELEASE" 1 --wait --timeout 180s >/dev/null
  calm
  leave_first_release
  say "a pod is deleted by force"
  delete_pod
  rolled_out
  calm
  say "a replica is killed with SIGKILL"
  kill_process
  rolled_out
  calm
  say "Postgres is restarted"
  restart_postgres
  calm 10
  say "the autoscaler adds a replica, and takes one away"
  scale
  calm
}

account() {
  local api_key="$auditor_key"
  # what was killed is closed when its heartbeat has been gone for 30 s
  say "waiting for the records of killed replicas to be closed"
  records_are_closed() { ! cli activity list --status pending --output json | grep --quiet '"id"'; }
  wait_for 90 "the end of pending records" records_are_closed
  cli activity export --format jsonl --type tool_call >"$STATE/export.jsonl"
  python3 load/account.py "$UPSTREAM_LOG" "$STATE/items.jsonl" "$STATE/export.jsonl" "${killed_at[@]}"
}

main() {
  local password secrets
  password="$(head -c 18 /dev/urandom | base64 | tr -d '+/=')"
  check_from
  ./up.sh
  load_images
  start_postgres "$password"
  start_upstream
  create_secrets "$password"

  say "helm install, 3 replicas"
  gateway_helm install >/dev/null
  check_confinement
  check_metrics
  say "helm test"
  inside helm test "$RELEASE" --timeout 60s >"$LOGS/helm-test.log" 2>&1
  secrets="$(generated_secrets)"
  set_up_tenant

  say "load"
  start_load
  disturb
  stop_load
  account
  [[ "$(generated_secrets)" == "$secrets" ]] || die "an upgrade made other secrets"

  say "helm uninstall"
  inside helm uninstall "$RELEASE" --wait --timeout 120s >/dev/null
  nothing_is_left() { [[ -z "$(left_behind)" ]]; }
  # helm does not wait for pods, which drain; this kubelet may notice their end only at its next look, up to 90 s later
  wait_for 180 "the end of $(left_behind | tr '\n' ' ')" nothing_is_left
  [[ "$(generated_secrets)" == "$secrets" ]] || die "the generated keys did not outlive the release"
  say "passed"
}

trap finish EXIT
trap 'exit 130' INT TERM HUP
main
