"""Scans whose cost a workspace controls: they are limited, and other parts of the runner do not wait for them."""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from fairlead.client import Client
from fairlead.core.clock import SystemClock
from fairlead.runner.api import ClientSource, RunnerApi
from fairlead.runner.engines.devcontainer import ports
from fairlead.runner.engines.devcontainer.ports import list_listening
from fairlead.runner.engines.measurement import MAX_THREADS, Scans
from tests.harness.event_loops import ASYNCIO_ONLY, LoopFactories
from tests.harness.eventually import eventually


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> LoopFactories:
    return ASYNCIO_ONLY


class SlowScan:
    """A scan that takes until it is let through."""

    def __init__(self) -> None:
        self.calls = 0
        self.allowed = threading.Event()

    def run(self) -> int:
        self.calls += 1
        self.allowed.wait(60)
        return self.calls


@pytest.fixture
def slow() -> Iterator[SlowScan]:
    scan = SlowScan()
    yield scan
    scan.allowed.set()


# --- threads ----------------------------------------------------------------------------------------------------------


async def test_a_second_request_joins_the_scan_that_is_under_way(slow: SlowScan) -> None:
    scans: Scans[int] = Scans()
    requests = [asyncio.create_task(scans.run("a", slow.run)) for _ in range(20)]
    await eventually(lambda: slow.calls == 1)
    requests[0].cancel()  # a client that is gone does not end the scan of the others
    await asyncio.sleep(0)
    slow.allowed.set()
    assert await asyncio.gather(*requests[1:]) == [1] * 19
    assert await scans.run("a", slow.run) == 2


async def test_a_scan_that_fails_is_not_kept(slow: SlowScan) -> None:
    def fail() -> int:
        raise OSError("no such process")

    scans: Scans[int] = Scans()
    with pytest.raises(OSError, match="no such process"):
        await scans.run("a", fail)
    slow.allowed.set()
    assert await scans.run("a", slow.run) == 1


async def test_scans_take_few_threads_and_none_of_the_event_loop(slow: SlowScan) -> None:
    scans: Scans[int] = Scans()
    requests = [asyncio.create_task(scans.run(str(number), slow.run)) for number in range(64)]
    await eventually(lambda: slow.calls == MAX_THREADS)
    assert await asyncio.to_thread(lambda: "free") == "free"
    assert slow.calls == MAX_THREADS
    slow.allowed.set()
    await asyncio.gather(*requests)


async def test_requests_to_the_server_do_not_wait_for_threads_of_the_event_loop(slow: SlowScan) -> None:
    class FakeClient:
        timeout = 0.0

        def get(self, *path: str) -> dict[str, Any]:
            return {"path": path}

    api = RunnerApi(ClientSource(lambda _: cast(Client, FakeClient()), lambda: "key"), "runner", SystemClock())
    busy = [asyncio.create_task(asyncio.to_thread(slow.run)) for _ in range(64)]
    await eventually(lambda: slow.calls > 0)
    async with asyncio.timeout(30):
        assert await api.get_runner() == {"path": ("runners", "runner")}
    slow.allowed.set()
    await asyncio.gather(*busy)


# --- ports ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def listening() -> Iterator[int]:
    """A port on which this process listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def find_process(port: int) -> str:
    """The name of the process in the list of ports of this machine."""
    return next(each.process for each in list_listening(os.getpid(), list_own_pid) if each.port == port)


def list_own_pid() -> list[int]:
    return [os.getpid()]


def test_a_port_has_the_name_of_its_process(listening: int) -> None:
    assert find_process(listening) == Path("/proc/self/comm").read_text().strip()


@pytest.mark.parametrize("limit", ["MAX_PROCESSES", "MAX_DESCRIPTORS", "SCAN_SECONDS"])
def test_beyond_a_limit_ports_are_listed_without_names(
    listening: int, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(ports, limit, 0)
    assert find_process(listening) == ""


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The links in /proc that are read."""
    read: list[str] = []
    original = ports._read_link

    def record(path: str) -> str:
        read.append(path)
        return original(path)

    monkeypatch.setattr(ports, "_read_link", record)
    return read


def test_descriptors_are_read_up_to_the_limit(
    listening: int, links: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "MAX_DESCRIPTORS", 5)
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(open(os.devnull))
        list_listening(os.getpid(), list_own_pid)
    assert len([each for each in links if "/fd/" in each]) == 5


def test_a_scan_ends_when_all_sockets_have_an_owner(
    listening: int, links: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [each for each in ports._read_table(Path("/proc/self/net/tcp")) if each[0] == listening]
    monkeypatch.setattr(ports, "_read_table", lambda path: own)
    listed = list_listening(os.getpid(), lambda: [os.getpid()] * 100)
    assert [each.process for each in listed] == [Path("/proc/self/comm").read_text().strip()]
    assert links.count(f"/proc/{os.getpid()}/ns/net") == 2
    links.clear()
    monkeypatch.setattr(ports, "_read_table", lambda path: [])
    assert list_listening(os.getpid(), list_own_pid) == []
    assert not any("/fd/" in each for each in links)
