"""Who may have a watch, and how many: it ends when its asker may no longer have it. On virtual time."""

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
from tests.server.api.test_watch import LIMITS, events, everything, told

# On virtual time nothing takes long, unless a stream runs in circles.
pytestmark = pytest.mark.timeout(5)


async def opened(api: RegistryFixture, recheck: Callable[[], None]) -> AsyncIterator[bytes]:
    gadgets = api.of("Gadget")
    asked = query_options.watch_query(call(), gadgets.kind)
    return await WatchService(LIMITS, api.clock, StreamLimiter(100, 10)).open(
        WatchRequest(gadgets, "", asked, recheck=recheck), User("ada")
    )


@on_virtual_time
async def test_t15_a_watch_ends_within_ten_seconds_when_its_asker_may_no_longer_have_it() -> None:
    async with open_registry() as api:
        refused = [False]

        def recheck() -> None:
            if refused[0]:
                raise Unauthorized("the key is gone")

        reading = asyncio.ensure_future(everything(await opened(api, recheck)))
        await asyncio.sleep(60)
        refused[0] = True
        began = api.clock.monotonic()
        ((kind, status),) = events(await reading)
        assert (kind, status["code"], status["message"]) == ("ERROR", 401, "the key is gone")
        assert api.clock.monotonic() - began <= 10


@on_virtual_time
async def test_t15_a_client_that_reads_slowly_keeps_its_watch_no_longer_than_others() -> None:
    async with open_registry() as api:
        await api.create("Gadget", "there")
        refused = [False]

        def recheck() -> None:
            if refused[0]:
                raise Unauthorized("the key is gone")

        stream = await opened(api, recheck)
        assert told([await anext(stream)]) == ["ADDED there"]
        await api.create("Gadget", "another")
        assert told([await anext(stream)]) == ["ADDED another"]
        await asyncio.sleep(2 * RECHECK_SECONDS)  # so long the last chunk is on its way
        reading = asyncio.ensure_future(everything(stream))
        await asyncio.sleep(1)
        refused[0] = True
        began = api.clock.monotonic()
        assert told(await reading)[-1] == "ERROR"
        assert api.clock.monotonic() - began <= 10


@on_virtual_time
async def test_t15_nothing_is_told_after_the_asker_was_refused() -> None:
    async with open_registry() as api:

        def recheck() -> None:
            raise Unauthorized

        stream = await opened(api, recheck)
        reading = asyncio.ensure_future(everything(stream))
        await asyncio.sleep(RECHECK_SECONDS)
        await api.create("Gadget", "late")
        assert told(await reading) == ["ERROR"]


@on_virtual_time
async def test_t39_more_watches_than_a_user_may_have_are_refused_until_one_ends() -> None:
    async with open_registry() as api:
        watches = WatchService(WatchLimits(1800, 100), api.clock, StreamLimiter(total=4, per_user=2))
        gadgets = api.of("Gadget")
        opening = WatchRequest(gadgets, "", query_options.watch_query(call(query="timeoutSeconds=60"), gadgets.kind))
        laptop, phone = User("ada", key="laptop"), User("ada", key="phone")
        first = [await watches.open(opening, each) for each in (laptop, phone)]
        reading = [asyncio.ensure_future(everything(stream)) for stream in first]
        await asyncio.sleep(1)
        with pytest.raises(TooManyRequests, match="you have 2 watches") as caught:
            await watches.open(opening, User("ada", key="tablet"))
        assert caught.value.details.retry_after > 0
        for name in ("ben", "cyd"):
            reading.append(asyncio.ensure_future(everything(await watches.open(opening, User(name)))))
            await asyncio.sleep(1)
        with pytest.raises(TooManyRequests, match="4 watches and other streams are open"):
            await watches.open(opening, User("dan"))
        await asyncio.gather(*reading)
        await (await watches.open(opening, laptop)).aclose()  # type: ignore[attr-defined]


@on_virtual_time
async def test_watches_that_were_asked_for_at_the_same_time_are_not_more_than_there_may_be() -> None:
    async with open_registry() as api:
        watches, ada = (
            WatchService(WatchLimits(1800, 100), api.clock, StreamLimiter(total=10, per_user=2)),
            User("ada"),
        )
        gadgets = api.of("Gadget")
        opening = WatchRequest(gadgets, "", query_options.watch_query(call(query="timeoutSeconds=60"), gadgets.kind))
        streams = [await watches.open(opening, ada) for _ in range(5)]
        ends = await asyncio.gather(*map(everything, streams))
        assert sorted(bool(told(end)) for end in ends) == [False, False, True, True, True]
