#!/usr/bin/env bash
# Installs what the cluster test takes from Debian.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=tests/cluster/settings.sh
source ./settings.sh

# program:package
readonly NEEDED=(
  go:golang-go dpkg-source:dpkg-dev etcd:etcd-server containerd:containerd runc:runc iptables:iptables
  conntrack:conntrack socat:socat ethtool:ethtool buildah:buildah unzip:unzip ip:iproute2 python3:python3
  /usr/lib/cni/bridge:containernetworking-plugins
)

missing=()
for entry in "${NEEDED[@]}"; do
  command -v "${entry%%:*}" >/dev/null || missing+=("${entry#*:}")
done
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
if [[ ${#missing[@]} -gt 0 ]]; then
  say "installing ${missing[*]}"
  apt-get update -qq
  # no service is started by its installation
  RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
