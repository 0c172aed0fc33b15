"""Tests of `bench/watch_group.py`: readers count events, however the stream is split."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.failure import Failure
from bench.servers import Server
from bench.watch_group import Reader, WatchGroup

SERVER = Server("fairlead", "127.0.0.1", 0, {})
EVENT = b'{"type":"MODIFIED","object":{"spec":{"displayName":"sent 0000000000000000001"}}}\n'
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def feed_reader(parts: list[bytes], topic: str = "") -> WatchGroup:
    watch_group = WatchGroup(SERVER, timed=True)
    reader = Reader(watch_group, topic, b"", timed=True)
    watch_group.readers.append(reader)
    reader.data_received(HEAD)
    for part in parts:
        reader.data_received(part)
    return watch_group


@given(st.integers(0, 5), st.lists(st.integers(0, 5 * len(CHUNK))))
def test_events_are_counted_and_timed_once_wherever_the_stream_is_split(events: int, cuts: list[int]) -> None:
    stream = CHUNK * events
    edges = [0, *sorted(cuts), len(stream)]
    watch_group = feed_reader([stream[start:end] for start, end in pairwise(edges)])
    watch_group.check_complete({"": events})
    assert (watch_group.delivered, len(watch_group.delays_ms)) == (events, events)


def test_a_partial_event_is_not_counted() -> None:
    assert feed_reader([CHUNK[:-3]]).delivered == 0


def test_a_reader_receives_its_own_topic_only() -> None:
    watch_group = feed_reader([CHUNK], topic="red")
    watch_group.check_complete({"red": 1, "blue": 5})
    with pytest.raises(Failure, match="of 0 events a reader has received 1"):
        watch_group.check_complete({"blue": 5})


async def test_a_failure_ends_the_wait() -> None:
    watch_group = feed_reader([CHUNK])
    await watch_group.wait_for_events(1, 0.01)
    watch_group.fail("a watch ended")
    with pytest.raises(Failure, match="ended"):
        await watch_group.wait_for_events(2, 10)
