"""Events go when they have been kept long enough, and not before."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from fairlead.controllers.core.event_ttl import EventTtlController
from fairlead.core.clock import micro_timestamp, timestamp
from fairlead.core.errors import BadRequest
from tests.harness.controllers import running_controllers
from tests.harness.registry import RegistryFixture
from tests.harness.virtual_time import EPOCH

HOUR = 3_600.0


def at(seconds: float) -> str:
    return timestamp(EPOCH + timedelta(seconds=seconds))


async def happen(api: RegistryFixture, name: str, **fields: Any) -> None:
    await api.create("Event", name, involvedObject={"kind": "ConfigMap", "namespace": "demo", "name": "c"}, **fields)


async def test_an_event_goes_an_hour_after_it_happened(api: RegistryFixture) -> None:
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        await happen(api, "early", lastTimestamp=at(0))
        await asyncio.sleep(600)
        await happen(api, "late", lastTimestamp=at(600))
        await asyncio.sleep(HOUR - 601)
        assert api.names("Event") == ["early", "late"]
        await asyncio.sleep(2)
        assert api.names("Event") == ["late"]
        await asyncio.sleep(600)
        assert api.names("Event") == []


async def test_an_event_that_happens_again_is_kept_an_hour_longer(api: RegistryFixture) -> None:
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        await happen(api, "e", lastTimestamp=at(0), count=1)
        await asyncio.sleep(HOUR - 1)
        await api.patch("Event", "e", lambda obj: obj.update(lastTimestamp=at(HOUR - 1), count=2))
        await asyncio.sleep(HOUR - 1)
        assert api.names("Event") == ["e"]
        await asyncio.sleep(2)
        assert api.names("Event") == []


@pytest.mark.parametrize("kept", [1, 100])
async def test_how_long_events_are_kept_can_be_chosen(api: RegistryFixture, kept: float) -> None:
    async with running_controllers(api, EventTtlController(api.registry, kept)):
        await happen(api, "e")
        await asyncio.sleep(kept - 0.5)
        assert api.names("Event") == ["e"]
        await asyncio.sleep(1)
        assert api.names("Event") == []


async def test_events_of_the_newer_style_are_dated_by_their_series(api: RegistryFixture) -> None:
    complete = {"reportingComponent": "x.io/c", "reportingInstance": "c-1", "action": "A", "reason": "R"}
    now = micro_timestamp(EPOCH)
    later = micro_timestamp(EPOCH + timedelta(seconds=500))
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        await happen(api, "once", eventTime=now, **complete)
        await happen(api, "again", eventTime=now, series={"count": 2, "lastObservedTime": later}, **complete)
        await asyncio.sleep(HOUR + 1)
        assert api.names("Event") == ["again"]
        await asyncio.sleep(500)
        assert api.names("Event") == []


async def test_an_event_from_long_ago_is_kept_an_hour_after_it_was_told(api: RegistryFixture) -> None:
    """Whoever tells of it has a slow clock, or was cut off for a while."""
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        await happen(api, "e", lastTimestamp="1999-01-01T00:00:00Z")
        await asyncio.sleep(HOUR - 1)
        assert api.names("Event") == ["e"]
        await asyncio.sleep(2)
        assert api.names("Event") == []


async def test_events_that_should_have_gone_while_the_server_was_down_go_when_it_is_back(api: RegistryFixture) -> None:
    await happen(api, "old")
    await asyncio.sleep(2 * HOUR)
    await happen(api, "new")
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        await asyncio.sleep(1)
        assert api.names("Event") == ["new"]


@pytest.mark.parametrize(
    "moment",
    [
        *("2016-12-31T23:59:60Z", "0000-01-01T00:00:00Z", "2026-01-02t03:04:05z", "0001-01-01T00:00:00+23:59"),
        *("9999-12-31T23:59:59-23:59", "2026-01-02T03:04:05.123456789Z"),
    ],
)
async def test_an_event_with_an_odd_date_does_not_stop_the_server(api: RegistryFixture, moment: str) -> None:
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        with suppress(BadRequest):
            await happen(api, "odd", lastTimestamp=moment)
        await happen(api, "plain")
        await asyncio.sleep(HOUR + 1)
        assert "plain" not in api.names("Event")


async def test_an_event_that_something_holds_is_marked_and_then_left_in_peace(api: RegistryFixture) -> None:
    await happen(api, "held", metadata={"finalizers": ["x.io/a"]})
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        await asyncio.sleep(HOUR + 1)
        revision = await api.store.revision()
        found = api.see("Event", "held")
        assert found is not None
        assert "deletionTimestamp" in found["metadata"]
        await asyncio.sleep(10 * HOUR)
        assert await api.store.revision() == revision
