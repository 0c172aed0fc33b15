#!/usr/bin/env bash
# Unpacks one package of a Debian suite into a folder: `fetch-debian-package.sh trixie kubectl .tools/kubectl-1.32`.
# With --with-dependencies, all packages that it depends on are unpacked as well, down to the C library.
#
# The suite may be newer or older than that of the machine. Nothing is installed, and no root permissions are needed: apt
# gets its own state, cache and sources, in a temporary folder next to the target, and does not change those of the
# machine. The mirror is taken from the machine's sources, and its index must be signed with Debian's archive keys.
set -euo pipefail

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# The archives in the machine's sources, in both formats of source files. An archive with the machine's own release comes
# first; archives for security updates contain no other packages.
list_archives() {
    local codename
    codename="$(. /etc/os-release && echo "${VERSION_CODENAME:-}")"
    apt-get update --print-uris 2>/dev/null | sed -nE "s#^'(.*)/dists/([^']+)/(In)?Release(\.gpg)?'.*#\2 \1#p" |
        awk -v own="$codename" '$1 !~ /security/ { print ($1 == own ? 0 : 1), NR, $2 }' |
        sort -n | awk '!seen[$3]++ { print $3 }'
}

# The machine's apt settings apply (proxy, certificates), except for its sources, its preferences, and the commands that
# it runs after an update.
write_apt_settings() {
    local work=$1
    mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/debs/partial"
    touch "$work/status"
    cat >"$work/apt.conf" <<SETTINGS
Dir::State "$work/state";
Dir::State::lists "$work/state/lists";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
Dir::Cache::archives "$work/debs";
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "$(id -un)";
APT::Default-Release "";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
Acquire::Retries "3";
#clear APT::Architectures;
APT::Architectures { "$(dpkg --print-architecture)"; };
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
SETTINGS
}

run_apt() {
    local work=$1
    shift
    (cd "$work/debs" && apt-get --config-file="$work/apt.conf" --quiet --quiet "$@")
}

download() {
    local work=$1 suite=$2 package=$3 archive
    for archive in $(list_archives); do
        echo "deb [signed-by=$keyring] $archive $suite main" >"$work/sources.list"
        if run_apt "$work" --error-on=any update && run_apt "$work" "${fetch[@]}" "$package"; then return; fi
    done
    return 1
}

fetch=(download)
if [[ "${1:-}" == --with-dependencies ]]; then
    fetch=(install --download-only --yes --no-install-recommends)
    shift
fi
[[ $# == 3 ]] || fail "usage: $0 [--with-dependencies] SUITE PACKAGE FOLDER"
suite=$1 package=$2 target=$3
command -v apt-get >/dev/null && command -v dpkg >/dev/null || fail "no apt-get here to fetch $package of Debian $suite with"
[[ -r $keyring ]] || fail "no $keyring to check Debian's signatures with; install debian-archive-keyring"

mkdir -p "$(dirname "$target")"
work="$(mktemp -d "$(cd "$(dirname "$target")" && pwd)/fetch.XXXXXX")"
trap 'rm -rf "$work"' EXIT
write_apt_settings "$work"
if ! download "$work" "$suite" "$package" >"$work/log" 2>&1; then
    tail -n 5 "$work/log" >&2
    fail "no archive among this machine's apt sources gave $package of Debian $suite"
fi
for archive in "$work"/debs/*.deb; do dpkg -x "$archive" "$work/tree"; done
chmod 755 "$work/tree"
rm -rf "$target"
mv "$work/tree" "$target"
