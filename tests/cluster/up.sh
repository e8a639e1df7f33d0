#!/usr/bin/env bash
# Starts a one-node Kubernetes 1.20 in namespaces of its own for network, mounts and processes: nothing on the machine
# sees it, and it vanishes whole when its first process ends (down.sh). Builds what it needs on the first run.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=tests/cluster/settings.sh
source ./settings.sh

[[ "$(id -u)" -eq 0 ]] || die "a cluster needs root"
! is_up || die "it is up already; tests/cluster/down.sh ends it"
../../deploy/needs.sh go:golang-go dpkg-source:dpkg-dev etcd:etcd-server containerd runc iptables conntrack socat ethtool \
  buildah unzip ip python /usr/lib/cni/bridge:containernetworking-plugins postgres rust c
./build.sh
./tools.sh

rm -rf "$STATE"
mkdir -p "$LOGS"
say "starting the cluster; its files are in $STATE"
setsid unshare --net --mount --pid --fork --mount-proc --propagation private --kill-child \
  "$PWD/node/start.sh" </dev/null >"$LOGS/node.log" 2>&1 &
unshare_pid=$!
wait_for 5 "its first process" pgrep --parent "$unshare_pid"
pgrep --parent "$unshare_pid" >"$STATE/node.pid"

node_is_ready() { kube get node localhost --output 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' | grep --quiet True; }
wait_for 30 "the API server" kube get --raw /readyz
wait_for 120 "the node" node_is_ready
wait_for 30 "the default service account" kube get serviceaccount default
wait_for 60 "the metrics of pods" kube get --raw /apis/metrics.k8s.io/v1beta1/namespaces/default/pods
say "the cluster is up: $(kube get --raw /version | sed -n "s/.*\"gitVersion\": \"\(.*\)\".*/\1/p")"
