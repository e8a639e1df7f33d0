#!/usr/bin/env bash
# Lays out what an installation has: the program, its manual pages, and completions for bash, zsh and fish.
#
#   deploy/release/files.sh BINARY FOLDER      FOLDER is the prefix, such as /usr/local; what it has else stays
set -euo pipefail

binary="$(cd "$(dirname "$1")" && pwd)/$(basename "$1")" folder="$2"
install -d "$folder/bin" "$folder/share/man/man1"
install -m 755 "$binary" "$folder/bin/mcpproxy"

pages="$(mktemp -d)"
trap 'rm -rf "$pages"' EXIT
"$binary" man "$pages"
install -m 644 "$pages"/*.1 "$folder/share/man/man1/"

completion() { # SHELL FILE
  install -d "$folder/share/$(dirname "$2")"
  "$binary" completions "$1" >"$pages/completion"
  install -m 644 "$pages/completion" "$folder/share/$2"
}
completion bash bash-completion/completions/mcpproxy
completion zsh zsh/site-functions/_mcpproxy
completion fish fish/vendor_completions.d/mcpproxy.fish
