#!/usr/bin/env bash
# Upgrades from another release to this one and goes back, replica by replica and under load (tests/it/upgrade).
#
#   tests/upgrade/run.sh [REVISION]      of git; the newest tag before this commit unless said otherwise
#
# That release is checked out and built in target/upgrade, which later runs use again.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/common.sh
source tests/common.sh

from="${1:-$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || true)}"
[[ -n "$from" ]] || die "there is no tag before this commit to upgrade from: make upgrade-test FROM=<git revision>"
commit="$(commit_of "$from")"
folder="$(realpath -m target/upgrade)"

check_out "$commit" "$folder/source"
say "building $from ($(git log -1 --format='%h %cs' "$commit"))"
(cd "$folder/source" && CARGO_TARGET_DIR="$folder/build" cargo build --locked --bin mcpproxy)
say "upgrading from it, and going back"
MCPPROXY_TEST_RELEASE_BEFORE="$folder/build/debug/mcpproxy" \
  cargo nextest run --test it --run-ignored only --no-capture -E 'test(/^upgrade::/)'
