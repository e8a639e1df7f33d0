#!/usr/bin/env bash
# The part of run.sh that runs in namespaces of its own: makes ROOT the root folder, and runs the command in its clone.
#
#   tests/bare/inside.sh ROOT SYSROOT COMMAND...
set -euo pipefail

root="$1" sysroot="$2"
shift 2

# Variables that say how registries are reached; nothing else of the environment passes.
readonly PASSED='^((https?|no)_proxy|(HTTPS?|NO)_PROXY|SSL_CERT_(FILE|DIR)|(CURL|REQUESTS)_CA_BUNDLE|NODE_EXTRA_CA_CERTS'\
'|PIP_(CERT|DEFAULT_TIMEOUT|(EXTRA_)?INDEX_URL|TRUSTED_HOST)|(NPM_CONFIG|npm_config)_(REGISTRY|registry|CAFILE|cafile)'\
'|CARGO_(HTTP|NET|REGISTRY|REGISTRIES|SOURCE)_.*)$'

# a mount point, as the root of a machine is
mount --bind "$root" "$root"
mkdir -p "$root/opt/rust"
mount --bind "$sysroot" "$root/opt/rust"
mount --options remount,bind,ro "$root/opt/rust"
mount --types proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount --types tmpfs tmpfs "$root/dev/shm"

environment=(HOME=/root LANG=C.UTF-8 "PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
for name in $(compgen -e | grep --extended-regexp "$PASSED" || true); do environment+=("$name=${!name}"); done

cd "$root"
mkdir -p mnt/outside
pivot_root . mnt/outside
cd /root/mcpproxy
umount --lazy /mnt/outside
rmdir /mnt/outside
# not in the place of this process: the first one has orphans to reap, which bash does
env --ignore-environment "${environment[@]}" "$@"
