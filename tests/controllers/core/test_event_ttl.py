"""Tests of `fairlead.controllers.core.event_ttl`: Events are deleted after their retention, and not before."""

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


def timestamp_at(seconds: float) -> str:
    return timestamp(EPOCH + timedelta(seconds=seconds))


async def create_event(api: RegistryFixture, name: str, **fields: Any) -> None:
    await api.create("Event", name, involvedObject={"kind": "ConfigMap", "namespace": "demo", "name": "c"}, **fields)


async def test_an_event_is_deleted_an_hour_after_it_happened(api: RegistryFixture) -> None:
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        await create_event(api, "early", lastTimestamp=timestamp_at(0))
        await asyncio.sleep(600)
        await create_event(api, "late", lastTimestamp=timestamp_at(600))
        await asyncio.sleep(HOUR - 601)
        assert api.list_names("Event") == ["early", "late"]
        await asyncio.sleep(2)
        assert api.list_names("Event") == ["late"]
        await asyncio.sleep(600)
        assert api.list_names("Event") == []


async def test_an_event_that_happens_again_is_kept_an_hour_longer(api: RegistryFixture) -> None:
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        await create_event(api, "e", lastTimestamp=timestamp_at(0), count=1)
        await asyncio.sleep(HOUR - 1)
        await api.patch("Event", "e", lambda obj: obj.update(lastTimestamp=timestamp_at(HOUR - 1), count=2))
        await asyncio.sleep(HOUR - 1)
        assert api.list_names("Event") == ["e"]
        await asyncio.sleep(2)
        assert api.list_names("Event") == []


@pytest.mark.parametrize("retention", [1, 100])
async def test_the_retention_of_events_is_configurable(api: RegistryFixture, retention: float) -> None:
    async with running_controllers(api, EventTtlController(api.registry, retention)):
        await create_event(api, "e")
        await asyncio.sleep(retention - 0.5)
        assert api.list_names("Event") == ["e"]
        await asyncio.sleep(1)
        assert api.list_names("Event") == []


async def test_the_age_of_events_of_the_new_api_is_that_of_their_series(api: RegistryFixture) -> None:
    required_fields = {"reportingComponent": "x.io/c", "reportingInstance": "c-1", "action": "A", "reason": "R"}
    now = micro_timestamp(EPOCH)
    later = micro_timestamp(EPOCH + timedelta(seconds=500))
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        await create_event(api, "once", eventTime=now, **required_fields)
        await create_event(
            api, "again", eventTime=now, series={"count": 2, "lastObservedTime": later}, **required_fields
        )
        await asyncio.sleep(HOUR + 1)
        assert api.list_names("Event") == ["again"]
        await asyncio.sleep(500)
        assert api.list_names("Event") == []


async def test_an_event_with_an_old_timestamp_is_kept_an_hour_after_its_creation(api: RegistryFixture) -> None:
    """The clock of its reporter is slow, or the reporter was disconnected for a while."""
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        await create_event(api, "e", lastTimestamp="1999-01-01T00:00:00Z")
        await asyncio.sleep(HOUR - 1)
        assert api.list_names("Event") == ["e"]
        await asyncio.sleep(2)
        assert api.list_names("Event") == []


async def test_events_that_expired_while_the_server_was_down_are_deleted_after_the_restart(
    api: RegistryFixture,
) -> None:
    await create_event(api, "old")
    await asyncio.sleep(2 * HOUR)
    await create_event(api, "new")
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        await asyncio.sleep(1)
        assert api.list_names("Event") == ["new"]


@pytest.mark.parametrize(
    "event_time",
    [
        *("2016-12-31T23:59:60Z", "0000-01-01T00:00:00Z", "2026-01-02t03:04:05z", "0001-01-01T00:00:00+23:59"),
        *("9999-12-31T23:59:59-23:59", "2026-01-02T03:04:05.123456789Z"),
    ],
)
async def test_an_event_with_an_unusual_date_does_not_stop_the_controller(
    api: RegistryFixture, event_time: str
) -> None:
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        with suppress(BadRequest):
            await create_event(api, "odd", lastTimestamp=event_time)
        await create_event(api, "plain")
        await asyncio.sleep(HOUR + 1)
        assert "plain" not in api.list_names("Event")


async def test_an_event_with_a_finalizer_is_deleted_once(api: RegistryFixture) -> None:
    await create_event(api, "held", metadata={"finalizers": ["x.io/a"]})
    async with running_controllers(api, EventTtlController(api.registry, HOUR)):
        await asyncio.sleep(HOUR + 1)
        revision = await api.store.revision()
        event = api.get("Event", "held")
        assert event is not None
        assert "deletionTimestamp" in event["metadata"]
        await asyncio.sleep(10 * HOUR)
        assert await api.store.revision() == revision
