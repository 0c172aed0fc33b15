"""Connections to ports of a workspace. The network of this process stands in for that of one."""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer import ports
from fairlead.runner.engines.devcontainer.connections import count_connection_bytes
from fairlead.runner.engines.devcontainer.isolation import holder as holder_module
from fairlead.runner.engines.devcontainer.isolation.holder import Holder
from fairlead.runner.engines.devcontainer.ports import connect

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root enters a network")


@contextlib.contextmanager
def listen_without_answer() -> Iterator[int]:
    """A port whose backlog is full: further connections get no answer."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield server.getsockname()[1]


async def test_ports_that_do_not_answer_keep_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "CONNECT_SECONDS", 1.0)
    with listen_without_answer() as port:
        before = threading.active_count()
        waiting = [asyncio.create_task(connect(os.getpid(), port)) for _ in range(50)]
        await asyncio.sleep(0.5)
        assert not any(task.done() for task in waiting)
        assert threading.active_count() <= before + 2
        found = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, EngineError) and each.reason == Reason.NOT_RUNNING for each in found)


async def test_a_machine_without_room_for_a_thread_is_an_error_of_one_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(EngineError, match="nothing answers on port 80"):
        await connect(os.getpid(), 80)
    assert await count_connection_bytes(os.getpid()) == {}


async def test_a_first_process_that_does_not_end_is_not_waited_for_without_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holder_module, "KILL_SECONDS", 0.1)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    monkeypatch.setattr(Holder, "is_alive", lambda self: True)
    with pytest.raises(EngineError, match="does not end, although it was killed"):
        await Holder(pid=1, start_ticks=1, cgroups=()).kill()
