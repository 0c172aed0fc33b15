"""Many objects put into the store of a server that is not running, straight through the storage layer.

`growth.py` calls it: a million creates over HTTP would take most of a run. What is stored is what the server itself has
stored for one object, under other names.
"""

from pathlib import Path

from bench.objects import GROUP, name_of, team_of
from fairlead.storage.contract import Key, Write
from fairlead.storage.sqlite import SqliteStore

PER_COMMIT = 10_000
UID_DIGITS = 12
DATABASE = "fairlead.db"


async def fill(data: Path, objects: int) -> None:
    """Copies of the first object, until there are so many."""
    store = await SqliteStore.open(str(data / DATABASE))
    try:
        record = await store.read(_key(0))
        if record is None:
            raise RuntimeError("there is no first object to copy")
        for start in range(1, objects, PER_COMMIT):
            numbers = range(start, min(start + PER_COMMIT, objects))
            await store.commit([Write(_key(number), _copy(record.value, number), 0) for number in numbers])
        # As after some minutes: history that nobody needs any more is gone.
        await store.compact(await store.revision())
    finally:
        await store.close()


def _key(number: int) -> Key:
    return (GROUP, "apps", "", name_of(number))


def _copy(value: bytes, number: int) -> bytes:
    uid = value.index(b'"uid":"') + len(b'"uid":"00000000-0000-0000-0000-')
    own = b"%b%012x%b" % (value[:uid], number, value[uid + UID_DIGITS :])
    named = own.replace(b'"%b"' % name_of(0).encode(), b'"%b"' % name_of(number).encode())
    return named.replace(b'"%b"' % team_of(0).encode(), b'"%b"' % team_of(number).encode())
