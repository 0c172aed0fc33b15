"""Frames are decoded to what was encoded, and everything else is rejected with FrameError."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.links import frames
from fairlead.links.frames import FrameError, FrameType, Hello
from fairlead.links.requests import OpenRequest

STREAMS = st.integers(1, frames.MAX_STREAM)


def payload_of(frame: bytes) -> bytes:
    return frames.decode_frame(frame)[2]


@given(STREAMS, st.sampled_from(frames.CHANNELS), st.binary(min_size=1, max_size=frames.MAX_DATA_BYTES))
def test_data_is_decoded_to_what_was_encoded(stream: int, channel: int, content: bytes) -> None:
    kind, number, payload = frames.decode_frame(frames.encode_data(stream, channel, content))
    assert (kind, number, frames.decode_data(payload)) == (FrameType.DATA, stream, (channel, content))


@given(STREAMS, st.integers(-(2**31), 2**31 - 1))
def test_exit_codes_keep_their_sign(stream: int, code: int) -> None:
    assert frames.decode_exit(payload_of(frames.encode_exit(stream, code))) == code


@given(st.integers(0, 2**16 - 1), st.text())
def test_reasons_are_truncated_to_their_limit(code: int, reason: str) -> None:
    decoded, text = frames.decode_reason(payload_of(frames.encode_reason(FrameType.RESET, 1, code, reason)))
    assert decoded == code
    assert len(text.encode()) <= frames.MAX_REASON_BYTES + 3 * 3  # a cut character becomes U+FFFD
    if len(reason.encode(errors="replace")) <= frames.MAX_REASON_BYTES:
        assert text == frames.clean_text(reason.encode(errors="replace").decode())


@given(st.text())
def test_what_the_other_end_says_cannot_control_a_terminal(text: str) -> None:
    cleaned = frames.clean_text(text)
    assert len(cleaned) == len(text) and all(each.isprintable() or each == "\n" for each in cleaned)
    refusal = frames.decode_refuse(payload_of(frames.encode_refuse(1, 400, text.encode(errors="replace").decode())))
    assert all(each.isprintable() or each == "\n" for each in refusal.message)


def test_a_request_is_decoded_to_what_was_encoded() -> None:
    request = OpenRequest("up", "r", "u-1", "service-p-a", "ws", "ada", {"source": "git:x", "ide": None}, "t", True)
    assert frames.decode_open(payload_of(frames.encode_open(7, request))) == request


def test_fields_that_a_newer_end_adds_are_ignored() -> None:
    assert frames.decode_open(b'{"action":"ssh","future":1}') == OpenRequest("ssh")
    assert frames.decode_hello(b'{"minVersion":1,"maxVersion":2,"bootId":"b","x":[]}') == Hello(1, 2, "b")


@given(st.binary(max_size=64))
def test_any_bytes_are_decoded_or_rejected(message: bytes) -> None:
    try:
        _, stream, _ = frames.decode_frame(message)
    except FrameError:
        return
    assert 0 <= stream <= frames.MAX_STREAM


DECODERS = (
    frames.decode_data,
    frames.decode_eof,
    frames.decode_credit,
    frames.decode_exit,
    frames.decode_reason,
    frames.decode_hello,
    frames.decode_open,
    frames.decode_accept,
    frames.decode_head,
    frames.decode_refuse,
    frames.check_ping,
)


@given(st.sampled_from(DECODERS), st.binary(max_size=64) | st.sampled_from([b"[" * 10_000, b'{"a":' * 3000, b"\xff"]))
def test_any_payload_is_decoded_or_rejected(decode: object, payload: bytes) -> None:
    assert callable(decode)
    with suppress(FrameError):
        decode(payload)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x05\x00\x00\x00",
        b"\x00\x00\x00\x00\x01",
        b"\x63\x00\x00\x00\x01",
        bytes((FrameType.DATA, 0, 0, 0, 0, 1, 1)),
        bytes((FrameType.PING, 0, 0, 0, 1)) + bytes(8),
        bytes((FrameType.DATA, 255, 255, 255, 255, 1, 1)),
        bytes((FrameType.DATA, 0, 0, 0, 1)) + bytes(frames.MAX_PAYLOAD_BYTES + 1),
    ],
)
def test_frames_with_an_invalid_head_are_rejected(message: bytes) -> None:
    with pytest.raises(FrameError):
        frames.decode_frame(message)


def test_a_request_above_the_size_of_a_frame_cannot_be_encoded() -> None:
    with pytest.raises(FrameError, match="OPEN has"):
        frames.encode_open(1, OpenRequest("up", options={"x": "x" * frames.MAX_HEAD_BYTES}))
