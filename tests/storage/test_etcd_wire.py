"""Protobuf by hand: what goes in comes out, what is unknown is passed over, what is broken is refused.

And what a watch says, put together again: whole transactions out of fragments.
"""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.storage.etcd.history import iter_transactions
from fairlead.storage.etcd.messages import (
    KeyValue,
    WatchEvent,
    WatchResponse,
    decode_fields,
    encode_bytes,
    encode_int,
    encode_message,
)

FIELD = st.integers(1, 15)
INTEGER = st.tuples(FIELD, st.integers(-(2**63), 2**63 - 1).filter(bool), st.just(b""))
TEXT = st.tuples(FIELD, st.just(0), st.binary(min_size=1, max_size=300))


@given(st.lists(INTEGER | TEXT))
def test_fields_come_back_as_they_were_sent(sent: list[tuple[int, int, bytes]]) -> None:
    encoded = b"".join([encode_bytes(field, content) or encode_int(field, integer) for field, integer, content in sent])
    assert list(decode_fields(encoded)) == sent


def test_numbers_are_as_protobuf_documents_them() -> None:
    assert encode_int(1, 150) == b"\x08\x96\x01"
    assert encode_int(2, -1) == b"\x10" + b"\xff" * 9 + b"\x01"
    assert encode_bytes(2, b"testing") == b"\x12\x07testing"
    assert encode_message(3, encode_int(1, 150)) == b"\x1a\x03\x08\x96\x01"


def test_what_holds_its_default_is_left_out_but_an_empty_message_is_not() -> None:
    assert encode_int(1, 0) + encode_bytes(2, b"") == b""
    assert encode_message(3, b"") == b"\x1a\x00"


def test_fields_of_later_versions_are_passed_over() -> None:
    unknown = b"\x99\x06" + bytes(8) + b"\x9d\x06" + bytes(4) + b"\xa2\x06\x02xy" + b"\xa8\x06\x07"
    encoded = unknown + encode_bytes(1, b"k") + unknown + encode_int(3, 7) + encode_bytes(5, b"v") + unknown
    assert KeyValue.parse(encoded) == KeyValue(b"k", b"v", 0, 7)
    assert WatchResponse.parse(unknown).events == []


@pytest.mark.parametrize("encoded", [b"\x08", b"\x08\x80", b"\x12\x05abc", b"\x0b", b"\x80", b"\x09abc"])
def test_what_breaks_off_or_makes_no_sense_is_refused(encoded: bytes) -> None:
    with pytest.raises(ValueError):
        list(decode_fields(encoded))


def notice(*revisions: int, at: int = 0, fragment: bool = False, created: bool = False) -> WatchResponse:
    happenings = [WatchEvent(KeyValue(b"k", b"v", 1, revision), deleted=False) for revision in revisions]
    return WatchResponse(at, created, False, 0, "", fragment, happenings)


async def said(*notices: WatchResponse) -> AsyncIterator[WatchResponse]:
    for each in notices:
        yield each


async def test_transactions_are_whole_though_messages_tear_them() -> None:
    notices = [notice(created=True), notice(5, 6, fragment=True), notice(6, 6, fragment=True), notice(6, 8), notice(9)]
    found = [(revision, len(happenings)) async for revision, happenings in iter_transactions(said(*notices))]
    assert found == [(5, 1), (6, 4), (8, 1), (9, 1)]


async def test_a_transaction_that_breaks_off_is_not_told_of() -> None:
    notices = [notice(5, 6, fragment=True), notice(6, fragment=True)]
    assert [revision async for revision, _ in iter_transactions(said(*notices))] == [5]


async def test_word_of_progress_says_how_far_the_watch_has_come() -> None:
    assert [each async for each in iter_transactions(said(notice(at=7), notice(at=9)))] == [(7, ()), (9, ())]
