"""Connects two streams, so that what one end sends arrives at the other. Credit is given as the slower one reads."""

import asyncio

from fairlead.links.contract import Stream
from fairlead.links.streams import Data, Eof, Exit, StreamReset


async def relay(outer: Stream, inner: Stream) -> None:
    """Runs until one of the streams has ended; then both have."""
    pumps = [asyncio.create_task(_pump(outer, inner)), asyncio.create_task(_pump(inner, outer))]
    reason = "the other stream has ended"
    try:
        done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in done:
            error = pump.exception()
            if isinstance(error, StreamReset):
                reason = error.reason or reason
            elif error is not None:
                raise error
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        await inner.reset(reason)
        await outer.reset(reason)


async def _pump(source: Stream, sink: Stream) -> None:
    """Returns after an exit code, or at the end of the source."""
    while (message := await source.receive()) is not None:
        match message:
            case Data(channel, content):
                await sink.send(channel, content)
            case Eof(channel):
                await sink.send_eof(channel)
            case Exit(code):
                await sink.send_exit(code)
                return
