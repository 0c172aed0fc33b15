"""The program that builds a holder: the namespaces in which everything runs that touches a repository.

It starts as root, with a description on its standard input (`HolderPlan` in `holder.py`), and prints the pid of the
holder's first process. That process has:

- its own pid, mount, ipc, uts and cgroup namespaces, the network namespace of the plan, and a cgroup with limits;
- a read-only root file system in memory: /usr of the machine, a generated /etc, and the folders that the plan lists;
- a user namespace in which root is an unprivileged id of the machine. It can mount things there, which podman needs,
  but what root mounted before is locked: it can be neither unmounted nor made writable. It is inside another one, in
  which nothing runs, and whose limits of the kernel the holder cannot change.

It is run as a file, by root, with Python's isolated mode: it imports nothing but the standard library.
"""

import ctypes
import json
import os
import signal
import stat
import sys
from typing import Any

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x20000, 0x2000000, 0x4000000
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x2, 0x4, 0x8
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
ATTRIBUTE_RDONLY, ATTRIBUTE_NOSUID, ATTRIBUTE_NODEV, ATTRIBUTE_IDMAP = 0x1, 0x2, 0x4, 0x100000
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC, MOVE_MOUNT_F_EMPTY_PATH = 0x1, 0x80000, 0x4
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
MNT_DETACH = 2
DISK_OPTIONS = "discard,noinit_itable,errors=remount-ro"
"""The file of a disk gives space back when files are deleted, and inode tables that are not in use stay unwritten."""
PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 38, 1, 4
IDS = 65536
MAX_USER_NAMESPACES = 256
LOCKS = "/etc/fairlead/locks"
"""Files of the holder that are in place of those which podman locks in image stores of others."""
STORE_FOLDERS = ("overlay", "overlay-images", "overlay-layers")
"""What podman reads of an image store of others. Beside them is what belongs to the podman that writes there."""

FOLDERS = (
    *("/usr", "/etc/ssl/certs", "/etc/alternatives", "/proc", "/sys", "/dev/pts", "/dev/shm", "/dev/mqueue"),
    *("/tmp", "/var", "/run", "/root", "/old"),
)
MACHINE_FOLDERS = ("/usr", "/etc/ssl/certs", "/etc/alternatives")
"""What programs need of the machine, read-only. None of it is secret: private keys are elsewhere."""
HIDDEN_FOLDERS = ("/sys/devices/virtual/block", "/sys/fs/ext4")
"""Anyone can read there which files loop devices have: the disks of all workspaces, with their uids."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}

_libc = ctypes.CDLL(None, use_errno=True)


class MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def main() -> None:
    plan: dict[str, Any] = json.load(sys.stdin)
    join_cgroups(plan["cgroups"]["roots"])
    join_cgroups(plan["cgroups"]["disk"])
    unshare(CLONE_NEWPID)
    ready_reader, ready_writer = os.pipe()
    mapped_reader, mapped_writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready_reader)
        os.close(mapped_writer)
        become_holder(plan, ready_writer, mapped_reader)
    os.close(ready_writer)
    os.close(mapped_reader)
    if os.read(ready_reader, 1) != b"1":
        os.waitpid(pid, 0)
        sys.exit(1)
    join_cgroups(plan["cgroups"]["tools"])  # as the holder has: a group with processes cannot limit those below it
    for path, value in plan["cgroups"]["settings"]:
        with open(path, "w") as file:
            file.write(value)
    write_map(f"/proc/{pid}", f"0 {plan['first_uid']} {IDS}\n")
    os.write(mapped_writer, b"1")
    if os.read(ready_reader, 1) != b"1":  # what enters the holder earlier would be in the outer user namespace
        os.waitpid(pid, 0)
        sys.exit(1)
    print(pid, flush=True)


def become_holder(plan: dict[str, Any], ready: int, mapped: int) -> None:
    """Never returns. The map of the user namespace is written by the parent: only it has the privilege."""
    os.setsid()
    cgroup_mounts = list_cgroup_mounts(plan["cgroups"]["roots"])
    enter_network(plan["network"])
    unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)
    join_cgroups(plan["cgroups"]["tools"])
    name = plan["hostname"].encode()
    check(_libc.sethostname(name, len(name)), "sethostname")
    mount("", "/", "", MS_REC | MS_PRIVATE)
    build_root(plan, cgroup_mounts)
    first_uid = plan["first_uid"]
    os.setgroups([])
    os.setresgid(first_uid, first_uid, first_uid)
    os.setresuid(first_uid, first_uid, first_uid)
    check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    unshare(CLONE_NEWUSER)
    os.write(ready, b"1")
    if os.read(mapped, 1) != b"1":
        os._exit(1)
    become_root()
    limit_namespaces(plan["max_networks"])
    enter_inner_namespace()
    become_root()
    os.write(ready, b"1")
    silent = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silent, descriptor)
    os.closerange(3, 4096)
    os.environ.clear()
    os.execv("/usr/bin/catatonit", ["catatonit", "-P"])  # reaps what loses its parent, and does nothing else


def become_root() -> None:
    """Of the user namespace. Others of it may then look at the process in /proc, which a change of ids prevents."""
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    check(_libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "dumpable")


def limit_namespaces(networks: int) -> None:
    """In this user namespace and all that are made in it. Networks have tables that the kernel has once, such as that
    of neighbours: one with very many of them takes the machine off its own network."""
    limits = {"max_net_namespaces": networks, "max_user_namespaces": MAX_USER_NAMESPACES}
    for name, value in limits.items():
        with open(f"/proc/sys/user/{name}", "w") as file:
            file.write(str(value))


def enter_inner_namespace() -> None:
    """With the same ids. Only a process that stays outside may write the map."""
    own = os.getpid()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        if os.read(reader, 1) == b"1":
            write_map(f"/proc/{own}", f"0 0 {IDS}\n")
            os._exit(0)
        os._exit(1)
    os.close(reader)
    unshare(CLONE_NEWUSER | CLONE_NEWNS)
    os.write(writer, b"1")
    os.close(writer)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError("the map of the inner user namespace cannot be written")


# --- the root file system ---------------------------------------------------------------------------------------------


def build_root(plan: dict[str, Any], cgroup_mounts: list[tuple[str, str, str]]) -> None:
    root, first_uid = plan["root"], plan["first_uid"]
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=16m")
    for folder in FOLDERS:
        os.makedirs(root + folder)
    for entry in os.scandir("/"):
        if entry.is_symlink() and os.readlink(entry.path).startswith("usr/"):
            os.symlink(os.readlink(entry.path), f"{root}/{entry.name}")
    for folder in MACHINE_FOLDERS:
        if os.path.isdir(folder):
            bind(folder, root + folder, ATTRIBUTE_RDONLY | ATTRIBUTE_NOSUID | ATTRIBUTE_NODEV)
    for path, text in plan["files"].items():
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        with open(root + path, "w") as file:
            file.write(text)
        os.chmod(root + path, 0o755 if text.startswith("#!") else 0o644)
    mount_kernel(root, plan["devices"], cgroup_mounts)
    for folder, size, mode in (("/dev/shm", "64m", 1777), ("/tmp", "64m", 1777), ("/run", "64m", 755)):
        options = f"mode={mode},size={size},uid={first_uid},gid={first_uid}"
        mount("tmpfs", root + folder, "tmpfs", MS_NOSUID | MS_NODEV, options)
    disks = mount_disks(root, plan["disks"], first_uid)
    for each in plan["binds"]:
        attributes = ATTRIBUTE_NOSUID | ATTRIBUTE_NODEV | (ATTRIBUTE_RDONLY if each["read_only"] else 0)
        source = each["source"]
        if each["disk"]:
            source = make_folder(disks[each["disk"]], source, each["mode"], first_uid)
        os.makedirs(root + each["target"], exist_ok=True)
        bind(source, root + each["target"], attributes)
    for store in plan["image_stores"]:
        source = os.path.join(disks.get(store["disk"], ""), store["source"])
        whole = f"{root}/store"
        os.mkdir(whole)
        bind_with_ids(source, whole, f"{store['first_uid']} {first_uid} {IDS}\n", root)
        show_images(whole, root + store["target"], root + LOCKS + store["target"])
        check(_libc.umount2(whole.encode(), MNT_DETACH), f"umount {whole}")  # what was bound stays
        os.rmdir(whole)
    for path in disks.values():  # what was bound stays
        check(_libc.umount2(path.encode(), MNT_DETACH), f"umount {path}")
        os.rmdir(path)
    enter_root(root)


def show_images(store: str, target: str, own: str) -> None:
    """Shows those folders of an image store that podman needs to read images of others, with files of the holder in
    place of those that podman locks there. To lock a file needs no more than to read it: who could lock those of the
    store, its database included, would keep the podman that writes there, for all workspaces, waiting for ever.

    The store belongs to another holder, so no link in it is followed."""
    os.makedirs(own)
    os.makedirs(target)
    folder = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
    present = {entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)}
    for name in STORE_FOLDERS:
        if name not in present:
            continue
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        os.mkdir(f"{target}/{name}")
        mount(f"/proc/self/fd/{inner}", f"{target}/{name}", "", MS_BIND)
        os.close(inner)
        cover_locks(f"{target}/{name}", own)
    os.close(folder)


def cover_locks(shown: str, own: str) -> None:
    folder = os.open(shown, os.O_RDONLY | os.O_DIRECTORY)
    names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(".lock")]
    for name in names:
        covered = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
        if stat.S_ISREG(os.fstat(covered).st_mode):
            path = f"{own}/{len(os.listdir(own))}"
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            mount(path, f"/proc/self/fd/{covered}", "", MS_BIND)
        os.close(covered)
    os.close(folder)


def mount_disks(root: str, devices: dict[str, str], first_uid: int) -> dict[str, str]:
    """Where each disk is mounted for now, by its file. One that is mounted elsewhere already keeps its options."""
    found = {}
    for number, (file, device) in enumerate(devices.items()):
        path = f"{root}/disk{number}"
        os.mkdir(path)
        mount(device, path, "ext4", MS_NOSUID | MS_NODEV, f"{DISK_OPTIONS},resuid={first_uid}")
        found[file] = path
    return found


def make_folder(disk: str, path: str, mode: int, owner: int) -> str:
    """A folder of a disk. Those above it belong to the machine's root, so that there are no links among them."""
    made = f"{disk}/{path}"
    os.makedirs(made, mode=0o700, exist_ok=True)
    if os.lstat(made).st_uid == 0:  # new, or made by a program that was killed just then
        os.chmod(made, mode)
        os.chown(made, owner, owner, follow_symlinks=False)
    return made


def mount_kernel(root: str, devices: list[str], cgroup_mounts: list[tuple[str, str, str]]) -> None:
    """/proc, /sys and /dev. The kernel lets containers mount a /proc of their own only where all of one is visible."""
    quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC
    for name in (*(f"/dev/{each}" for each in DEVICES), *devices):
        os.makedirs(os.path.dirname(root + name), exist_ok=True)
        os.close(os.open(root + name, os.O_CREAT | os.O_WRONLY))
        mount(name, root + name, "", MS_BIND)
    for name, target in LINKS.items():
        os.symlink(target, f"{root}/dev/{name}")
    mount("proc", f"{root}/proc", "proc", quiet)
    mount("sysfs", f"{root}/sys", "sysfs", quiet | MS_RDONLY)
    for folder in HIDDEN_FOLDERS:
        if os.path.isdir(root + folder):
            mount("tmpfs", root + folder, "tmpfs", quiet | MS_RDONLY, "mode=555,size=4k,nr_inodes=1")
    mount("devpts", f"{root}/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    if all(path != "/sys/fs/cgroup" for path, _, _ in cgroup_mounts):
        mount("tmpfs", f"{root}/sys/fs/cgroup", "tmpfs", quiet, "mode=755,size=1m")
    for path, kind, options in cgroup_mounts:
        os.makedirs(root + path, exist_ok=True)
        mount("cgroup", root + path, kind, quiet, options)


def join_cgroups(folders: list[str]) -> None:
    for folder in folders:
        with open(f"{folder}/cgroup.procs", "w") as file:
            file.write("0")


def list_cgroup_mounts(roots: list[str]) -> list[tuple[str, str, str]]:
    """Path, type and options of the machine's, in both versions of cgroups, as far as the holder has groups of its own
    there."""
    found = []
    with open("/proc/self/mountinfo") as lines:
        for line in lines:
            before, _, after = line.partition(" - ")
            kind, _, options = after.split()
            if kind in ("cgroup", "cgroup2") and any(each.startswith(before.split()[4] + "/") for each in roots):
                chosen = [each for each in options.split(",") if each not in ("rw", "ro")]
                found.append((before.split()[4], kind, ",".join(chosen) if kind == "cgroup" else ""))
    return found


def enter_root(root: str) -> None:
    os.chdir(root)
    check(_libc.syscall(SYS_PIVOT_ROOT[os.uname().machine], b".", b"old"), "pivot_root")
    os.chdir("/")
    check(_libc.umount2(b"/old", MNT_DETACH), "umount of the machine's root")
    set_attributes(AT_FDCWD, "/", 0, ATTRIBUTE_RDONLY)


# --- system calls -----------------------------------------------------------------------------------------------------


def check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    check(_libc.unshare(flags), "unshare")


def enter_network(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    check(_libc.setns(descriptor, CLONE_NEWNET), f"setns {path}")
    os.close(descriptor)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    check(_libc.mount(*arguments), f"mount {source} at {target}")


def bind(source: str, target: str, attributes: int) -> None:
    mount(source, target, "", MS_BIND | MS_REC)
    mount("", target, "", MS_REC | MS_PRIVATE)
    set_attributes(AT_FDCWD, target, AT_RECURSIVE, attributes)


def set_attributes(descriptor: int, path: str, flags: int, attributes: int, user_namespace: int = 0) -> None:
    value = MountAttributes(attributes, 0, 0, user_namespace)
    result = _libc.syscall(
        SYS_MOUNT_SETATTR, descriptor, path.encode(), flags, ctypes.byref(value), ctypes.sizeof(value)
    )
    check(result, f"mount_setattr {path}")


def bind_with_ids(source: str, target: str, id_map: str, root: str) -> None:
    """Mounts a folder read-only, with the owners of its files changed as the map says: no file is copied for that.

    Root does so while it sees the machine. The folder may be in one that belongs to another holder: if a registry has
    taken that over, by a fault of podman, there may be a link in its place."""
    folder = os.open(source, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH
    tree = check(_libc.syscall(SYS_OPEN_TREE, folder, b"", flags), f"open_tree {source}")
    os.close(folder)
    with_ids = ATTRIBUTE_IDMAP | ATTRIBUTE_RDONLY | ATTRIBUTE_NOSUID | ATTRIBUTE_NODEV
    child, namespace = start_user_namespace(id_map, f"{root}/proc")
    try:
        set_attributes(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, with_ids, namespace)
        arguments = (SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), MOVE_MOUNT_F_EMPTY_PATH)
        check(_libc.syscall(*arguments), f"move_mount {target}")
    finally:
        os.close(tree)
        os.close(namespace)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def start_user_namespace(id_map: str, proc: str) -> tuple[int, int]:
    """A process in a user namespace with this map, and the open namespace. `proc` shows the pids of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        unshare(CLONE_NEWUSER)
        os.write(writer, b"1")
        signal.pause()
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    write_map(f"{proc}/{child}", id_map)
    return child, os.open(f"{proc}/{child}/ns/user", os.O_RDONLY)


def write_map(process: str, id_map: str) -> None:
    for name in ("uid_map", "gid_map"):
        with open(f"{process}/{name}", "w") as file:
            file.write(id_map)


if __name__ == "__main__":
    main()
