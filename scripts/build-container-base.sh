#!/usr/bin/env bash
# Makes the two base images of tests of the container, without a registry: `build-container-base.sh FOLDER [ARCHITECTURE]`
# writes base.tar, a Debian that has nothing but Python, not even a shell, and build.tar, one with a shell, venv and strip.
# Needs root. ARCHITECTURE is Debian's name, such as arm64. Programs of another architecture than this machine's run during
# the installation, so qemu must be registered for them.
set -euo pipefail
if [[ $# -lt 1 || $# -gt 2 ]]; then echo "usage: $0 FOLDER [ARCHITECTURE]" >&2; exit 2; fi
folder=$1
architecture=${2:-$(dpkg --print-architecture)}
mkdir -p "$folder"

make_base() {
    local target=$1 variant=$2 packages=$3 excluded=() name
    if [[ -s $folder/$target ]]; then return; fi
    for name in doc man locale i18n info lintian; do excluded+=("--dpkgopt=path-exclude=/usr/share/$name/*"); done
    # Its check for an emulator needs one more package. Without an emulator, the first program that is run fails.
    mmdebstrap --quiet --architectures="$architecture" --skip=check/qemu --format=tar --variant="$variant" "${excluded[@]}" --include="$packages" \
        --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --dpkgopt=force-unsafe-io \
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
        --customize-hook='cd "$1"; rm -rf var/lib/apt/lists/* var/cache/apt/* var/log/apt var/lib/dpkg/info usr/share/doc usr/share/man usr/share/locale' \
        bookworm "$folder/$target.new" >"$folder/$target.log" 2>&1 || { tail -n 5 "$folder/$target.log" >&2; exit 1; }
    mv "$folder/$target.new" "$folder/$target"
}

make_base base.tar extract python3,tzdata
make_base build.tar apt python3-venv,binutils
