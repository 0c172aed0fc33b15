"""storage/etcd/messages.py and history.py: unknown fields are skipped, and fragments become whole transactions."""

from collections.abc import AsyncIterator

from fairlead.core.protobuf_wire import encode_bytes, encode_int
from fairlead.storage.etcd.history import iter_transactions
from fairlead.storage.etcd.messages import KeyValue, WatchEvent, WatchResponse


def test_unknown_fields_are_skipped() -> None:
    unknown = b"\x99\x06" + bytes(8) + b"\x9d\x06" + bytes(4) + b"\xa2\x06\x02xy" + b"\xa8\x06\x07"
    encoded = unknown + encode_bytes(1, b"k") + unknown + encode_int(3, 7) + encode_bytes(5, b"v") + unknown
    assert KeyValue.parse(encoded) == KeyValue(b"k", b"v", 0, 7)
    assert WatchResponse.parse(unknown).events == []


def build_response(*revisions: int, at: int = 0, fragment: bool = False, created: bool = False) -> WatchResponse:
    events = [WatchEvent(KeyValue(b"k", b"v", 1, revision), deleted=False) for revision in revisions]
    return WatchResponse(at, created, False, 0, "", fragment, events)


async def stream(*responses: WatchResponse) -> AsyncIterator[WatchResponse]:
    for each in responses:
        yield each


async def test_fragmented_transactions_are_reassembled() -> None:
    responses = [
        build_response(created=True),
        build_response(5, 6, fragment=True),
        build_response(6, 6, fragment=True),
        build_response(6, 8),
        build_response(9),
    ]
    found = [(revision, len(events)) async for revision, events in iter_transactions(stream(*responses))]
    assert found == [(5, 1), (6, 4), (8, 1), (9, 1)]


async def test_an_incomplete_transaction_is_not_returned() -> None:
    responses = [build_response(5, 6, fragment=True), build_response(6, fragment=True)]
    assert [revision async for revision, _ in iter_transactions(stream(*responses))] == [5]


async def test_progress_notifications_report_the_revision() -> None:
    assert [each async for each in iter_transactions(stream(build_response(at=7), build_response(at=9)))] == [
        (7, ()),
        (9, ()),
    ]
