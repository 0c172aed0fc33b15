"""The messages on the WebSocket of a client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.links.frames import STDERR, STDOUT
from fairlead.subresources.workspaces.session import (
    MAX_MESSAGE_BYTES,
    ClientMessageError,
    decode_stdin,
    encode_close,
    encode_data,
    encode_exit_code,
)


def decode_zig_zag(encoded: bytes) -> int:
    value = sum((byte & 0x7F) << (7 * index) for index, byte in enumerate(encoded))
    return value >> 1 if value % 2 == 0 else -(value + 1) >> 1


@given(st.integers(-(2**31), 2**31 - 1))
def test_exit_codes_are_zig_zag_varints(code: int) -> None:
    encoded = encode_exit_code(code)
    assert encoded[0] == 6
    assert decode_zig_zag(encoded[1:]) == code
    assert all(byte & 0x80 for byte in encoded[1:-1])
    assert not encoded[-1] & 0x80


@pytest.mark.parametrize(("code", "encoded"), [(0, "00"), (1, "02"), (-1, "01"), (64, "8001"), (130, "8402")])
def test_exit_codes_as_existing_clients_expect_them(code: int, encoded: str) -> None:
    assert encode_exit_code(code)[1:].hex() == encoded


def test_output_has_the_type_of_its_channel() -> None:
    assert encode_data(STDOUT, b"o") == b"\x00o"
    assert encode_data(STDERR, b"e") == b"\x02e"
    assert (encode_close(STDOUT), encode_close(STDERR)) == (b"\x01", b"\x03")


def test_input_is_decoded() -> None:
    assert decode_stdin(b"\x04ls\n") == b"ls\n"
    assert decode_stdin(b"\x05") is None
    assert decode_stdin(b"\x04" + bytes(MAX_MESSAGE_BYTES - 1)) == bytes(MAX_MESSAGE_BYTES - 1)


@pytest.mark.parametrize(
    ("message", "code"),
    [("text", 1003), (b"", 1002), (b"\x00x", 1002), (b"\x06\x00", 1002), (b"\x04" + bytes(MAX_MESSAGE_BYTES), 1009)],
)
def test_other_messages_are_rejected_with_the_code_to_close_with(message: bytes | str, code: int) -> None:
    with pytest.raises(ClientMessageError) as error:
        decode_stdin(message)
    assert error.value.code == code
