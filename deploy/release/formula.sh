#!/usr/bin/env bash
# Fills in the Homebrew formula for the archives of a release, from their checksums.
#
#   deploy/release/formula.sh FOLDER URL      FOLDER has the archives; URL is where they will be; prints the formula
set -euo pipefail

folder="$1" url="${2%/}"
cd "$(dirname "$0")/../.."

version="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n1)"
formula="$(<deploy/release/mcpproxy.rb.in)"
formula="${formula//@VERSION@/$version}"
formula="${formula//@URL@/$url}"
formula="${formula//@HOME@/${url%/releases/*}}"
for target in x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-apple-darwin aarch64-apple-darwin; do
  file="$folder/mcpproxy-$version-$target.tar.gz.sha256"
  [[ -s "$file" ]] || { echo "formula.sh: $file is missing: make it with deploy/release/archive.sh" >&2; exit 1; }
  read -r digest _ <"$file"
  formula="${formula//@$target@/$digest}"
done
printf '%s\n' "$formula"
