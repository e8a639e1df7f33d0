#!/usr/bin/env bash
# Builds the parts of a one-node Kubernetes from Debian's source package into the cache; a second run finds them there.
# Debian 12's `kubernetes` is the whole upstream tree although its packaging builds the client alone; newer ones are not.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=tests/cluster/settings.sh
source ./settings.sh

readonly SOURCES=/etc/apt/sources.list.d/debian.sources
# what Debian 12 has, whatever fixes it has got since
readonly UPSTREAM_VERSION='1.20.5+really1.20.2'
readonly COMMANDS=(kube-apiserver kube-controller-manager kubelet kube-scheduler kube-proxy)

# Debian's list of sources beside the machine's own lists, so that those stay as they are.
# It verifies what it downloads with the same keys.
private_apt() {
  apt-get -qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/apt/parts" \
    -o "Dir::State::Lists=$work/apt/lists" -o APT::Sandbox::User=root "$@"
}

download() {
  [[ -f "$SOURCES" ]] || die "$SOURCES is not there: the cluster is built from the sources of Debian 12"
  mkdir -p "$work/apt/parts" "$work/apt/lists/partial"
  sed 's/^Types:.*/Types: deb-src/' "$SOURCES" >"$work/apt/parts/debian.sources"
  private_apt update
  (cd "$work" && private_apt source --download-only kubernetes)
  compgen -G "$work/kubernetes_$UPSTREAM_VERSION-*.dsc" >/dev/null ||
    die "this Debian has another Kubernetes than $UPSTREAM_VERSION: $(cd "$work" && echo *.dsc)"
}

unpack() {
  mkdir -p "$GOPATH/src/k8s.io"
  # applies Debian's patches too
  dpkg-source --no-check --extract "$work"/kubernetes_*.dsc "$tree" >/dev/null
}

# The one file that upstream's release process makes first; without it kube-apiserver does not compile.
generate_openapi() {
  local packages
  go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  mapfile -t packages < <(
    grep --recursive --files-with-matches --include='*.go' '+k8s:openapi-gen=true' pkg staging vendor/k8s.io |
      xargs --max-args=1 dirname | sed 's|^staging/src/||; s|^vendor/||; s|^pkg/|k8s.io/kubernetes/pkg/|' | sort --unique
  )
  "$work/openapi-gen" --go-header-file hack/boilerplate/boilerplate.generatego.txt \
    --input-dirs "$(IFS=,; echo "${packages[*]}")" --output-base "$GOPATH/src" \
    --output-package k8s.io/kubernetes/pkg/generated/openapi --output-file-base zz_generated.openapi \
    --report-filename "$work/openapi-violations"
}

# What the parts call themselves, and helm goes by; upstream sets it when it releases. `/version` is answered by the
# aggregator, from the second file.
set_version() {
  local file
  for file in staging/src/k8s.io/{component-base,client-go/pkg}/version/base.go; do
    sed --in-place 's/^\tgitMajor .*/\tgitMajor = "1"/; s/^\tgitMinor .*/\tgitMinor = "20"/
      s/^\tgitVersion .*/\tgitVersion = "v1.20.2"/' "$file"
    grep --quiet '^.gitVersion = "v1.20.2"' "$file" || die "the version is not where it was in $file"
  done
}

compile() {
  local command
  for command in "${COMMANDS[@]}"; do
    say "building $command"
    go build -ldflags "-s -w" -o "$work/bin/$command" "./cmd/$command"
  done
}

if [[ -f "$KUBERNETES_BIN/complete" ]]; then
  exit 0
fi
work="$CACHE/build"
rm -rf "$work"
mkdir -p "$work/bin"
# module mode would want other versions than the vendored ones
export GOPATH="$work/go" GOCACHE="$work/go-cache" GO111MODULE=off CGO_ENABLED=0 GOFLAGS=
tree="$GOPATH/src/k8s.io/kubernetes"

say "downloading Debian's source of Kubernetes"
download
unpack
cd "$tree"
say "building it: about 7 minutes of processor time"
generate_openapi
set_version
compile
rm -rf "$KUBERNETES_BIN"
mv "$work/bin" "$KUBERNETES_BIN"
touch "$KUBERNETES_BIN/complete"
rm -rf "$work"
