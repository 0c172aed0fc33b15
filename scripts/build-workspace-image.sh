#!/usr/bin/env bash
# Builds the image that the tests of workspaces use, without a registry: a small Debian with git, Python, sshd and a user
# `dev`. It is kept in an image store of its own, .tools/images, from which the tests read it. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."

name=localhost/workspace
archive=.tools/workspace-image.tar
store=$PWD/.tools/images
export CONTAINERS_STORAGE_CONF=$store/storage.conf

build_archive() {
    local excluded=() folder
    for folder in doc man locale i18n info zoneinfo lintian; do
        excluded+=("--dpkgopt=path-exclude=/usr/share/$folder/*")
    done
    # The format is named: it would be guessed from the file name, and `.new` means a folder.
    mmdebstrap --quiet --format=tar --variant=minbase "${excluded[@]}" \
        --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
        --include=usr-is-merged,git,python3-minimal,openssh-server,curl,ca-certificates,procps,iproute2 \
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io \
        --customize-hook='chroot "$1" useradd -m -u 1000 -s /bin/bash dev' \
        --customize-hook='cd "$1"; rm -rf var/lib/apt/lists/* var/cache/apt/* var/log/apt etc/ssh/ssh_host_*' \
        --customize-hook='cd "$1"; rm -rf usr/lib/*/gconv usr/lib/*/perl usr/share/perl usr/lib/*/libperl.so*' \
        bookworm "$archive.new" >"$archive.log" 2>&1 || { tail -n 5 "$archive.log" >&2; exit 1; }
    mv "$archive.new" "$archive"
}

mkdir -p "$store"
cat >"$CONTAINERS_STORAGE_CONF" <<SETTINGS
[storage]
driver = "overlay"
graphroot = "$store/storage"
runroot = "$store/run"
SETTINGS
if podman image exists "$name"; then exit; fi
if [[ ! -s $archive ]]; then build_archive; fi
podman import --quiet --change 'CMD ["bash"]' --change 'USER dev' "$archive" "$name:latest" >/dev/null
