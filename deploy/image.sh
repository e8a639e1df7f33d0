#!/usr/bin/env bash
# Builds the image without any registry: compiles here, and puts the result into the last stage of the Containerfile.
# Needs buildah.
#
#   deploy/image.sh [--tag NAME] [--profile PROFILE] [--archive FILE]
#
# NAME is localhost/mcpproxy:VERSION unless given; FILE gets the image in the form that `docker load`, `podman load`
# and `ctr images import` read. IMAGE_BUILDAH holds options for buildah, for machines where its defaults do not work.
set -euo pipefail
cd "$(dirname "$0")/.."

tag="" profile=release archive=""
while [[ $# -gt 0 ]]; do
  case "$1" in
    --tag) tag="$2" ;;
    --profile) profile="$2" ;;
    --archive) archive="$2" ;;
    *) sed -n '2,8s/^# \?//p' "$0" >&2; exit 2 ;;
  esac
  shift 2
done
tag="${tag:-localhost/mcpproxy:$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n1)}"
read -r -a options <<<"${IMAGE_BUILDAH:-}"

context="$(mktemp -d)"
trap 'rm -rf "$context"' EXIT
deploy/image/root.sh "$context/root" "$profile"
{
  echo 'FROM scratch AS build'
  echo 'COPY root/ /out/'
  sed -n '/^FROM scratch/,$p' deploy/Containerfile
} >"$context/Containerfile"
buildah "${options[@]}" build --isolation chroot --quiet --file "$context/Containerfile" --tag "$tag" "$context"
if [[ -n "$archive" ]]; then
  rm -f "$archive"
  buildah "${options[@]}" push --quiet "$tag" "docker-archive:$archive:$tag"
fi
echo "$tag"
