#!/usr/bin/env bash
# Installs Debian packages as root, without output: `apt-install.sh package...`. The package lists are only updated if the
# first attempt fails: a fresh container has none, and on other machines the update would only take time.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

install() { apt-get install --yes --quiet --quiet --no-install-recommends "$@"; }

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
if install "$@" >"$log" 2>&1; then exit; fi
if { apt-get update --quiet --quiet && install "$@"; } >"$log" 2>&1; then exit; fi
cat "$log" >&2
exit 1
