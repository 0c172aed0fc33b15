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
#   chromium      the headless browser that tests of the web console use, and a font
#   axe           the accessibility rules of axe-core, in .tools/axe
#   console       Biome and TypeScript, which check the code of the console, in .tools/console
#   podman        podman with runc, for workspaces; with netavark, for the tests of the container image
#   qemu          the emulator that builds and runs containers of other architectures; only `make test-container` uses it
#   vm            the emulator of virtual machines; only `make test-cgroup2` uses it
#   devcontainer  the dev container CLI, in .tools/bin; with a Node.js 20 of its own if that of the machine is older
#   oidc          the OpenID provider `oidc-provider` for tests of single sign-on, in .tools/oidc-provider
#   promtool      the tool of Prometheus that tests its rules, in .tools/bin
#   helm          the Helm that the server deploys charts with, pinned by digest, in .tools/bin
#   zsh, fish     shells, for tests of the completion
#   python-3.14   the newest Python that is supported, of Debian unstable, with the locked dependencies, in .tools/python3.14
#   workspace     the image that tests of workspaces use, in .tools/images
#
# kubectl, promtool and Python need no root permissions. The others are installed by root only; for other users, the script prints the packages.
# Tests of a program that is missing are skipped, with a reason. With CI=true or REQUIRED=true, a missing program is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null; }
missing() {
    if [[ "${CI:-}" == true || "${REQUIRED:-}" == true ]]; then say "error: $*"; exit 1; fi
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

# The package has the server as well, which is not needed.
fetch_promtool() {
    local home=.tools/prometheus suite
    if [[ -x .tools/bin/promtool ]]; then return; fi
    mkdir -p .tools/bin
    for suite in bookworm trixie; do
        say "fetching promtool of Debian $suite into .tools"
        if scripts/fetch-debian-package.sh "$suite" prometheus "$home" && "$home/usr/bin/promtool" --version >/dev/null 2>&1; then
            rm -f "$home/usr/bin/prometheus"
            ln -sfn ../prometheus/usr/bin/promtool .tools/bin/promtool
            return
        fi
    done
    missing "could not fetch promtool; copy one to .tools/bin/promtool to run the tests that need it"
}

# Not from Debian, which has none. HELM_ARCHIVE and HELM_URL name copies of the archive.
fetch_helm() {
    if [[ -x .tools/bin/helm ]]; then return; fi
    if ! python3 deploy/container/fetch_helm.py .tools/bin/helm; then
        missing "could not fetch Helm; any helm of 3.8 or newer on the PATH will do, and nothing else needs it"
    fi
}

# The dev container CLI needs Node.js 20. `npm` brings it, too, where the machine has an older one.
install_devcontainer() {
    local home=.tools/devcontainer packages=("@devcontainers/cli@0.89.0") version
    if [[ -x .tools/bin/devcontainer ]]; then return; fi
    install_package npm npm
    have npm || return 0
    version="$(node --version 2>/dev/null || echo v0)"
    version="${version#v}"
    if [[ ${version%%.*} -lt 20 ]]; then packages+=("node@20"); fi
    say "installing the dev container CLI into .tools"
    mkdir -p .tools/bin
    if ! npm install --loglevel=error --no-fund --no-audit --prefix "$home" "${packages[@]}" >"$home.log" 2>&1; then
        missing "could not install the dev container CLI; see $home.log"
        return
    fi
    if [[ ${#packages[@]} == 2 ]]; then ln -sfn "../devcontainer/node_modules/.bin/node" .tools/bin/node; fi
    ln -sfn "../devcontainer/node_modules/@devcontainers/cli/devcontainer.js" .tools/bin/devcontainer
}

# The rules of axe-core, which the accessibility tests of the console run in the browser.
install_axe() {
    local home=.tools/axe
    if [[ -s $home/node_modules/axe-core/axe.min.js ]]; then return; fi
    install_package npm npm
    have npm || return 0
    say "installing axe-core into .tools"
    mkdir -p "$home"
    npm install --loglevel=error --no-fund --no-audit --prefix "$home" axe-core@4 >"$home.log" 2>&1 ||
        missing "could not install axe-core; see $home.log"
}

# `install_locked NAME FOLDER`: packages of npm in the versions of the lock in a folder, into .tools/NAME.
install_locked() {
    local name=$1 home=.tools/$1 source=$2
    if cmp --silent "$source/package-lock.json" "$home/installed.json"; then return; fi
    install_package npm npm
    have npm || return 0
    say "installing $name into .tools"
    mkdir -p "$home"
    cp "$source/package.json" "$source/package-lock.json" "$home"
    if ! (cd "$home" && npm ci --loglevel=error --no-fund --no-audit) >"$home.log" 2>&1; then
        missing "could not install the packages of $source; see $home.log"
        return
    fi
    cp "$source/package-lock.json" "$home/installed.json"
}

install_podman() {
    local packages=(podman runc conmon netavark aardvark-dns iptables iproute2 catatonit mmdebstrap git)
    if have podman && have runc && have mmdebstrap && have catatonit && have ip && [[ -x /usr/lib/podman/netavark ]]; then
        return
    fi
    if [[ $(id -u) != 0 ]] || ! have apt-get; then
        missing "no podman with runc and netavark; install ${packages[*]} to run the tests of workspaces"
        return
    fi
    say "installing ${packages[*]}"
    scripts/apt-install.sh "${packages[@]}" || missing "could not install podman; tests of workspaces are skipped"
}

install_chromium() {
    local packages=(chromium-headless-shell fonts-dejavu-core)
    if have chromium-headless-shell; then return; fi
    if [[ $(id -u) != 0 ]] || ! have apt-get; then
        missing "no chromium-headless-shell on the PATH; install ${packages[*]} to run the tests of the web console"
        return
    fi
    say "installing ${packages[*]}"
    scripts/apt-install.sh "${packages[@]}" || missing "could not install chromium; tests of the web console are skipped"
}

install_vm() {
    case "$(uname -m)" in
        aarch64) install_package qemu-system-aarch64 qemu-system-arm ;;
        *) install_package qemu-system-x86_64 qemu-system-x86 ;;
    esac
}

build_workspace_image() {
    if [[ $(id -u) != 0 ]] || ! have podman || ! have mmdebstrap; then
        missing "the image for tests of workspaces needs root, podman and mmdebstrap"
        return
    fi
    if [[ ! -s .tools/workspace-image.tar ]]; then say "building the image for tests of workspaces, once"; fi
    scripts/build-workspace-image.sh || missing "could not build the image for tests of workspaces"
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
        chromium) install_chromium ;;
        axe) install_axe ;;
        console) install_locked console scripts/console ;;
        oidc) install_locked oidc-provider tests/sso/providers/npm ;;
        promtool) fetch_promtool ;;
        helm) fetch_helm ;;
        zsh) install_package zsh zsh ;;
        fish) install_package fish fish ;;
        python-3.14) scripts/setup-python.sh 3.14 sid || missing "could not set up Python 3.14; its tests are skipped" ;;
        podman) install_podman ;;
        qemu) install_package qemu-aarch64-static qemu-user-static ;;
        vm) install_vm ;;
        devcontainer) install_devcontainer ;;
        workspace) build_workspace_image ;;
        *) say "error: unknown tool $tool; see the list in $0"; exit 2 ;;
    esac
done
