#!/usr/bin/env bash
# Installs the programs that tests and benchmarks use: `setup-tools.sh kubectl postgresql wrk`.
#
#   kubectl       the newest one of Debian that runs on this machine, in .tools/bin; the one on the PATH is not used
#   kubectl-1.32  the one of Debian 13: many users have a version that is some releases old
#   kubectl-1.20  the one of Debian 12, which is years old and still in use
#   postgresql    the database server; Debian installs it outside of the PATH
#   etcd          the etcd server
#   etcdctl       the client of etcd, a separate package in Debian
#   faketime      libfaketime, for tests with clocks that jump
#   wrk           the load generator of the benchmarks
#
# kubectl needs no root permissions. The others are installed by root only; for other users, the script prints the packages.
# Tests of a program that is missing are skipped, with a reason. With CI=true, a missing program is an error.
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
        missing "no $program on the PATH; install it (Debian: apt-get install $package) to run the tests that need it"
        return
    fi
    say "installing $package"
    scripts/apt-install.sh "$package" || missing "could not install $package; tests that need $program are skipped"
}

# `fetch_kubectl NAME PACKAGE SUITE...`: .tools/bin/NAME from the first of the suites whose kubectl runs on this machine.
# The one of the newest suite may need a newer C library.
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
    missing "could not fetch $name; copy one to .tools/bin/$name to run the tests that need it"
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
        *) say "error: unknown tool $tool; see the list in $0"; exit 2 ;;
    esac
done
