"""Readers of watches count events, however the bytes of the stream are cut into pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.audience import Audience, Reader
from bench.failure import Failure
from bench.servers import Server

SERVER = Server("fairlead", "127.0.0.1", 0, {})
EVENT = b'{"type":"MODIFIED","object":{"spec":{"displayName":"sent 0000000000000000001"}}}\n'
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def heard(pieces: list[bytes], topic: str = "") -> Audience:
    audience = Audience(SERVER, timed=True)
    reader = Reader(audience, topic, b"", timed=True)
    audience.readers.append(reader)
    reader.data_received(HEAD)
    for piece in pieces:
        reader.data_received(piece)
    return audience


@given(st.integers(0, 5), st.lists(st.integers(0, 5 * len(CHUNK))))
def test_events_are_counted_and_timed_once_wherever_the_stream_is_cut(events: int, cuts: list[int]) -> None:
    stream = CHUNK * events
    edges = [0, *sorted(cuts), len(stream)]
    audience = heard([stream[start:end] for start, end in pairwise(edges)])
    audience.check_complete({"": events})
    assert (audience.delivered, len(audience.delays_ms)) == (events, events)


def test_a_partial_event_is_none_yet() -> None:
    assert heard([CHUNK[:-3]]).delivered == 0


def test_a_reader_hears_of_its_own_topic_only() -> None:
    audience = heard([CHUNK], topic="red")
    audience.check_complete({"red": 1, "blue": 5})
    with pytest.raises(Failure, match="of 0 events a reader has heard 1"):
        audience.check_complete({"blue": 5})


async def test_whoever_waits_is_woken_by_trouble_too() -> None:
    audience = heard([CHUNK])
    await audience.until(1, 0.01)
    audience.failed("a watch broke off")
    with pytest.raises(Failure, match="broke off"):
        await audience.until(2, 10)
