# shellcheck shell=bash
# shellcheck disable=SC2034 # for those who source it
# Where things are, how they are called, and what every script of the cluster test needs. Sourced.

# shellcheck source=tests/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

# What outlives a run: built once, some 500 MB.
readonly CACHE="${MCPPROXY_CLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mcpproxy-cluster}"
readonly KUBERNETES_BIN="$CACHE/kubernetes-1.20.2"
readonly TOOLS="$CACHE/tools"
# What a run leaves: logs, and what went wrong. It is made anew by each start.
readonly STATE="${MCPPROXY_CLUSTER_STATE:-${TMPDIR:-/tmp}/mcpproxy-cluster}"
readonly LOGS="$STATE/logs"
# The name of the cgroup that everything of the cluster runs in.
readonly CGROUP=mcpproxy-cluster

# Addresses in the network namespace of the cluster; nothing outside of it has them.
readonly BRIDGE=10.244.0.1
readonly DNS_ADDRESS="$BRIDGE"
readonly METRICS_PORT=4443
readonly POD_NETWORK=10.244.0.0/24
readonly SERVICE_NETWORK=10.96.0.0/16

export KUBECONFIG="$STATE/kubeconfig"
export PATH="$TOOLS/helm:$TOOLS/kubectl:$PATH:/usr/sbin:/sbin"

# The process that is the first one in the cluster's namespaces, seen from outside.
node_pid() { cat "$STATE/node.pid" 2>/dev/null; }

is_up() {
  local pid
  pid="$(node_pid)" && [[ "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)" == *node/start.sh* ]]
}

# inside COMMAND...: runs it where the cluster is: its network, its mounts, its processes.
inside() { nsenter --target "$(node_pid)" --net --mount --pid --wdns="$PWD" -- "$@"; }

kube() { inside kubectl "$@"; }
