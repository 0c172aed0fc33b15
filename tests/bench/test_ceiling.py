"""Tests of `bench/ceiling.py` as a process, with the clients of the benchmark."""

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from bench import wrk
from bench.ceiling import BROADCAST, RESPONSE, SELECTOR
from bench.connection import Connection
from bench.failure import Failure
from bench.servers import Server, run_ceiling
from bench.watch_group import WatchGroup, format_timestamp
from bench.wrk import Load, Request
from fairlead.core.crypto.certificates import ensure_certificates


@pytest_asyncio.fixture
async def bare(tmp_path: Path) -> AsyncIterator[Server]:
    ca_file = ensure_certificates(tmp_path / "tls").ca_file
    assert ca_file is not None
    real = Server("fairlead", "127.0.0.1", 0, {"authorization": "Bearer key"}, ca_file=ca_file)
    async with run_ceiling(real, tmp_path) as server:
        yield server


def build_event() -> bytes:
    return f'{{"object":{{"name":"{format_timestamp(time.monotonic_ns())}"}}}}\n'.encode()


async def test_the_ceiling_responds_with_the_recorded_bytes(bare: Server) -> None:
    async with Connection.to(bare) as connection:
        await connection.request("PUT", f"{RESPONSE}?201", b"something")
        assert await connection.request("GET", "/anything") == b"something"
        for method in ("POST", "PUT", "DELETE"):
            assert await connection.request(method, "/anything", b"body") == b"something"


async def test_an_error_response_ends_the_run(bare: Server) -> None:
    async with Connection.to(bare) as connection:
        with pytest.raises(Failure, match="responded with 500 b'broken'"):
            await connection.request("PUT", f"{RESPONSE}?500", b"broken")


async def test_each_watch_gets_each_event_once_and_one_in_eleven_measures_delays(bare: Server) -> None:
    async with (
        Connection.to(bare) as connection,
        WatchGroup.at(bare, "/?watch=1", [""] * 12, timed=True) as watch_group,
    ):
        for _ in range(2):
            await connection.request("POST", BROADCAST, build_event())
        await watch_group.wait_for_events(24, 10)
        watch_group.check_complete({"": 2})
        assert len(watch_group.delays_ms) == 4
        assert all(delay > 0 for delay in watch_group.delays_ms)


async def test_watches_with_a_selector_receive_only_its_events(bare: Server) -> None:
    topics = [f"{SELECTOR}red", f"{SELECTOR}blue", f"{SELECTOR}blue"]
    async with Connection.to(bare) as connection, WatchGroup.at(bare, "/?watch=1", topics, timed=False) as watch_group:
        await connection.request("POST", f"{BROADCAST}?blue", build_event())
        await watch_group.wait_for_events(2, 10)
        watch_group.check_complete({topics[1]: 1})
        assert watch_group.sizes == {topics[0]: 1, topics[1]: 2}


async def test_missing_events_are_detected(bare: Server) -> None:
    async with WatchGroup.at(bare, "/?watch=1", ["", ""], timed=False) as watch_group:
        with pytest.raises(Failure, match="delivered 0 of 2 events"):
            await watch_group.wait_for_events(2, 0.05)
        with pytest.raises(Failure, match="of 1 events a reader has received 0"):
            watch_group.check_complete({"": 1})


async def test_a_limited_load_stops_early_and_a_pause_bounds_the_rate(
    bare: Server, component: Callable[[str], Path]
) -> None:
    component("wrk")
    async with Connection.to(bare) as connection:
        await connection.request("PUT", f"{RESPONSE}?200", b"something")
    limited = await wrk.run(bare, Request("DELETE", "/old-{n}"), Load(1, 3, 0, 1, 1, limit=50))
    # wrk discards its first request, and does not read the response to the last.
    assert limited.requests in (48, 49) and limited.duration_us < 3_000_000
    paused = await wrk.run(bare, Request("GET", "/"), Load(1, 1, 0, 1, 1, pause_ms=200))
    assert 1 <= paused.requests <= 6 and paused.p50_us <= paused.p99_us <= paused.max_us


async def test_memory_and_processor_time_of_a_process_are_read(bare: Server) -> None:
    memory, used = bare.memory(), bare.cpu_seconds()
    assert memory is not None and memory > 10 * 1024 * 1024
    assert used is not None and used > 0
