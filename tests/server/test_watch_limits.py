"""Who may have a watch, and how many: it ends when its asker may no longer have it. On virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from fairlead.core.errors import TooManyRequests, Unauthorized
from fairlead.server import options
from fairlead.server.watch import RECHECK_SECONDS, Opening, Watches, WatchLimits
from tests.admission.world import World, new_world
from tests.authn.calls import call
from tests.controllers.virtual_time import virtually
from tests.server.test_watch import LIMITS, events, everything, told

# On virtual time nothing takes long, unless a stream runs in circles.
pytestmark = pytest.mark.timeout(5)


async def opened(world: World, recheck: Callable[[], None]) -> AsyncIterator[bytes]:
    gadgets = world.of("Gadget")
    asked = options.watch_query(call(), gadgets.kind)
    return await Watches(LIMITS, world.clock).open(Opening(gadgets, "", asked, recheck=recheck), "key")


@virtually
async def test_t15_a_watch_ends_within_ten_seconds_when_its_asker_may_no_longer_have_it() -> None:
    async with new_world() as world:
        refused = [False]

        def recheck() -> None:
            if refused[0]:
                raise Unauthorized("the key is gone")

        reading = asyncio.ensure_future(everything(await opened(world, recheck)))
        await asyncio.sleep(60)
        refused[0] = True
        began = world.clock.monotonic()
        ((kind, status),) = events(await reading)
        assert (kind, status["code"], status["message"]) == ("ERROR", 401, "the key is gone")
        assert world.clock.monotonic() - began <= 10


@virtually
async def test_t15_a_client_that_reads_slowly_keeps_its_watch_no_longer_than_others() -> None:
    async with new_world() as world:
        await world.create("Gadget", "there")
        refused = [False]

        def recheck() -> None:
            if refused[0]:
                raise Unauthorized("the key is gone")

        stream = await opened(world, recheck)
        assert told([await anext(stream)]) == ["ADDED there"]
        await world.create("Gadget", "another")
        assert told([await anext(stream)]) == ["ADDED another"]
        await asyncio.sleep(2 * RECHECK_SECONDS)  # so long the last chunk is on its way
        reading = asyncio.ensure_future(everything(stream))
        await asyncio.sleep(1)
        refused[0] = True
        began = world.clock.monotonic()
        assert told(await reading)[-1] == "ERROR"
        assert world.clock.monotonic() - began <= 10


@virtually
async def test_t15_nothing_is_told_after_the_asker_was_refused() -> None:
    async with new_world() as world:

        def recheck() -> None:
            raise Unauthorized

        stream = await opened(world, recheck)
        reading = asyncio.ensure_future(everything(stream))
        await asyncio.sleep(RECHECK_SECONDS)
        await world.create("Gadget", "late")
        assert told(await reading) == ["ERROR"]


@virtually
async def test_t39_more_watches_than_a_key_may_have_are_refused_until_one_ends() -> None:
    async with new_world() as world:
        watches = Watches(WatchLimits(1800, 100, total=3, per_key=2), world.clock)
        gadgets = world.of("Gadget")
        opening = Opening(gadgets, "", options.watch_query(call(query="timeoutSeconds=60"), gadgets.kind))
        first = [await watches.open(opening, "a") for _ in range(2)]
        reading = [asyncio.ensure_future(everything(stream)) for stream in first]
        await asyncio.sleep(1)
        with pytest.raises(TooManyRequests, match="this access key has 2 watches open") as caught:
            await watches.open(opening, "a")
        assert caught.value.details.retry_after > 0
        reading.append(asyncio.ensure_future(everything(await watches.open(opening, "b"))))
        await asyncio.sleep(1)
        with pytest.raises(TooManyRequests, match="3 watches are open"):
            await watches.open(opening, "c")
        await asyncio.gather(*reading)
        await (await watches.open(opening, "a")).aclose()  # type: ignore[attr-defined]
