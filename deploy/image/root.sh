#!/usr/bin/env bash
# Makes the files of the image: compiles the static binary, lays the rest beside it.
#
#   deploy/image/root.sh FOLDER [PROFILE]      PROFILE of cargo: release, unless said otherwise
set -euo pipefail

folder="$(realpath -m "$1")" profile="${2:-release}"
cd "$(dirname "$0")/../.."

# The roots that https upstreams are verified with.
roots="${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}"
[[ -s "$roots" ]] || { echo "no root certificates in $roots: install ca-certificates" >&2; exit 1; }

host="$(rustc -vV | sed -n 's/^host: //p')"
target="${CARGO_TARGET_DIR:-target}"
# glibc is linked in. With --target its flags do not reach procedural macros, which cannot be static.
RUSTFLAGS='-C target-feature=+crt-static' cargo build --locked --profile "$profile" --target "$host" --bin mcpproxy
binary="$target/$host/$profile/mcpproxy"
if readelf --program-headers "$binary" | grep --quiet INTERP; then
  echo "$binary wants a dynamic linker, which the image does not have" >&2
  exit 1
fi

mkdir -p "$folder/etc/ssl/certs"
install -m 755 "$binary" "$folder/mcpproxy"
install -m 644 "$roots" "$folder/etc/ssl/certs/ca-certificates.crt"
echo 'mcpproxy:x:10001:10001::/nonexistent:/nonexistent' >"$folder/etc/passwd"
echo 'mcpproxy:x:10001:' >"$folder/etc/group"
echo 'hosts: files dns' >"$folder/etc/nsswitch.conf"
chmod 644 "$folder"/etc/{passwd,group,nsswitch.conf}
