"""storage/socket/frames.py: what is encoded is decoded to the same."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.framed_socket import LENGTH
from fairlead.storage.commit import PreparedCommit, pack_key
from fairlead.storage.contract import Event, Key, Precondition, Write
from fairlead.storage.socket.frames import (
    COMMIT,
    FEED,
    PIECE_BYTES,
    REQUEST,
    SCAN,
    decode_commit,
    decode_events,
    decode_scan,
    encode_commit,
    encode_feed,
    encode_scan,
)

KEYS = st.lists(st.text(max_size=5), max_size=4).map(tuple)
VALUES = st.none() | st.binary(max_size=20)
REVISIONS = st.integers(0, 1 << 62)


def split_frames(encoded: bytes) -> list[bytes]:
    frames = []
    while encoded:
        (size,) = LENGTH.unpack_from(encoded)
        frames.append(encoded[LENGTH.size : LENGTH.size + size])
        encoded = encoded[LENGTH.size + size :]
    return frames


@given(
    st.lists(st.builds(Write, KEYS, VALUES, REVISIONS), max_size=4),
    st.lists(st.builds(Precondition, KEYS, REVISIONS), max_size=3),
)
def test_commits(writes: list[Write], preconditions: list[Precondition]) -> None:
    commit = PreparedCommit(
        writes,
        [pack_key(write.key) for write in writes],
        preconditions,
        [pack_key(check.key) for check in preconditions],
    )
    assert decode_commit(REQUEST.pack(COMMIT, 7) + encode_commit(commit)) == commit


@given(KEYS, st.none() | KEYS, st.integers(0, 1 << 40), st.none() | st.integers(-(1 << 63), 1 << 70))
def test_scans(prefix: Key, after: Key | None, limit: int, at: int | None) -> None:
    decoded = decode_scan(REQUEST.pack(SCAN, 7) + encode_scan(prefix, after, limit, at))
    moment = at if at is None else max(-(1 << 63) + 1, min(at, (1 << 63) - 1))
    assert decoded == (prefix, after, min(limit, (1 << 32) - 1), moment)


@given(st.lists(st.builds(Event, KEYS, VALUES, REVISIONS), min_size=1, max_size=6))
def test_events(events: list[Event]) -> None:
    (frame,) = split_frames(encode_feed(events))
    assert frame[0] == FEED
    assert decode_events(frame, 1) == events


def test_many_events_are_split_between_commits() -> None:
    half = bytes(PIECE_BYTES // 2)
    events = [Event(("k", str(number)), half, revision) for revision in range(1, 5) for number in range(3)]
    frames = [decode_events(frame, 1) for frame in split_frames(encode_feed(events))]
    assert [{event.revision for event in frame} for frame in frames] == [{1}, {2}, {3}, {4}]
    assert [event for frame in frames for event in frame] == events
