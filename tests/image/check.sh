#!/usr/bin/env bash
# Builds the image and runs it the way the chart does: without root, rights or a writable file, against a real Postgres
# and a real MCP server, both over TLS and found by name. Everything but the build happens in namespaces of its own.
#
#   tests/image/check.sh [PROFILE]      of cargo; image-check unless said otherwise, which compiles in half the time
#
# Needs root. MCPPROXY_SKIP_IMAGE=1 passes it over, for machines that can run no
# containers.
set -euo pipefail
PATH="$PATH:/usr/sbin"
cd "$(dirname "$0")/../.."
# shellcheck source=tests/common.sh
source tests/common.sh

if [[ "${MCPPROXY_SKIP_IMAGE:-}" == 1 ]]; then
  echo "the image is not tested: MCPPROXY_SKIP_IMAGE is 1"
  exit 0
fi
[[ "$(id -u)" -eq 0 ]] || die "running containers takes root here; MCPPROXY_SKIP_IMAGE=1 passes this test over"
deploy/needs.sh rust c node python postgres buildah podman runc conmon openssl ip
unshare --net --mount --pid --fork true || die "this machine makes no namespaces; MCPPROXY_SKIP_IMAGE=1 passes this test over"

profile="${1:-image-check}"
tools="$(realpath -m "${MCPPROXY_TEST_TOOLS:-${CARGO_TARGET_DIR:-target}/tmp/demo}")"
deploy/demo/setup.sh "$tools"
work="$(mktemp -d)"
# the address of each cgroup that podman makes, which outlives it
parent="mcpproxy-image-$$"
finish() {
  local folder
  for folder in /sys/fs/cgroup/*/"$parent"; do
    if [[ -d "$folder" ]]; then find "$folder" -depth -type d -exec rmdir {} + || true; fi
  done
  rm -rf "$work"
}
trap finish EXIT
chmod 755 "$work"
say "building the image (profile $profile)"
IMAGE_BUILDAH="--root $work/images --runroot $work/images-run --storage-driver vfs" \
  deploy/image.sh --tag localhost/mcpproxy:check --profile "$profile" >"$work/build.log" 2>&1 ||
  { tail -n 20 "$work/build.log" >&2; die "the image could not be built"; }
unshare --net --mount --pid --fork --mount-proc --propagation private --kill-child \
  tests/image/inside.sh "$work" "$parent" "$tools/venv/bin/python" "$profile"
echo "the image: passed"
