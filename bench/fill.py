"""Writes many objects to the store of a stopped server, directly through the storage layer.

`growth.py` uses it: a million creates over HTTP would take most of a run. The objects are copies of one
that the server has stored itself, under other names.
"""

from pathlib import Path

from bench.objects import GROUP, name_object, name_team
from fairlead.storage.contract import Key, Write
from fairlead.storage.sqlite import SqliteStore

PER_COMMIT = 10_000
UID_DIGITS = 12
DATABASE = "fairlead.db"


async def fill(data: Path, objects: int) -> None:
    """Copies the first object until there are this many."""
    store = await SqliteStore.open(str(data / DATABASE))
    try:
        record = await store.read(_build_key(0))
        if record is None:
            raise RuntimeError("there is no first object to copy")
        for start in range(1, objects, PER_COMMIT):
            numbers = range(start, min(start + PER_COMMIT, objects))
            await store.commit([Write(_build_key(number), _copy(record.value, number), 0) for number in numbers])
        # As after some minutes: old history is compacted.
        await store.compact(await store.revision())
    finally:
        await store.close()


def _build_key(number: int) -> Key:
    return (GROUP, "apps", "", name_object(number))


def _copy(value: bytes, number: int) -> bytes:
    uid = value.index(b'"uid":"') + len(b'"uid":"00000000-0000-0000-0000-')
    with_uid = b"%b%012x%b" % (value[:uid], number, value[uid + UID_DIGITS :])
    with_name = with_uid.replace(b'"%b"' % name_object(0).encode(), b'"%b"' % name_object(number).encode())
    return with_name.replace(b'"%b"' % name_team(0).encode(), b'"%b"' % name_team(number).encode())
