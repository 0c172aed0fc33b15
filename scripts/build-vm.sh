#!/usr/bin/env bash
# Makes a virtual machine with version 2 of cgroups alone, for `make test-cgroup2`: `build-vm.sh FOLDER` writes vmlinuz,
# initrd.img and root.img there, from Debian's packages of the release that this machine has, so that .venv works in it.
# It boots with systemd, as a real machine does, or with a small script, and has podman with runc and crun. Needs root.
# Nothing is installed on this machine, and nothing is done if the files are there and this script has not changed.
set -euo pipefail
if [[ $# != 1 ]]; then echo "usage: $0 FOLDER" >&2; exit 2; fi
mkdir -p "$1"
folder="$(cd "$1" && pwd)"
script="$(realpath "$0")"
if cmp --silent "$script" "$folder/built-by"; then exit; fi

architecture="$(dpkg --print-architecture)"
codename="$(. /etc/os-release && echo "$VERSION_CODENAME")"
packages=(
    usr-is-merged systemd systemd-sysv udev dbus kmod initramfs-tools zstd "linux-image-cloud-$architecture"
    podman runc crun conmon netavark aardvark-dns catatonit iptables iproute2 git openssh-client openssh-server
    python3 libstdc++6 procps ca-certificates curl
)
excluded=()
for name in doc man locale i18n info lintian; do excluded+=("--dpkgopt=path-exclude=/usr/share/$name/*"); done

# Runs before the kernel is installed, whose scripts make the initrd.
choose_modules='mkdir -p "$1/etc/initramfs-tools/conf.d"
echo MODULES=list >"$1/etc/initramfs-tools/conf.d/modules"
printf "%s\n" virtio_pci virtio_blk ext4 >"$1/etc/initramfs-tools/modules"'

# Starts the task without systemd, in a group as that of a service: an emulated processor needs minutes less.
write_small_init() {
    cat >"$1" <<'INIT'
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mountpoint -q /proc || mount -t proc proc /proc
mountpoint -q /sys || mount -t sysfs sysfs /sys
mountpoint -q /run || mount -t tmpfs tmpfs /run
mkdir -p /dev/pts /dev/shm
mountpoint -q /dev/pts || mount -t devpts devpts /dev/pts
mountpoint -q /dev/shm || mount -t tmpfs tmpfs /dev/shm
mount -t cgroup2 -o nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup
mount --make-rshared /
echo '+memory +pids' >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/system.slice/task.service
echo $$ >/sys/fs/cgroup/system.slice/task.service/cgroup.procs
modprobe -a virtio_net virtio_console overlay veth loop
ip link set lo up
for name in eth0 enp0s1; do
    ip link set "$name" up && ip address add 10.0.2.15/24 dev "$name" && ip route add default via 10.0.2.2
done 2>/dev/null
mount /dev/vdb /task
bash /task/run
sync
echo o >/proc/sysrq-trigger
sleep 60
INIT
    chmod 755 "$1"
}

configure() {
    local tree=$1
    echo cgroup2 >"$tree/etc/hostname"
    echo '127.0.0.1 localhost cgroup2' >"$tree/etc/hosts"
    rm -f "$tree/etc/resolv.conf"
    echo 'nameserver 10.0.2.3' >"$tree/etc/resolv.conf"
    printf '/dev/vda / ext4 defaults 0 0\n/dev/vdb /task ext4 defaults 0 0\n' >"$tree/etc/fstab"
    printf '[Match]\nType=ether\nKind=!veth\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n' \
        >"$tree/etc/systemd/network/machine.network"
    chroot "$tree" systemctl --quiet enable systemd-networkd
    chroot "$tree" systemctl --quiet mask getty.target ssh.service systemd-networkd-wait-online.service podman.service podman.socket
    cat >"$tree/etc/systemd/system/task.service" <<'UNIT'
[Unit]
Description=The task of this machine, which is turned off when it ends
After=network.target
SuccessAction=poweroff
FailureAction=poweroff
[Service]
Type=oneshot
ExecStart=/bin/bash /task/run
Environment=HOME=/root
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
TimeoutStartSec=infinity
[Install]
WantedBy=multi-user.target
UNIT
    chroot "$tree" systemctl --quiet enable task.service
    write_small_init "$tree/usr/sbin/small-init"
    mkdir -p "$tree/task" "$tree/etc/systemd/system.conf.d"
    # An emulated processor is slow.
    printf '[Manager]\nDefaultDeviceTimeoutSec=600\nDefaultTimeoutStartSec=600\n' >"$tree/etc/systemd/system.conf.d/slow.conf"
    printf '[Unit]\nSuccessAction=poweroff\nFailureAction=poweroff\n[Service]\nType=oneshot\nStandardOutput=tty\nTTYPath=/dev/console\nExecStart=journalctl --priority=warning --no-pager\n' \
        >"$tree/etc/systemd/system/emergency.service"
    rm -rf "$tree"/var/lib/apt/lists/* "$tree"/var/cache/apt/*
}

work="$(mktemp -d "$folder/build.XXXXXX")"
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
echo "making a virtual machine with Debian $codename in $folder" >&2
mmdebstrap --quiet --format=directory --variant=minbase "${excluded[@]}" --include="$(IFS=,; echo "${packages[*]}")" \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --dpkgopt=force-unsafe-io \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
    --essential-hook="$choose_modules" \
    "$codename" "$work/tree" >"$folder/build.log" 2>&1 || { tail -n 5 "$folder/build.log" >&2; exit 1; }
configure "$work/tree"
mv "$work"/tree/boot/vmlinuz-* "$folder/vmlinuz"
mv "$work"/tree/boot/initrd.img-* "$folder/initrd.img"
rm -f "$folder/root.img"
mke2fs -q -t ext4 -d "$work/tree" "$folder/root.img" 6G >/dev/null
cp "$script" "$folder/built-by"
