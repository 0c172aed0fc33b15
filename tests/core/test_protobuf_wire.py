"""The protobuf wire format: fields are decoded as they were encoded, and invalid data is rejected."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.body_errors import Malformed
from fairlead.core.protobuf_wire import (
    BYTES,
    FIXED64,
    VARINT,
    decode_fields,
    encode_bytes,
    encode_double,
    encode_int,
    encode_nonempty_bytes,
    encode_nonzero_int,
)

FIELD = st.integers(1, 127)
INTEGER = st.tuples(FIELD, st.just(VARINT), st.integers(-(2**63), 2**63 - 1), st.just(b""))
CONTENT = st.tuples(FIELD, st.just(BYTES), st.just(0), st.binary(max_size=3000))


@given(st.lists(INTEGER | CONTENT))
def test_fields_are_decoded_as_they_were_encoded(sent: list[tuple[int, int, int, bytes]]) -> None:
    encoded = b"".join(
        encode_int(field, integer) if wire_type == VARINT else encode_bytes(field, content)
        for field, wire_type, integer, content in sent
    )
    assert list(decode_fields(encoded)) == sent


def test_fields_are_encoded_as_protobuf_documents_them() -> None:
    assert encode_int(1, 150) == b"\x08\x96\x01"
    assert encode_int(2, -1) == b"\x10" + b"\xff" * 9 + b"\x01"
    assert encode_bytes(2, b"testing") == b"\x12\x07testing"
    assert encode_bytes(3, encode_int(1, 150)) == b"\x1a\x03\x08\x96\x01"
    assert encode_int(16, 1) == b"\x80\x01\x01"


def test_the_default_value_is_omitted_only_where_the_name_says_so() -> None:
    assert encode_nonzero_int(1, 0) + encode_nonempty_bytes(2, b"") == b""
    assert encode_int(1, 0) + encode_bytes(3, b"") == b"\x08\x00\x1a\x00"
    assert encode_nonzero_int(1, 300) + encode_nonempty_bytes(2, b"x") == encode_int(1, 300) + encode_bytes(2, b"x")


def test_a_double_is_eight_bytes() -> None:
    assert list(decode_fields(encode_double(9, 0.5))) == [(9, FIXED64, 0, struct.pack("<d", 0.5))]


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x08",
        b"\x08\x80",
        b"\x12\x05abc",
        b"\x12" + b"\xff" * 9 + b"\x01abc",
        b"\x0b",
        b"\x80",
        b"\x09abc",
        b"\x0dabc",
        b"\x08" + b"\xff" * 9 + b"\x02",
        b"\x08" + b"\x80" * 10 + b"\x00",
        b"\x80" * 20,
    ],
    ids=lambda encoded: encoded.hex(),
)
def test_invalid_data_is_rejected(encoded: bytes) -> None:
    with pytest.raises(Malformed):
        list(decode_fields(encoded))


def test_the_largest_integers_are_64_bits() -> None:
    assert list(decode_fields(b"\x08" + b"\xff" * 9 + b"\x01")) == [(1, VARINT, -1, b"")]
    assert list(decode_fields(b"\x08" + b"\xff" * 8 + b"\x7f")) == [(1, VARINT, 2**63 - 1, b"")]
