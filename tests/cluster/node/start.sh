#!/usr/bin/env bash
# The first process in the cluster's namespaces: sets up network and mounts, starts the parts of Kubernetes, and stays.
# What it starts ends with it.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=tests/cluster/settings.sh
source ../settings.sh

# start NAME COMMAND...: in the background, output in a log of its own.
start() {
  local name="$1"
  shift
  "$@" >"$LOGS/$name.log" 2>&1 </dev/null &
}

# Places that are the machine's get a face of their own here, in memory, so that nothing is left behind.
mounts() {
  local folder
  for folder in /run /var/lib/kubelet /var/lib/cni /var/log/pods /var/log/containers; do
    mkdir -p "$folder"
    mount -t tmpfs -o mode=755 tmpfs "$folder"
  done
  mkdir -p /run/containerd /run/lock /run/netns
  # so that the test finds services by their names as pods do
  printf 'nameserver %s\nsearch default.svc.cluster.local\n' "$DNS_ADDRESS" >/run/resolv.conf
  mount --bind /run/resolv.conf /etc/resolv.conf
}

network() {
  ip link set lo up
  ip link add kbr0 type bridge
  ip address add "$BRIDGE/24" dev kbr0
  ip link set kbr0 up
  # the kubelet asks for the address of the interface that leads out; nothing does
  ip route add default dev kbr0
  echo 1 >/proc/sys/net/ipv4/ip_forward
  echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
}

cgroups() {
  local controller
  for controller in /sys/fs/cgroup/*/; do
    [[ -e "$controller/cgroup.procs" ]] || continue
    mkdir -p "$controller$CGROUP"
    # a cpuset takes no process before it has processors and memory
    if [[ -e "$controller/cpuset.cpus" ]]; then
      cat "$controller/cpuset.cpus" >"$controller$CGROUP/cpuset.cpus"
      cat "$controller/cpuset.mems" >"$controller$CGROUP/cpuset.mems"
    fi
  done
}

# A token of this run; everything listens on the loopback of this namespace alone.
credentials() {
  local token
  token="$(head -c 24 /dev/urandom | base64 | tr -d '+/=')"
  (
    umask 077
    openssl genrsa -out "$STATE/service-account.key" 2048 2>/dev/null
    echo "$token,admin,admin,system:masters" >"$STATE/tokens.csv"
    echo "$token" >"$STATE/token"
    sed "s|TOKEN|$token|" kubeconfig.yaml >"$KUBECONFIG"
  )
}

control_plane() {
  local bin="$KUBERNETES_BIN"
  start etcd etcd --data-dir "$STATE/data/etcd" --unsafe-no-fsync \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380
  start kube-apiserver "$bin/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --bind-address 127.0.0.1 \
    --advertise-address "$BRIDGE" --endpoint-reconciler-type none --secure-port 6443 --cert-dir "$STATE/data/certificates" \
    --token-auth-file "$STATE/tokens.csv" --authorization-mode AlwaysAllow --service-cluster-ip-range "$SERVICE_NETWORK" \
    --service-account-issuer https://cluster.test --service-account-key-file "$STATE/service-account.key" \
    --service-account-signing-key-file "$STATE/service-account.key"
  wait_for 60 "the API server" kubectl get --raw /readyz
  start kube-controller-manager "$bin/kube-controller-manager" --kubeconfig "$KUBECONFIG" --bind-address 127.0.0.1 \
    --leader-elect=false --service-account-private-key-file "$STATE/service-account.key" \
    --root-ca-file "$STATE/data/certificates/apiserver.crt" --horizontal-pod-autoscaler-sync-period=5s
  start kube-scheduler "$bin/kube-scheduler" --kubeconfig "$KUBECONFIG" --bind-address 127.0.0.1 --leader-elect=false
}

worker() {
  local bin="$KUBERNETES_BIN"
  sed "s|STATE|$STATE|g" containerd.toml >"$STATE/containerd.toml"
  sed "s|STATE|$STATE|g; s|DNS_ADDRESS|$DNS_ADDRESS|g; s|CGROUP|$CGROUP|g" kubelet.yaml >"$STATE/kubelet.yaml"
  sed "s|STATE|$STATE|g" proxy.yaml >"$STATE/proxy.yaml"
  mkdir -p "$STATE/cni"
  sed "s|POD_NETWORK|$POD_NETWORK|g; s|BRIDGE|$BRIDGE|g" cni.conflist >"$STATE/cni/pods.conflist"
  start containerd containerd --config "$STATE/containerd.toml"
  wait_for 30 containerd ctr --address /run/containerd/containerd.sock version
  pause_image
  start kubelet "$bin/kubelet" --config "$STATE/kubelet.yaml" --kubeconfig "$KUBECONFIG" --hostname-override localhost \
    --container-runtime remote --container-runtime-endpoint unix:///run/containerd/containerd.sock
  start kube-proxy "$bin/kube-proxy" --config "$STATE/proxy.yaml"
}

# What the autoscaler goes by.
metrics() {
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=metrics.kube-system.svc -keyout "$STATE/metrics.key" \
    -out "$STATE/metrics.crt" 2>/dev/null
  start metrics python3 ../metrics.py "$BRIDGE" "$METRICS_PORT" "$STATE/token" "$STATE/metrics.crt" "$STATE/metrics.key"
  sed "s|BRIDGE|$BRIDGE|g; s|METRICS_PORT|$METRICS_PORT|g" metrics.yaml | kubectl apply --filename - >/dev/null
}

# The container that holds a pod's network: a program that waits for ever.
pause_image() {
  local folder="$STATE/data/pause"
  mkdir -p "$folder"
  (cd pause && GO111MODULE=off CGO_ENABLED=0 GOCACHE="$STATE/data/go" go build -ldflags '-s -w' -o "$folder/pause" pause.go)
  printf 'FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n' >"$folder/Containerfile"
  ../import.sh localhost/pause:1 "$folder"
}

trap 'exit 0' TERM
mounts
network
cgroups
credentials
control_plane
start dns python3 ../dns.py "$DNS_ADDRESS" "$STATE/token" "$BRIDGE"
worker
metrics
# the shell collects whoever is left without a parent
while :; do
  sleep 3600 &
  wait "$!" || true
done
