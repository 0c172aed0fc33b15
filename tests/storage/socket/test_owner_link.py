"""storage/socket/client.py: a worker publishes every commit of the feed once, also if some are sent again."""

import asyncio

from fairlead.core.framed_socket import LENGTH
from fairlead.storage.contract import Event
from fairlead.storage.socket.client import OwnerLink
from fairlead.storage.socket.frames import HELLO, HELLO_FRAME, encode_feed


def build_events(*revisions: int) -> list[Event]:
    return [Event(("k", part), b"x", revision) for revision in revisions for part in "ab"]


def feed_frame(*revisions: int) -> bytes:
    return encode_feed(build_events(*revisions))[LENGTH.size :]


async def test_commits_that_are_sent_twice_are_published_once() -> None:
    link = OwnerLink()
    link.on_frames([HELLO_FRAME.pack(HELLO, 1, 1_000)])
    assert link.ready.done()
    watch = link.feed.subscribe((), 1_000)
    batch = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    link.on_frames([feed_frame(1_001, 1_002), feed_frame(1_001, 1_002, 1_003), feed_frame(1_003)])
    assert list(await batch) == build_events(1_001, 1_002, 1_003)
    assert link.feed.revision == 1_003
