"""The ceiling as a process, through the clients that the benchmark uses: it must answer like the real server."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bench.audience import Audience, moment
from bench.ceiling import BROADCAST, SELECTOR
from bench.connection import Connection
from bench.failure import Failure
from bench.servers import Server, ceiling
from fairlead.core.crypto.certificates import ensure_certificates


@pytest_asyncio.fixture
async def bare(tmp_path: Path) -> AsyncIterator[Server]:
    ca_file = ensure_certificates(tmp_path / "tls").ca_file
    assert ca_file is not None
    real = Server("fairlead", "127.0.0.1", 0, {"authorization": "Bearer key"}, ca_file=ca_file)
    async with ceiling(real, tmp_path) as server:
        yield server


def event() -> bytes:
    return f'{{"object":{{"name":"{moment(time.monotonic_ns())}"}}}}\n'.encode()


async def test_it_answers_whatever_is_asked_with_what_it_was_taught(bare: Server) -> None:
    async with Connection.to(bare) as connection:
        await connection.ask("PUT", "/?201", b"something")
        assert await connection.ask("GET", "/anything") == b"something"
        assert await connection.ask("POST", "/anything", b"body") == b"something"


async def test_an_error_ends_the_run(bare: Server) -> None:
    async with Connection.to(bare) as connection:
        with pytest.raises(Failure, match="answered 500 b'broken'"):
            await connection.ask("PUT", "/?500", b"broken")


async def test_each_watch_hears_each_event_once_and_one_in_eleven_knows_how_long_it_took(bare: Server) -> None:
    async with Connection.to(bare) as connection, Audience.at(bare, "/?watch=1", [""] * 12, timed=True) as audience:
        for _ in range(2):
            await connection.ask("POST", BROADCAST, event())
        await audience.until(24, 10)
        audience.check_complete({"": 2})
        assert len(audience.delays_ms) == 4
        assert all(delay > 0 for delay in audience.delays_ms)


async def test_watches_with_a_selector_hear_only_what_goes_to_it(bare: Server) -> None:
    topics = [f"{SELECTOR}red", f"{SELECTOR}blue", f"{SELECTOR}blue"]
    async with Connection.to(bare) as connection, Audience.at(bare, "/?watch=1", topics, timed=False) as audience:
        await connection.ask("POST", f"{BROADCAST}?blue", event())
        await audience.until(2, 10)
        audience.check_complete({topics[1]: 1})
        assert audience.sizes == {topics[0]: 1, topics[1]: 2}


async def test_events_that_do_not_come_are_missed(bare: Server) -> None:
    async with Audience.at(bare, "/?watch=1", ["", ""], timed=False) as audience:
        with pytest.raises(Failure, match="delivered 0 of 2 events"):
            await audience.until(2, 0.05)
        with pytest.raises(Failure, match="of 1 events a reader has heard 0"):
            audience.check_complete({"": 1})


async def test_a_process_that_works_has_used_memory_and_time(bare: Server) -> None:
    assert bare.memory() > 10 * 1024 * 1024
    used = bare.cpu_seconds()
    assert used is not None and used > 0
