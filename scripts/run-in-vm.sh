#!/usr/bin/env bash
# Runs a command of this checkout in a virtual machine with version 2 of cgroups alone: `run-in-vm.sh COMMAND...`. The
# checkout, .venv and what tests need of .tools are copied to a disk of the machine, at the same path. What the command
# prints appears here, and its exit code is that of the script. RUNTIME=runc leaves the machine without crun, INIT=small
# starts it without systemd, which is faster. As root.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# == 0 ]]; then echo "usage: $0 COMMAND..." >&2; exit 2; fi
project=$PWD
tools="$(realpath .tools)"
machine=$tools/vm
if [[ "$(realpath .venv/bin/python)" != /usr/bin/* ]]; then
    echo 'error: .venv has a Python that is not of Debian, which the virtual machine has; run: make clean, then PYTHON=/usr/bin/python3 make .venv/.installed-test' >&2
    exit 1
fi
init=
if [[ "${INIT:-}" == small ]]; then init=init=/usr/sbin/small-init; fi
scripts/build-vm.sh "$machine"

case "$(uname -m)" in
    aarch64) emulator=(qemu-system-aarch64 -machine virt) console=ttyAMA0 processor=cortex-a72 ;;
    x86_64) emulator=(qemu-system-x86_64 -machine q35) console=ttyS0 processor=Nehalem ;;
    *) echo "error: there is no virtual machine for $(uname -m)" >&2; exit 1 ;;
esac
# Emulated, a simple processor is much faster than one with every extension.
if [[ -w /dev/kvm ]]; then emulator+=(-accel kvm -cpu host); else emulator+=(-accel tcg,thread=multi -cpu "$processor"); fi

# Files are linked, where the file system allows that, until the disk is made of them.
copy() { cp --archive --link "$1" "$2" 2>/dev/null || { rm -rf "$2"; cp --archive "$1" "$2"; }; }

work="$(mktemp -d "$machine/run.XXXXXX")"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/disk/project/.tools"
# Compiled files, as far as there are some, spare the machine most of its work.
{ git ls-files --cached --others --exclude-standard -z; find fairlead tests -name '*.pyc' -print0; } |
    tar --create --null --files-from=- --file=- --ignore-failed-read 2>/dev/null |
    tar --extract --directory="$work/disk/project" --file=-
copy .venv "$work/disk/project/.venv"
for name in bin devcontainer images workspace-image.tar; do copy "$tools/$name" "$work/disk/project/.tools/$name"; done
cp "$(realpath "$(PATH=$PWD/.tools/bin:$PATH command -v node)")" "$work/disk/node"
{
    printf 'set -u\nmkdir -p %q\nmount --bind /task/project %q\ncd %q\n' "$project" "$project" "$project"
    printf 'export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb\n'
    if [[ "${RUNTIME:-}" == runc ]]; then echo 'rm /usr/bin/crun'; fi
    echo 'ln -s /task/node /usr/local/bin/node'
    printf '%q ' "$@"
    printf '</dev/null\necho "exit code: $?" | tee /dev/vport*p1 >/dev/null\n'
} >"$work/disk/run"
size="$(du --summarize --block-size=1M "$work/disk" | cut -f1)"
mke2fs -q -t ext4 -d "$work/disk" "$work/task.img" "$((size * 5 / 4 + 512))M" >/dev/null
rm -rf "$work/disk"

nice -n 10 "${emulator[@]}" -smp 2 -m 4G -display none -monitor none -serial stdio -no-reboot \
    -kernel "$machine/vmlinuz" -initrd "$machine/initrd.img" \
    -append "root=/dev/vda rw console=$console quiet systemd.show_status=false $init" \
    -drive "file=$machine/root.img,format=raw,if=none,id=root,snapshot=on" -device virtio-blk-pci,drive=root \
    -drive "file=$work/task.img,format=raw,if=none,id=task,cache=unsafe" -device virtio-blk-pci,drive=task \
    -netdev user,id=network,restrict=on -device virtio-net-pci,netdev=network,romfile= \
    -device virtio-serial-pci -chardev "file,id=result,path=$work/result" -device virtserialport,chardev=result,name=result \
    </dev/null | sed -u 's/\r$//'
code="$(sed -n 's/^exit code: //p' "$work/result")"
if [[ -z $code ]]; then echo 'error: the virtual machine ended before the command did; see its output above' >&2; exit 1; fi
exit "$code"
