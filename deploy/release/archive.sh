#!/usr/bin/env bash
# Makes the archive of a release for this machine, with its checksum: program, manual pages, completions, licence.
# On Linux the program is static.
#
#   deploy/release/archive.sh FOLDER [PROFILE]      PROFILE of cargo: release, unless said otherwise; prints the archive
set -euo pipefail

mkdir -p "$1"
folder="$(cd "$1" && pwd)" profile="${2:-release}"
cd "$(dirname "$0")/../.."

version="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n1)"
host="$(rustc -vV | sed -n 's/^host: //p')"
name="mcpproxy-$version-$host"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

if [[ "$host" == *-linux-* ]]; then
  deploy/image/root.sh "$work/root" "$profile" >&2
  binary="$work/root/mcpproxy"
else
  cargo build --locked --profile "$profile" --bin mcpproxy >&2
  binary="${CARGO_TARGET_DIR:-target}/$profile/mcpproxy"
fi
deploy/release/files.sh "$binary" "$work/$name"
install -m 644 LICENSE README.md CHANGELOG.md "$work/$name/"

# root's: whoever unpacks it as root would give the program to the user that had the number of the one who made it
owner=(--owner=0 --group=0 --numeric-owner)
if tar --version | grep -q bsdtar; then owner=(--uid 0 --gid 0 --uname '' --gname ''); fi
# tar of macOS adds files with extended attributes otherwise
COPYFILE_DISABLE=1 tar -C "$work" "${owner[@]}" -czf "$folder/$name.tar.gz" "$name"
checksum() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }
(cd "$folder" && checksum "$name.tar.gz" >"$name.tar.gz.sha256")
echo "$folder/$name.tar.gz"
