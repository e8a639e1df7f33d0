#!/usr/bin/env bash
# Ends the cluster. Its first process takes every other one with it, and with the last of them go its network, its rules
# and its mounts; what remains are cgroups, which are empty then. Logs stay in the state folder.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=tests/cluster/settings.sh
source ./settings.sh

# the deepest first; those of other controllers' mounts are the same folder
remove_cgroups() {
  local folder
  for folder in /sys/fs/cgroup/*/"$CGROUP"; do
    if [[ -d "$folder" && ! -L "${folder%/*}" ]]; then
      find "$folder" -depth -type d -exec rmdir {} +
    fi
  done
}

cgroups_are_gone() { remove_cgroups && ! compgen -G "/sys/fs/cgroup/*/$CGROUP" >/dev/null; }

if is_up; then
  pid="$(node_pid)"
  kill -KILL "$pid"
  is_gone() { ! kill -0 "$pid"; }
  wait_for 20 "the end of the cluster" is_gone
fi
rm -f "$STATE/node.pid"
wait_for 20 "the end of its cgroups" cgroups_are_gone
rm -rf "$STATE/data"
say "the cluster is gone"
