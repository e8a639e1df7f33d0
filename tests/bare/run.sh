#!/usr/bin/env bash
# README's commands on a machine with nothing but Debian, Rust and make, each on one of its own, so that what one command
# installs cannot hide what the other needs. Prints how long each took, from nothing.
#
#   tests/bare/run.sh [demo|test|all|ci]      all (demo, then test) unless said otherwise; ci runs .ci/run, without make
#
# The machine is a root folder made from Debian's packages, in namespaces of its own for mounts and processes
# (tests/bare/inside.sh). Its tree is a clone of HEAD; its toolchain is this machine's, without tools that cargo installed.
# From this machine it has the mirror of Debian, and what apt, cargo, npm and pip need to reach theirs: configuration,
# certificates, proxies. It shares the network.
#
# Needs root, Debian, and a toolchain of rustup. KEEP=1 keeps the root folders; they are in BARE_DIR (/var/tmp), which needs
# 10 GB.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/common.sh
source tests/common.sh

readonly SUITE=bookworm
# What package clients read to reach their registries.
readonly CONFIGURATIONS=(/etc/npmrc /usr/local/etc/npmrc /root/.npmrc /etc/pip.conf /root/.config/pip/pip.conf
  /root/.pip/pip.conf /root/.cargo/config.toml /etc/hosts /etc/resolv.conf)

machine=""

# The mounts are in the machine's namespace, so they vanish with its last process, and what is removed is folders only.
finish() {
  local code=$?
  if [[ -n "$machine" ]]; then
    # the machine's first process, which takes every other one with it
    pkill -KILL --parent "$machine" || kill -KILL "$machine" || true
    wait "$machine" || true
  fi
  if [[ "${KEEP:-}" == 1 ]]; then say "kept: $work"; else rm -rf --one-file-system "$work"; fi
  exit "$code"
}

# The lines of sources.list for Debian itself: this machine's mirrors, no others' packages.
sources() {
  local own
  own="$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)"
  # shellcheck disable=SC2016 # apt's own
  apt-get indextargets 'Created-By: Packages' 'Origin: Debian' --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' |
    awk -v own="$own" -v suite="$SUITE" '$4 == "main" && sub("^" own, suite, $3)' | sort -u
}

# make_base FOLDER PACKAGE...: Debian, with what every machine has of this one.
make_base() {
  local base="$1" mirror file proxy='' packages="${*:2}"
  sources >"$work/sources.list"
  mirror="$(awk -v suite="$SUITE" '$3 == suite { print $2; exit }' "$work/sources.list")"
  [[ -n "$mirror" ]] || die "apt knows no mirror of Debian here: apt-get update"
  eval "$(apt-config shell proxy Acquire::http::Proxy)"
  say "making a Debian ($SUITE) of ${packages// /, }"
  http_proxy="${proxy:-${http_proxy:-}}" debootstrap --variant=minbase --include="${packages// /,}" \
    "$SUITE" "$base" "$mirror" >"$work/debootstrap.log" 2>&1 ||
    { tail -n 20 "$work/debootstrap.log" >&2; die "debootstrap failed"; }
  cp "$work/sources.list" "$base/etc/apt/sources.list"
  apt-config dump Acquire | grep --invert-match '^Acquire::IndexTargets' >"$base/etc/apt/apt.conf.d/99machine"
  for file in "${CONFIGURATIONS[@]}"; do
    if [[ -f "$file" ]]; then install -D --mode "$(stat --format %a "$file")" "$file" "$base$file"; fi
  done
  mkdir -p "$base/usr/local/share/ca-certificates"
  find -L /usr/local/share/ca-certificates -name '*.crt' -exec cp --target-directory "$base/usr/local/share/ca-certificates" {} +
  chroot "$base" update-ca-certificates >"$work/certificates.log" 2>&1 || { cat "$work/certificates.log" >&2; die "no certificates"; }
  git clone --quiet --no-hardlinks . "$base/root/mcpproxy"
}

# on_a_machine NAME COMMAND...: runs it in the clone, and says how long it took.
on_a_machine() {
  local name="$1" began took outcome code=0
  shift
  cp --archive "$work/base" "$work/$name"
  say "$name: $*"
  began=$SECONDS
  unshare --mount --pid --fork --propagation private --kill-child \
    tests/bare/inside.sh "$work/$name" "$(rustc --print sysroot)" "$@" </dev/null &
  machine=$!
  wait "$machine" || code=$?
  machine=""
  took=$((SECONDS - began))
  if [[ $code -eq 0 ]]; then outcome=passed; else outcome="failed with $code" failed=1; fi
  results+=("$(printf '%-5s %2d min %2d s, %s' "$name" $((took / 60)) $((took % 60)) "$outcome")")
  say "${results[-1]}"
  if [[ "${KEEP:-}" != 1 ]]; then rm -rf --one-file-system "${work:?}/$name"; fi
}

demo() { on_a_machine demo env DEMO_CHECK=1 DEMO_PORT=18580 DEMO_ADMIN_PORT=18589 make demo; }
tests() { on_a_machine test make test; }

what="${1:-all}" packages=(ca-certificates make) results=() failed=0
case "$what" in
  demo | test | all) ;;
  ci) packages=(ca-certificates) ;;
  *) sed -n '2,13p' "$0" | sed 's/^# \?//' >&2; exit 2 ;;
esac
[[ "$(id -u)" -eq 0 ]] || die "making a root folder takes root"
deploy/needs.sh rust git pkill:procps debootstrap
[[ "$(rustc --print sysroot)" != /usr && -x "$(rustc --print sysroot)/bin/cargo" ]] || die "the toolchain is not one of rustup"
unshare --mount --pid --fork true || die "this machine makes no namespaces"

work="$(mktemp -d "${BARE_DIR:-/var/tmp}/mcpproxy-bare.XXXXXX")"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
chmod 755 "$work"
make_base "$work/base" "${packages[@]}"
case "$what" in
  demo) demo ;;
  test) tests ;;
  all) demo; tests ;;
  ci) on_a_machine ci env CI=true bash .ci/run ;;
esac
printf '%s\n' "${results[@]}"
[[ "$failed" -eq 0 ]]
