#!/usr/bin/env bash
# Brings the programs that tests and benchmarks talk to: `setup-tools.sh kubectl postgresql wrk`.
#
#   kubectl         any kubectl on the PATH; as root on Debian it is installed when there is none
#   kubectl-debian  Debian's own, which is years older, unpacked into .tools so that it never replaces a newer one
#   postgresql      the database server; Debian keeps its programs outside of the PATH
#   etcd            the same for etcd
#   faketime        libfaketime, for clocks that jump
#   wrk             the load generator of the benchmarks
#
# What cannot be had is noted and left out: its tests skip and say so. Under CI=true it is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null; }
missing() {
    if [[ "${CI:-}" == true ]]; then say "error: $*"; exit 1; fi
    say "note: $*"
}

install_package() {
    local program=$1 package=$2
    if have "$program"; then return; fi
    if [[ $(id -u) != 0 ]] || ! have apt-get; then
        missing "no $program on the PATH; install it (Debian: apt-get install $package) to run what needs it"
        return
    fi
    say "installing $package"
    scripts/apt-install.sh "$package" || missing "could not install $package; what needs $program is skipped"
}

# Downloads into the current folder. Needs package lists but not root, so that an ordinary user can have it too.
download_package() {
    if apt-get download --quiet --quiet "$1"; then return; fi
    [[ $(id -u) == 0 ]] && apt-get update --quiet --quiet && apt-get download --quiet --quiet "$1"
}

unpack_debian_kubectl() {
    local home=.tools/kubectl-debian work log
    if [[ -x .tools/bin/kubectl-debian ]]; then return; fi
    if ! have apt-get || ! have dpkg; then
        missing "no apt-get here, so the older kubectl of Debian cannot be fetched; its tests are skipped"
        return
    fi
    say "fetching Debian's kubectl into $home"
    mkdir -p .tools/bin
    work="$(mktemp -d .tools/fetch.XXXXXX)"
    log="$work/log"
    if (cd "$work" && download_package kubernetes-client) >"$log" 2>&1 && dpkg -x "$work"/*.deb "$work/tree" 2>>"$log"; then
        rm -rf "$home"
        mv "$work/tree" "$home"
        ln -sfn ../kubectl-debian/usr/bin/kubectl .tools/bin/kubectl-debian
        rm -rf "$work"
        return
    fi
    tail -n 3 "$log" >&2
    rm -rf "$work"
    missing "could not fetch Debian's kubernetes-client; its tests are skipped"
}

for tool in "$@"; do
    case "$tool" in
        kubectl) install_package kubectl kubernetes-client ;;
        kubectl-debian) unpack_debian_kubectl ;;
        postgresql) compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || install_package initdb postgresql ;;
        etcd) install_package etcd etcd-server ;;
        faketime) install_package faketime faketime ;;
        wrk) install_package wrk wrk ;;
        *) say "error: no tool is called $tool; see the list in $0"; exit 2 ;;
    esac
done
