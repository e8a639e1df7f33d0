#!/usr/bin/env bash
# Writes what the program is made of: every crate in it, with version and digest, as CycloneDX.
#
#   deploy/sbom.sh [FILE]      target/sbom.cdx.json, unless said otherwise
set -euo pipefail
cd "$(dirname "$0")/.."

file="${1:-${CARGO_TARGET_DIR:-target}/sbom.cdx.json}"
name="sbom-$$"
trap 'rm -f "$name.json"' EXIT
# cargo-cyclonedx writes beside Cargo.toml
cargo cyclonedx --quiet --format json --target "$(rustc -vV | sed -n 's/^host: //p')" --override-filename "$name"
mkdir -p "$(dirname "$file")"
mv "$name.json" "$file"
python3 - "$file" <<'PY'
import json, sys

components = json.load(open(sys.argv[1]))["components"]
names = {component["name"] for component in components}
# the crates that stand for what the program does, and one that only tests use
assert {"rustls", "sqlx", "hyper", "rmcp"} <= names and "proptest" not in names, sorted(names)
print(f"{sys.argv[1]}: {len(components)} crates")
PY
