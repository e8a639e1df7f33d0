#!/usr/bin/env bash
# Checks what a release is made of: `make install`, the archive of this machine, and the Homebrew formula.
#
#   tests/release/check.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/common.sh
source tests/common.sh

out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
fail() {
  echo "check.sh: $*" >&2
  exit 1
}

say "make install"
make --no-print-directory install PROFILE=dev DESTDIR="$out/root" PREFIX=/usr
has() { # FOLDER
  local file
  for file in bin/mcpproxy share/man/man1/mcpproxy.1 share/man/man1/mcpproxy-key-rotate.1 \
    share/bash-completion/completions/mcpproxy share/zsh/site-functions/_mcpproxy share/fish/vendor_completions.d/mcpproxy.fish; do
    [ -s "$1/$file" ] || fail "$1 has no $file"
  done
  bash -n "$1/share/bash-completion/completions/mcpproxy"
}
has "$out/root/usr"

# shellcheck disable=SC2088 # a literal ~ is what make gets from most shells
if make --no-print-directory install PROFILE=dev DESTDIR="$out/tilde" PREFIX='~/.local' >/dev/null 2>"$out/refused"; then
  fail "make install takes a literal ~ for a folder"
fi
# shellcheck disable=SC2016 # the line as it is printed
grep -qF 'make install PREFIX="$HOME/.local"' "$out/refused" || fail "make install does not say what to give instead of ~"

say "the archive"
archive="$(deploy/release/archive.sh "$out/archives" image-check)"
(cd "$out/archives" && sha256sum --check --quiet ./*.sha256)
owners="$(tar --numeric-owner -tvzf "$archive" | awk '{ print $2 }' | sort -u)"
[ "$owners" = 0/0 ] || fail "the files of the archive are of $owners, not of root"
tar -C "$out" -xzf "$archive"
unpacked="$out/$(basename "$archive" .tar.gz)"
has "$unpacked"
version="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n1)"
[ "$("$unpacked/bin/mcpproxy" --version)" = "mcpproxy $version" ] || fail "the program says another version than $version"

say "the formula"
url=https://example.com/releases/v$version
if deploy/release/formula.sh "$out/archives" "$url" >/dev/null 2>"$out/refused"; then fail "a formula without all archives"; fi
grep -q "is missing: make it with deploy/release/archive.sh" "$out/refused"
for target in x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-apple-darwin aarch64-apple-darwin; do
  file="$out/archives/mcpproxy-$version-$target.tar.gz.sha256"
  [ -e "$file" ] || echo "$(printf '%064d' 0)  $(basename "$file" .sha256)" >"$file"
done
formula="$(deploy/release/formula.sh "$out/archives" "$url/")"
if grep -q '@' <<<"$formula"; then fail "the formula has places that are not filled in"; fi
read -r digest _ <"$archive.sha256"
grep -qF "sha256 \"$digest\"" <<<"$formula" || fail "the formula lacks the checksum of this machine's archive"
grep -qF "url \"$url/$(basename "$archive")\"" <<<"$formula" || fail "the formula lacks the address of this machine's archive"
echo "a release is as it should be"
