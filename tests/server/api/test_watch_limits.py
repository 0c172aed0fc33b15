"""server.api.watch: limits on watches, and their end when the user loses access. On virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from fairlead.core.call import RECHECK_SECONDS
from fairlead.core.errors import TooManyRequests, Unauthorized
from fairlead.core.user import User
from fairlead.server.api import query_options
from fairlead.server.api.watch import WatchLimits, WatchRequest, WatchService
from fairlead.server.flow.streams import StreamLimiter
from tests.harness.calls import call
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.virtual_time import on_virtual_time
from tests.server.api.watch_streams import LIMITS, describe_events, parse_events, read_all

# On virtual time nothing takes long, unless a stream loops forever.
pytestmark = pytest.mark.timeout(30)


async def open_watch(api: RegistryFixture, recheck: Callable[[], None]) -> AsyncIterator[bytes]:
    gadgets = api.resource("Gadget")
    query = query_options.watch_query(call(), gadgets.kind)
    return await WatchService(LIMITS, api.clock, StreamLimiter(100, 10)).open(
        WatchRequest(gadgets, "", query, recheck=recheck), User("ada")
    )


@on_virtual_time
async def test_t15_a_watch_ends_within_ten_seconds_after_its_user_lost_access() -> None:
    async with open_registry() as api:
        is_revoked = [False]

        def recheck() -> None:
            if is_revoked[0]:
                raise Unauthorized("the key was deleted")

        reading = asyncio.ensure_future(read_all(await open_watch(api, recheck)))
        await asyncio.sleep(60)
        is_revoked[0] = True
        started_at = api.clock.monotonic()
        ((event_type, status),) = parse_events(await reading)
        assert (event_type, status["code"], status["message"]) == ("ERROR", 401, "the key was deleted")
        assert api.clock.monotonic() - started_at <= 10


@on_virtual_time
async def test_t15_the_watch_of_a_slow_client_ends_in_time_after_its_user_lost_access() -> None:
    async with open_registry() as api:
        await api.create("Gadget", "there")
        is_revoked = [False]

        def recheck() -> None:
            if is_revoked[0]:
                raise Unauthorized("the key was deleted")

        stream = await open_watch(api, recheck)
        assert describe_events([await anext(stream)]) == ["ADDED there"]
        await api.create("Gadget", "another")
        assert describe_events([await anext(stream)]) == ["ADDED another"]
        await asyncio.sleep(2 * RECHECK_SECONDS)  # as long as the last chunk is being sent
        reading = asyncio.ensure_future(read_all(stream))
        await asyncio.sleep(1)
        is_revoked[0] = True
        started_at = api.clock.monotonic()
        assert describe_events(await reading)[-1] == "ERROR"
        assert api.clock.monotonic() - started_at <= 10


@on_virtual_time
async def test_t15_no_events_are_sent_after_the_user_lost_access() -> None:
    async with open_registry() as api:

        def recheck() -> None:
            raise Unauthorized

        stream = await open_watch(api, recheck)
        reading = asyncio.ensure_future(read_all(stream))
        await asyncio.sleep(RECHECK_SECONDS)
        await api.create("Gadget", "late")
        assert describe_events(await reading) == ["ERROR"]


@on_virtual_time
async def test_t39_watches_over_the_limit_of_a_user_are_rejected_until_one_ends() -> None:
    async with open_registry() as api:
        watches = WatchService(WatchLimits(1800, 100), api.clock, StreamLimiter(total=4, per_user=2))
        gadgets = api.resource("Gadget")
        request = WatchRequest(gadgets, "", query_options.watch_query(call(query="timeoutSeconds=60"), gadgets.kind))
        laptop, phone = User("ada", key="laptop"), User("ada", key="phone")
        first = [await watches.open(request, user) for user in (laptop, phone)]
        reading = [asyncio.ensure_future(read_all(stream)) for stream in first]
        await asyncio.sleep(1)
        with pytest.raises(TooManyRequests, match="you have 2 watches") as error:
            await watches.open(request, User("ada", key="tablet"))
        assert error.value.details.retry_after > 0
        for name in ("ben", "cyd"):
            reading.append(asyncio.ensure_future(read_all(await watches.open(request, User(name)))))
            await asyncio.sleep(1)
        with pytest.raises(TooManyRequests, match="4 watches and other streams are open"):
            await watches.open(request, User("dan"))
        await asyncio.gather(*reading)
        await (await watches.open(request, laptop)).aclose()  # type: ignore[attr-defined]


@on_virtual_time
async def test_concurrent_watches_do_not_exceed_the_limit() -> None:
    async with open_registry() as api:
        watches, ada = (
            WatchService(WatchLimits(1800, 100), api.clock, StreamLimiter(total=10, per_user=2)),
            User("ada"),
        )
        gadgets = api.resource("Gadget")
        request = WatchRequest(gadgets, "", query_options.watch_query(call(query="timeoutSeconds=60"), gadgets.kind))
        streams = [await watches.open(request, ada) for _ in range(5)]
        results = await asyncio.gather(*map(read_all, streams))
        assert sorted(bool(describe_events(result)) for result in results) == [False, False, True, True, True]
