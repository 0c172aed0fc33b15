"""Executes the requests of workers on the owner's store. Every request has exactly one response, of bounded size."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import structlog

from fairlead.core.framed_socket import encode_frame
from fairlead.storage.commit import pack_key, unpack_key
from fairlead.storage.contract import Compacted, RevisionConflict, Store, StoreUnavailable
from fairlead.storage.socket.frames import (
    CHECK_WRITABLE,
    COMPACT,
    COMPACTED,
    CONFLICT,
    INVALID,
    NUMBER,
    OLDEST,
    PURGE_DELETED,
    READ,
    REPLAY,
    REQUEST,
    RESPONSE,
    ROWS,
    ROWS_ARE_COMPLETE,
    ROWS_HAVE_MORE,
    SCAN,
    UNAVAILABLE,
    decode_scan,
    encode_result,
    encode_row,
)

SCAN_RECORDS, SCAN_BYTES = 1_000, 4 * 1024 * 1024
"""Records that are read at once, and the size above which the others are discarded, which is rare. A worker requests
the next piece of a longer scan."""

INTERNAL_ERROR_MESSAGE = "the store has failed with an internal error; see the log"

log = structlog.get_logger(__name__)


async def execute_request(store: Store, frame: bytes) -> bytes:
    """Execute a request other than a commit, and return its response. Errors are responses, too."""
    kind, id = REQUEST.unpack_from(frame)
    try:
        return await EXECUTORS[kind](store, id, frame)
    except Exception as error:  # noqa: BLE001 - the worker gets every error
        return encode_error(id, error)


def encode_error(id: int, error: BaseException) -> bytes:
    """The response for a request that has failed."""
    match error:
        case RevisionConflict():
            return encode_frame(RESPONSE.pack(CONFLICT, id, error.actual), pack_key(error.key))
        case Compacted():
            return encode_frame(RESPONSE.pack(COMPACTED, id, error.requested), NUMBER.pack(error.oldest))
        case StoreUnavailable():
            return encode_frame(RESPONSE.pack(UNAVAILABLE, id, 0), str(error).encode())
        case ValueError():
            return encode_frame(RESPONSE.pack(INVALID, id, 0), str(error).encode())
    log.error("a request of a worker to the store failed", exc_info=error)
    return encode_frame(RESPONSE.pack(UNAVAILABLE, id, 0), INTERNAL_ERROR_MESSAGE.encode())


async def _read(store: Store, id: int, frame: bytes) -> bytes:
    record = await store.read(unpack_key(frame[REQUEST.size :]))
    rows = [] if record is None else [encode_row(pack_key(record.key), record.value, record.revision)]
    return encode_frame(RESPONSE.pack(ROWS, id, 0), ROWS_ARE_COMPLETE, *rows)


async def _scan(store: Store, id: int, frame: bytes) -> bytes:
    prefix, after, limit, at = decode_scan(frame)
    page = await store.scan(prefix, after=after, limit=min(limit or SCAN_RECORDS, SCAN_RECORDS), at=at)
    rows: list[bytes] = []
    size = 0
    for record in page.records:
        row = encode_row(pack_key(record.key), record.value, record.revision)
        rows.append(row)
        size += len(row)
        if size >= SCAN_BYTES:
            break
    has_more = page.has_more or len(rows) < len(page.records)
    return encode_frame(
        RESPONSE.pack(ROWS, id, page.revision), ROWS_HAVE_MORE if has_more else ROWS_ARE_COMPLETE, *rows
    )


async def _replay(store: Store, id: int, frame: bytes) -> bytes:
    """The next events after a revision, which the worker knows not to be the newest. The number is the revision that
    they reach."""
    (since,) = NUMBER.unpack_from(frame, REQUEST.size)
    prefix = unpack_key(frame[REQUEST.size + NUMBER.size :])
    # Without the prefix, there is always an event, so this does not wait for the next commit.
    async with aclosing(store.watch((), since)) as batches:  # type: ignore[type-var]  # the stores return generators
        async for batch in batches:
            rows = [
                encode_row(pack_key(event.key), event.value, event.revision)
                for event in batch
                if event.key[: len(prefix)] == prefix
            ]
            return encode_frame(RESPONSE.pack(ROWS, id, batch[-1].revision), ROWS_ARE_COMPLETE, *rows)
    raise StoreUnavailable("the store is closed")


async def _oldest(store: Store, id: int, frame: bytes) -> bytes:
    return encode_result(id, await store.oldest())


async def _compact(store: Store, id: int, frame: bytes) -> bytes:
    await store.compact(*NUMBER.unpack_from(frame, REQUEST.size))
    return encode_result(id, 0)


async def _purge_deleted(store: Store, id: int, frame: bytes) -> bytes:
    await store.purge_deleted()
    return encode_result(id, 0)


async def _check_writable(store: Store, id: int, frame: bytes) -> bytes:
    await store.check_writable()
    return encode_result(id, 0)


EXECUTORS: dict[int, Callable[[Store, int, bytes], Awaitable[bytes]]] = {
    READ: _read,
    SCAN: _scan,
    REPLAY: _replay,
    OLDEST: _oldest,
    COMPACT: _compact,
    PURGE_DELETED: _purge_deleted,
    CHECK_WRITABLE: _check_writable,
}
