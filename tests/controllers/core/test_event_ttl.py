"""Events go when they have been kept long enough, and not before."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from fairlead.controllers.core.event_ttl import EventTtlController
from fairlead.core.clock import micro_timestamp, timestamp
from fairlead.core.errors import BadRequest
from tests.harness.controllers import at_work
from tests.harness.registry import World
from tests.harness.virtual_time import EPOCH

HOUR = 3_600.0


def at(seconds: float) -> str:
    return timestamp(EPOCH + timedelta(seconds=seconds))


async def happen(world: World, name: str, **fields: Any) -> None:
    await world.create("Event", name, involvedObject={"kind": "ConfigMap", "namespace": "demo", "name": "c"}, **fields)


async def test_an_event_goes_an_hour_after_it_happened(world: World) -> None:
    async with at_work(world, EventTtlController(world.registry, HOUR)):
        await happen(world, "early", lastTimestamp=at(0))
        await asyncio.sleep(600)
        await happen(world, "late", lastTimestamp=at(600))
        await asyncio.sleep(HOUR - 601)
        assert world.names("Event") == ["early", "late"]
        await asyncio.sleep(2)
        assert world.names("Event") == ["late"]
        await asyncio.sleep(600)
        assert world.names("Event") == []


async def test_an_event_that_happens_again_is_kept_an_hour_longer(world: World) -> None:
    async with at_work(world, EventTtlController(world.registry, HOUR)):
        await happen(world, "e", lastTimestamp=at(0), count=1)
        await asyncio.sleep(HOUR - 1)
        await world.patch("Event", "e", lambda obj: obj.update(lastTimestamp=at(HOUR - 1), count=2))
        await asyncio.sleep(HOUR - 1)
        assert world.names("Event") == ["e"]
        await asyncio.sleep(2)
        assert world.names("Event") == []


@pytest.mark.parametrize("kept", [1, 100])
async def test_how_long_events_are_kept_can_be_chosen(world: World, kept: float) -> None:
    async with at_work(world, EventTtlController(world.registry, kept)):
        await happen(world, "e")
        await asyncio.sleep(kept - 0.5)
        assert world.names("Event") == ["e"]
        await asyncio.sleep(1)
        assert world.names("Event") == []


async def test_events_of_the_newer_style_are_dated_by_their_series(world: World) -> None:
    complete = {"reportingComponent": "x.io/c", "reportingInstance": "c-1", "action": "A", "reason": "R"}
    now = micro_timestamp(EPOCH)
    later = micro_timestamp(EPOCH + timedelta(seconds=500))
    async with at_work(world, EventTtlController(world.registry, HOUR)):
        await happen(world, "once", eventTime=now, **complete)
        await happen(world, "again", eventTime=now, series={"count": 2, "lastObservedTime": later}, **complete)
        await asyncio.sleep(HOUR + 1)
        assert world.names("Event") == ["again"]
        await asyncio.sleep(500)
        assert world.names("Event") == []


async def test_an_event_from_long_ago_is_kept_an_hour_after_it_was_told(world: World) -> None:
    """Whoever tells of it has a slow clock, or was cut off for a while."""
    async with at_work(world, EventTtlController(world.registry, HOUR)):
        await happen(world, "e", lastTimestamp="1999-01-01T00:00:00Z")
        await asyncio.sleep(HOUR - 1)
        assert world.names("Event") == ["e"]
        await asyncio.sleep(2)
        assert world.names("Event") == []


async def test_events_that_should_have_gone_while_the_server_was_down_go_when_it_is_back(world: World) -> None:
    await happen(world, "old")
    await asyncio.sleep(2 * HOUR)
    await happen(world, "new")
    async with at_work(world, EventTtlController(world.registry, HOUR)):
        await asyncio.sleep(1)
        assert world.names("Event") == ["new"]


@pytest.mark.parametrize(
    "moment",
    [
        *("2016-12-31T23:59:60Z", "0000-01-01T00:00:00Z", "2026-01-02t03:04:05z", "0001-01-01T00:00:00+23:59"),
        *("9999-12-31T23:59:59-23:59", "2026-01-02T03:04:05.123456789Z"),
    ],
)
async def test_an_event_with_an_odd_date_does_not_stop_the_server(world: World, moment: str) -> None:
    async with at_work(world, EventTtlController(world.registry, HOUR)):
        with suppress(BadRequest):
            await happen(world, "odd", lastTimestamp=moment)
        await happen(world, "plain")
        await asyncio.sleep(HOUR + 1)
        assert "plain" not in world.names("Event")


async def test_an_event_that_something_holds_is_marked_and_then_left_in_peace(world: World) -> None:
    await happen(world, "held", metadata={"finalizers": ["x.io/a"]})
    async with at_work(world, EventTtlController(world.registry, HOUR)):
        await asyncio.sleep(HOUR + 1)
        revision = await world.store.revision()
        found = world.see("Event", "held")
        assert found is not None
        assert "deletionTimestamp" in found["metadata"]
        await asyncio.sleep(10 * HOUR)
        assert await world.store.revision() == revision
