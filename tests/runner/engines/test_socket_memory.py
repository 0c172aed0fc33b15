"""Memory that waits in sockets, which the kernel counts towards no control group."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import ContainerState, ImageSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer.isolation import socket_memory
from fairlead.runner.engines.devcontainer.isolation.holder import find_holder
from fairlead.runner.engines.devcontainer.isolation.socket_memory import describe_overuse, find_overuse, sum_queues
from fairlead.runner.engines.devcontainer.layout import open_folder
from tests.harness.eventually import eventually
from tests.runner.harness.podman import IMAGE, SMALL, Containers
from tests.runner.harness.tasks import RecordedTask

UID = "50c4e700-0000-4000-8000-000000000001"
OTHER = "50c4e700-0000-4000-8000-000000000002"
NETLINK = """sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
00000000d691dcf9 0   0          00000000 1000     24       0     2        0        11276976
000000002c010c0e 4   0          00000000 8388608  0        0     2        0        11276982
"""
ICMP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref drops
    5: 00000000:1FC1 00000000:0000 07 00000010:00803900 00:00000000 00000000  1000        0 11493450 2 95
"""
FILL = """
import socket, time
SO_RCVBUF, USERSOCK = 8, 2
sender = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, USERSOCK)
sender.bind((0, 0))
sender.setblocking(False)
held = []
for number in range(60):
    receiver = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, USERSOCK)
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUF, 4 << 20)
    receiver.bind((0, 0))
    held.append(receiver)
    try:
        while True:
            sender.sendto(b"x" * 16000, (receiver.getsockname()[0], 0))
    except OSError:
        pass
    time.sleep(0.01)
time.sleep(60)
"""
"""More than the memory of the workspace, and then what the watch allows, without a privilege."""


def test_queues_are_summed_as_the_kernel_lists_them() -> None:
    assert sum_queues(NETLINK.splitlines()[1:], is_netlink=True) == 1024 + 8388608
    assert sum_queues(ICMP.splitlines()[1:], is_netlink=False) == 0x803910
    assert sum_queues(["", "1 2 3", "a b c d e f", "a b c d e:f"], is_netlink=True) == 0
    assert sum_queues(["", "1 2 3", "a b c d x:y z"], is_netlink=False) == 0


def test_very_many_sockets_are_too_much_without_any_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netlink").write_text(NETLINK)
    assert describe_overuse(tmp_path) == ""
    monkeypatch.setattr(socket_memory, "MAX_SOCKETS", 2)
    assert describe_overuse(tmp_path) == "it has 2 sockets of the kind netlink, or more"


def test_the_tables_of_a_network_are_summed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netlink").write_text(NETLINK)
    (tmp_path / "icmp").write_text(ICMP)
    monkeypatch.setattr(socket_memory, "MAX_BYTES", 10 << 20)
    assert describe_overuse(tmp_path) == "more than 10 MiB wait to be read in its sockets"
    (tmp_path / "icmp").unlink()
    assert describe_overuse(tmp_path) == ""


@pytest.mark.timeout(180)
async def test_a_workspace_whose_sockets_keep_memory_beside_its_limit_is_ended(containers: Containers) -> None:
    assert SMALL.memory_bytes is not None and SMALL.memory_bytes >= socket_memory.MAX_BYTES
    engine = containers.engine()
    for uid in (UID, OTHER):
        await engine.up(WorkspaceSpec(uid, "project", "demo", "mallory", ImageSource(IMAGE)), RecordedTask(uid))
    assert await asyncio.to_thread(find_overuse, containers.settings().state_folder) == []
    maintaining = asyncio.create_task(engine.maintain())
    filling = asyncio.create_task(
        asyncio.to_thread(containers.podman, UID, "exec", "workspace", "python3", "-c", FILL, check=False)
    )
    try:
        state_folder = containers.settings().state_folder
        await eventually(lambda: find_holder(open_folder(state_folder, UID).holder) is None, seconds=30)
        assert (await engine.status(UID)).cause.startswith("OutOfMemory: the workspace was ended: more than 256 MiB")
        assert (await engine.status(OTHER)).state is ContainerState.RUNNING
    finally:
        await filling
        maintaining.cancel()
        with suppress(asyncio.CancelledError):
            await maintaining
    await engine.up(WorkspaceSpec(UID, "project", "demo", "mallory", ImageSource(IMAGE)), RecordedTask("task-2"))
    status = await engine.status(UID)
    assert status.state is ContainerState.RUNNING
    assert status.cause == ""
