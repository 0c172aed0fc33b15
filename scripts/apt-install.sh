#!/usr/bin/env bash
# Installs Debian packages as root, quietly: `apt-install.sh package...`. The package lists are fetched only when
# the first try fails, because a fresh container has none and a settled machine need not wait for them.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

install() { apt-get install --yes --quiet --quiet --no-install-recommends "$@"; }

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
if install "$@" >"$log" 2>&1; then exit; fi
if { apt-get update --quiet --quiet && install "$@"; } >"$log" 2>&1; then exit; fi
cat "$log" >&2
exit 1
