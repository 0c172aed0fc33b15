"""Code that has left its container, as root of the holder: what it tries on the machine fails.

Each probe is a command that runs as the tools of the workspace do. It prints `REACHED` if it gets somewhere.
"""

import asyncio
import time
from collections.abc import Iterator

import pytest

from fairlead.runner.engines.contract import ImageSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer.isolation.holder import MAX_INNER_BYTES, find_holder
from fairlead.runner.engines.devcontainer.isolation.namespaces import MAX_USER_NAMESPACES
from fairlead.runner.engines.devcontainer.isolation.workspace_holder import PRIVILEGED_NETWORKS
from fairlead.runner.engines.devcontainer.layout import open_folder
from tests.runner.harness.podman import IMAGE, Containers, list_groups
from tests.runner.harness.tasks import RecordedTask

UID = "401de7a7-0000-4000-8000-000000000001"
KERNEL = "core_pattern hostname domainname shmmax msgmax pid_max pty/max modprobe"
CGROUPS = "cpuset blkio none,name=systemd"
LIMITS_1 = (
    "*/box/*limit_in_bytes */box/pids.max */box/cpu.cfs_quota_us */box/memory.oom_control */box/freezer.state "
    "*/box/devices.allow */release_agent memory/cgroup.procs pids/cgroup.procs cpu/cgroup.procs devices/cgroup.procs"
)
LIMITS_2 = (
    "*.max box/*.max box/memory.high box/memory.oom.group box/cpu.weight box/cgroup.max.* box/cgroup.freeze "
    "box/cgroup.type cgroup.max.* cgroup.freeze cgroup.subtree_control tools/cgroup.procs tools/cgroup.subtree_control"
)
FREEZE = """
sleep 4247 >/dev/null 2>&1 &
for folder in /sys/fs/cgroup/freezer/box /sys/fs/cgroup/box; do
    mkdir "$folder/ice" 2>/dev/null || continue
    echo $! >"$folder/ice/cgroup.procs"
    if [ -e "$folder/ice/cgroup.freeze" ]; then echo 1 >"$folder/ice/cgroup.freeze"; fi
    if [ -e "$folder/ice/freezer.state" ]; then echo FROZEN >"$folder/ice/freezer.state"; fi
    echo frozen
done
"""
PROBES = {
    "settings of the kernel": f"for f in {KERNEL}; do echo 1 >/proc/sys/kernel/$f && echo REACHED $f; done",
    "settings of its network": "echo 1 >/proc/sys/net/ipv4/ip_forward && echo REACHED",
    "keys of the machine": "grep -v _ses /proc/keys | grep . && echo REACHED",
    "mounts that become writable": "for m in / /usr /sys /etc/ssl/certs /opt/fairlead/inside /images/0/overlay; do "
    "mount -o remount,bind,rw $m && echo REACHED $m; umount $m && echo REACHED $m; done",
    "file systems of the kernel": "for t in sysfs debugfs tracefs securityfs bpf configfs; do "
    "mount -t $t none /tmp && echo REACHED $t; done",
    "devices": "mknod /ws/disk b 8 0 && echo REACHED; unshare -Ur mknod /ws/disk b 8 0 && echo REACHED",
    "disks of others": "grep -rs . /sys/block/*/loop/backing_file /sys/class/block/*/loop/backing_file "
    "/sys/devices/virtual/block && echo REACHED; ls /sys/fs/ext4 | grep . && echo REACHED; "
    "umount /sys/devices/virtual/block && echo REACHED; umount /sys/fs/ext4 && echo REACHED",
    "its network": "ip address add 192.0.2.77 dev eth0 && echo REACHED; ip link set eth0 down && echo REACHED",
    "raw sockets and addresses of others": """python3 -c '
import socket
for number, (family, kind, protocol) in enumerate(((2, 3, 1), (17, 3, 0), (2, 2, 0))):
    try:
        opened = socket.socket(family, kind, protocol)
        if family == 2 and kind == 2:
            opened.setsockopt(0, 15, 1)  # IP_FREEBIND
            opened.bind(("192.0.2.77", 0))
            opened.sendto(b"x", ("192.0.2.78", 9))
        print("REACHED", number)
    except OSError as error:
        print(error)
'""",
    "limits": f"cd /sys/fs/cgroup; for f in {LIMITS_1} {LIMITS_2}; do "
    "if [ -e $f ]; then echo 0 >$f && echo REACHED $f; fi; done",
    "groups of the machine": f"unshare -m -C sh -c 'for o in {CGROUPS}; do mount -t cgroup -o $o x /tmp || continue; "
    "mkdir /tmp/x && echo REACHED; echo /x >/tmp/release_agent && echo REACHED; echo 1 >/tmp/cgroup.procs && "
    "echo REACHED; umount /tmp; done; mount -t cgroup2 x /tmp && ls /tmp | grep slice && echo REACHED'",
    "groups above its own": "cd /sys/fs/cgroup; for f in */cgroup.procs */tasks */cgroup.threads cgroup.procs "
    "*/cgroup.clone_children */notify_on_release */release_agent */memory.force_empty */memory.use_hierarchy "
    "*/memory.swappiness */memory.move_charge_at_immigrate cgroup.kill tools/cgroup.kill tools/cgroup.freeze; do "
    "if [ -e $f ] && [ $f != cgroup.procs ]; then echo 0 >$f && echo REACHED $f; fi; done; "
    "for d in */.. */../.. */box/../..; do mkdir $d/made && echo REACHED $d; done; mkdir */made made && echo REACHED",
    "groups of other workspaces": "cd /sys/fs/cgroup; ls -d */fairlead-* */../fairlead-* fairlead-* && echo REACHED; "
    "ls -d /proc/1/root/sys/fs/cgroup/*/fairlead-* && echo REACHED; "
    "grep -h fairlead- /proc/[0-9]*/cgroup && echo REACHED",
    "a program that the kernel starts when a group is empty": """cd /sys/fs/cgroup
for g in */box; do
    mkdir $g/nest || continue
    echo 1 >$g/nest/notify_on_release
    echo '|/bin/touch /tmp/released' >$g/nest/release_agent && echo REACHED agent of $g
    echo '|/bin/touch /tmp/released' >${g%/box}/release_agent && echo REACHED agent of ${g%/box}
    sh -c "echo \\$\\$ >$g/nest/cgroup.procs"
    rmdir $g/nest
done; sleep 0.5; [ ! -e /tmp/released ] || echo REACHED""",
    "threads in a group of their own": """cd /sys/fs/cgroup
for g in box memory/box pids/box; do
    [ -d $g ] || continue
    mkdir -p $g/threads
    if [ -e $g/cgroup.type ]; then echo threaded >$g/threads/cgroup.type && echo REACHED $g; fi
    rmdir $g/threads
done""",
    "a new view of the groups": "unshare -C -m sh -c 'for c in memory pids cpu devices freezer; do "
    "mount -t cgroup -o $c x /mnt 2>/dev/null || mount -t cgroup -o $c x /tmp || continue; "
    "cat /proc/self/cgroup | grep /../ && echo REACHED; ls /tmp | grep fairlead && echo REACHED; umount /tmp; done'",
    "networks of its own, which fill tables that the kernel has once": "unshare -n true && echo REACHED; "
    "unshare -Urn true && echo REACHED; echo 100 >/proc/sys/user/max_net_namespaces; unshare -n true && echo REACHED; "
    "unshare -Ur sh -c 'echo 100 >/proc/sys/user/max_net_namespaces; unshare -n true' && echo REACHED; "
    "nsenter --user=/proc/1/ns/user unshare -n true && echo REACHED",
    "open files of the machine": "for f in /proc/self/fd/*; do [ -d $f ] && [ $f/. -ef /proc/self/fd/. ] || "
    "case $(readlink $f) in /memfd:*|/proc/*|pipe:*|/dev/null|'') ;; *) echo REACHED $(readlink $f);; esac; done",
    "processes of the machine": "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep '[p]ytest' && echo REACHED",
    "another process while it enters": "for i in 1 2 3; do for p in /proc/[0-9]*; do "
    "case $(readlink $p/exe) in */nsenter) ls $p/root/var/tmp/workspaces-* && echo REACHED;; esac; done; done",
}


@pytest.fixture(scope="module")
def prepared(containers: Containers) -> Iterator[Containers]:
    engine = containers.engine()
    asyncio.run(engine.up(WorkspaceSpec(UID, "project", "demo", "mallory", ImageSource(IMAGE)), RecordedTask()))
    yield containers


@pytest.mark.parametrize("name", PROBES)
def test_root_of_a_holder_reaches_nothing_of_the_machine(prepared: Containers, name: str) -> None:
    seen = prepared.run(UID, "/bin/sh", "-c", PROBES[name], check=False)
    assert "REACHED" not in seen


def test_user_namespaces_have_a_limit_that_root_of_a_holder_cannot_change(prepared: Containers) -> None:
    script = """
echo 100000 >/proc/sys/user/max_user_namespaces
for i in $(seq 300); do unshare -U sleep 8 >/dev/null 2>&1 & done
sleep 4
ls -l /proc/[0-9]*/ns/user 2>/dev/null | sed 's/.*-> //' | sort -u | wc -l
"""
    assert 1 < int(prepared.run(UID, "/bin/sh", "-c", script)) <= MAX_USER_NAMESPACES


@pytest.mark.timeout(120)
async def test_a_privileged_workspace_can_have_a_few_networks_of_its_own(containers: Containers) -> None:
    uid = "401de7a7-0000-4000-8000-000000000009"
    spec = WorkspaceSpec(uid, "project", "demo", "ada", ImageSource(IMAGE), permissions=frozenset({"privileged"}))
    engine = containers.engine()
    await engine.up(spec, RecordedTask())
    script = """
for i in $(seq 40); do unshare -n sleep 6 >/dev/null 2>&1 & done
sleep 3
ls -l /proc/[0-9]*/ns/net 2>/dev/null | sed 's/.*-> //' | sort -u | wc -l
"""
    seen = await asyncio.to_thread(containers.run, uid, "/bin/sh", "-c", script)
    assert int(seen) == PRIVILEGED_NETWORKS + 1
    await engine.delete(uid, RecordedTask("cleanup"))


def test_the_probes_run_as_root_of_the_holder(prepared: Containers) -> None:
    assert prepared.run(UID, "/bin/sh", "-c", "id -u; mount -t tmpfs x /tmp && echo REACHED").split() == [
        "0",
        "REACHED",
    ]


# --- limits, from groups of its own -----------------------------------------------------------------------------------

ESCAPES = {
    "memory in nested groups": """
import os
base = "/sys/fs/cgroup/memory/box" if os.path.isdir("/sys/fs/cgroup/memory/box") else "/sys/fs/cgroup/box"
os.mkdir(base + "/nest")
for name in ("memory.limit_in_bytes", "memory.max", "memory.memsw.limit_in_bytes", "memory.oom_control"):
    path = f"{base}/nest/{name}"
    if os.path.exists(path):
        try:
            open(path, "w").write("1" if "oom" in name else str(64 << 30))
        except OSError:
            pass
open(base + "/nest/cgroup.procs", "w").write("0")
held = []
for number in range(40):
    held.append(bytearray(b"x") * (32 << 20))
    print(number + 1, flush=True)
""",
    "processes in nested groups": """
import os, time
base = "/sys/fs/cgroup/pids/box" if os.path.isdir("/sys/fs/cgroup/pids/box") else "/sys/fs/cgroup/box"
os.mkdir(base + "/many")
try:
    open(base + "/many/pids.max", "w").write("max")
except OSError:
    pass
open(base + "/many/cgroup.procs", "w").write("0")
count = 0
try:
    for _ in range(400):
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        count += 1
except OSError:
    pass
print(count, flush=True)
""",
}
REACHED = {"memory in nested groups": 256 // 32, "processes in nested groups": 128}
"""What the limits of the workspace allow at most, of 40 parts of 32 MiB and of 400 processes."""


@pytest.mark.parametrize("name", ESCAPES)
def test_groups_of_its_own_do_not_give_a_workspace_more_than_its_limits(prepared: Containers, name: str) -> None:
    """In the box. The tools, from which this begins, have more, and cannot give it to a container."""
    seen = prepared.run(UID, "python3", "-c", ESCAPES[name], check=False).split()
    assert seen and int(seen[-1]) <= REACHED[name], seen


MANY_GROUPS = """
import os
for folder in ("/sys/fs/cgroup/freezer/box", "/sys/fs/cgroup/box"):
    if os.path.isdir(folder):
        for number in range(10_000):
            try:
                os.mkdir(f"{folder}/many{number}")
            except OSError:  # version 2 has a limit
                break
"""


async def test_very_many_control_groups_of_a_workspace_do_not_hold_up_the_runner(prepared: Containers) -> None:
    uid = "401de7a7-0000-4000-8000-000000000002"
    engine = prepared.engine()
    await engine.up(WorkspaceSpec(uid, "project", "demo", "mallory", ImageSource(IMAGE)), RecordedTask())
    prepared.run(uid, "python3", "-c", MANY_GROUPS)
    deleting = asyncio.create_task(engine.delete(uid, RecordedTask("task-2")))
    longest, last = 0.0, time.monotonic()
    while not deleting.done():
        await asyncio.sleep(0.01)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    await deleting
    assert longest < 1.0
    assert list_groups(uid) == []


REPLACE_HEAD = """
printf '#!/bin/sh\\nyes "" | dd bs=1M count=15 iflag=fullblock 2>/dev/null\\n' >/ws/head
chmod 755 /ws/head
mount --bind /ws/head /usr/bin/head
/usr/bin/head | wc -c
umount /usr/bin/head
"""


async def test_programs_that_a_workspace_has_replaced_print_no_more_than_is_expected(prepared: Containers) -> None:
    holder = find_holder(open_folder(prepared.settings().state_folder, UID).holder)
    assert holder is not None
    assert (await holder.run("/bin/sh", "-c", REPLACE_HEAD)).output.split() == [str(15 << 20)]
    output = (await holder.run("/bin/sh", "-c", REPLACE_HEAD.replace(" | wc -c", ""))).output
    assert 0 < len(output) <= MAX_INNER_BYTES


DEEP_GROUPS = """
import os, time
parents = [f"/sys/fs/cgroup/{name}" for name in ("freezer/box", "memory/box", "pids/box", "box")]
for parent in filter(os.path.isdir, parents):
    os.chdir(parent)
    for _ in range(40):
        os.mkdir("x" * 200)
        os.chdir("x" * 200)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.closerange(0, 64)
        time.sleep(3600)
    os.close(writer)
    os.read(reader, 1)  # until it has closed everything: frozen before, it would keep our output open
    with open("cgroup.procs", "w") as file:
        file.write(str(pid))
    for name, value in (("freezer.state", "FROZEN"), ("cgroup.freeze", "1")):
        if os.path.exists(name):
            with open(name, "w") as file:
                file.write(value)
print("made")
"""


async def test_groups_whose_paths_are_too_long_for_the_kernel_do_not_keep_a_workspace_from_being_deleted(
    prepared: Containers,
) -> None:
    """Each is made from within the one above it. In version 1 of cgroups, what is frozen in them cannot be killed."""
    uid = "401de7a7-0000-4000-8000-000000000003"
    engine = prepared.engine()
    await engine.up(WorkspaceSpec(uid, "project", "demo", "mallory", ImageSource(IMAGE)), RecordedTask())
    assert prepared.run(uid, "python3", "-c", DEEP_GROUPS).split() == ["made"]
    await asyncio.wait_for(engine.delete(uid, RecordedTask("task-2")), 90)
    assert list_groups(uid) == []


async def test_a_process_that_a_workspace_has_frozen_does_not_keep_it_from_being_deleted(
    prepared: Containers,
) -> None:
    """In version 1 of cgroups, a frozen process does not even end when it is killed. This test comes last."""
    frozen = prepared.run(UID, "/bin/sh", "-c", FREEZE)
    assert frozen.split() == ["frozen"]
    await asyncio.wait_for(prepared.engine().delete(UID, RecordedTask("task-2")), 60)
    assert list_groups(UID) == []
