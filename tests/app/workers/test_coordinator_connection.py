"""app: a worker that loses its connection to the coordinator stops, and is replaced."""

import asyncio
import socket
from pathlib import Path

import pytest
import structlog

from fairlead.app.workers.context import WorkerContext, WorkerSockets, connect_coordinator
from fairlead.core.clock import SystemClock
from fairlead.server.workers.coordinator import SharedLimits, serve_coordinator
from fairlead.settings import StartError
from fairlead.storage.socket import SharedRevision


def build_context(folder: Path, listener: socket.socket) -> WorkerContext:
    sockets = WorkerSockets(folder / "coordinator.socket", None)
    return WorkerContext(1, 2, "worker", 8443, listener, sockets, SharedRevision(memoryview(bytearray(16))))


async def test_a_worker_stops_when_it_has_lost_its_coordinator(tmp_path: Path) -> None:
    stop = asyncio.Event()
    with socket.socket() as listener, structlog.testing.capture_logs() as lines:
        context = build_context(tmp_path, listener)
        async with serve_coordinator(context.sockets.coordinator, SharedLimits(10, 10), SystemClock()):
            connecting = connect_coordinator(context, stop)
            coordinator = await connecting.__aenter__()
            assert coordinator is not None
            await coordinator.charge_events("oslo", 1)
            assert not stop.is_set()
        await asyncio.wait_for(stop.wait(), 30)
        await connecting.__aexit__(None, None, None)
    assert [line["log_level"] for line in lines] == ["error"]


async def test_the_regular_end_of_the_connection_is_no_error(tmp_path: Path) -> None:
    stop = asyncio.Event()
    with socket.socket() as listener, structlog.testing.capture_logs() as lines:
        context = build_context(tmp_path, listener)
        async with (
            serve_coordinator(context.sockets.coordinator, SharedLimits(10, 10), SystemClock()),
            connect_coordinator(context, stop),
        ):
            pass
    assert not stop.is_set() and not lines


async def test_a_worker_does_not_start_without_a_coordinator(tmp_path: Path) -> None:
    with socket.socket() as listener, pytest.raises(StartError, match="coordinates the workers"):
        async with connect_coordinator(build_context(tmp_path, listener), asyncio.Event()):
            pass
