"""etcd's messages: fields of later versions are passed over.

And what a watch says, put together again: whole transactions out of fragments.
"""

from collections.abc import AsyncIterator

from fairlead.core.protobuf_wire import encode_bytes, encode_int
from fairlead.storage.etcd.history import iter_transactions
from fairlead.storage.etcd.messages import KeyValue, WatchEvent, WatchResponse


def test_fields_of_later_versions_are_passed_over() -> None:
    unknown = b"\x99\x06" + bytes(8) + b"\x9d\x06" + bytes(4) + b"\xa2\x06\x02xy" + b"\xa8\x06\x07"
    encoded = unknown + encode_bytes(1, b"k") + unknown + encode_int(3, 7) + encode_bytes(5, b"v") + unknown
    assert KeyValue.parse(encoded) == KeyValue(b"k", b"v", 0, 7)
    assert WatchResponse.parse(unknown).events == []


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
