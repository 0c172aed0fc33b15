#!/usr/bin/env bash
# Brings the programs that tests and benchmarks talk to: `setup-tools.sh kubectl postgresql wrk`.
#
#   kubectl       the newest that Debian has and that runs here, in .tools/bin; what is on the PATH does not matter
#   kubectl-1.32  that of Debian 13, beside it: the version that most people have is some releases older
#   kubectl-1.20  that of Debian 12, which is years older and still in use
#   postgresql    the database server; Debian keeps its programs outside of the PATH
#   etcd          the same for etcd
#   etcdctl       etcd's client, which Debian has in a package of its own
#   faketime      libfaketime, for clocks that jump
#   wrk           the load generator of the benchmarks
#
# Each kubectl is fetched as an ordinary user, too; the others are installed by root, and otherwise named.
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

# `fetch_kubectl NAME PACKAGE SUITE...`: .tools/bin/NAME from the first of the suites whose kubectl runs on this machine.
# That of the newest suite may want a newer C library.
fetch_kubectl() {
    local name=$1 package=$2 suite home
    shift 2
    if [[ -x .tools/bin/$name ]]; then return; fi
    mkdir -p .tools/bin
    for suite in "$@"; do
        home=.tools/debian-$suite
        say "fetching kubectl of Debian $suite into .tools"
        if scripts/fetch-debian-package.sh "$suite" "$package" "$home" &&
            "$home/usr/bin/kubectl" version --client >/dev/null; then
            ln -sfn "../debian-$suite/usr/bin/kubectl" ".tools/bin/$name"
            return
        fi
    done
    missing "could not fetch $name; put one into .tools/bin/$name to run what needs it"
}

for tool in "$@"; do
    case "$tool" in
        kubectl) fetch_kubectl kubectl kubectl sid testing trixie ;;
        kubectl-1.32) fetch_kubectl kubectl-1.32 kubectl trixie ;;
        kubectl-1.20) fetch_kubectl kubectl-1.20 kubernetes-client bookworm ;;
        postgresql) compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || install_package initdb postgresql ;;
        etcd) install_package etcd etcd-server ;;
        etcdctl) install_package etcdctl etcd-client ;;
        faketime) install_package faketime faketime ;;
        wrk) install_package wrk wrk ;;
        *) say "error: no tool is called $tool; see the list in $0"; exit 2 ;;
    esac
done
