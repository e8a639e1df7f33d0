#!/usr/bin/env bash
# Builds an image from a folder with a Containerfile and gives it to the cluster's containerd.
#
#   tests/cluster/import.sh NAME FOLDER        within the cluster's namespaces
set -euo pipefail
name="$1" folder="$2"
work="$(mktemp -d /run/import-XXXXXX)"
trap 'rm -rf "$work"' EXIT
storage=(--root "$work/root" --runroot "$work/runroot" --storage-driver vfs)
buildah "${storage[@]}" build --isolation chroot --quiet --tag "$name" "$folder" >/dev/null
buildah "${storage[@]}" push --quiet "$name" "docker-archive:$work/image.tar:$name"
ctr --address /run/containerd/containerd.sock --namespace k8s.io images import "$work/image.tar" >/dev/null
