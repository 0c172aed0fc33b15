"""What must be known of workspaces after kill -9 or a reboot: a file for each uid, for the runner and for its engines.

A file is replaced atomically and synced to the disk before anything is done, so that the next process finds all that
may have had an effect. Writes block the event loop for as long as the disk takes: acts are rare, and each takes far
longer. The files are readable by the runner only.
"""

import os
import re
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import structlog

from fairlead.core.files import ensure_private_folder, read_file, write_file

log = structlog.get_logger(__name__)

_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,62}")


class UidRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of the workspace with this uid."""

    uid: str


Record = TypeVar("Record", bound=UidRecord)


def is_valid_uid(uid: str) -> bool:
    """Whether the uid can be a part of a file name, and an argument of a program. Uids of objects are UUIDs."""
    return _UID.fullmatch(uid) is not None


class RecordFolder(Generic[Record]):
    """The records of all workspaces, in memory and in a folder. No other process writes there."""

    def __init__(self, folder: Path, record_type: type[Record]) -> None:
        self._folder = ensure_private_folder(folder)
        self._records: dict[str, Record] = {}
        for draft in self._folder.glob(".*"):  # of a process that was killed while it wrote
            draft.unlink()
        for path in sorted(self._folder.glob("*.json")):
            record = _read_record(path, record_type)
            if record is not None:
                self._records[record.uid] = record

    def get(self, uid: str) -> Record | None:
        return self._records.get(uid)

    def records(self) -> list[Record]:
        return list(self._records.values())

    def put(self, record: Record) -> Record:
        """Stores a record durably, and returns it."""
        if self._records.get(record.uid) != record:
            write_file(self._path(record.uid), msgspec.json.encode(record))
            self._records[record.uid] = record
        return record

    def remove(self, uid: str) -> None:
        self._records.pop(uid, None)
        self._path(uid).unlink(missing_ok=True)

    def _path(self, uid: str) -> Path:
        if not is_valid_uid(uid):
            raise ValueError(f"{uid!r} is not a uid")
        return self._folder / f"{uid}.json"


def _read_record(path: Path, record_type: type[Record]) -> Record | None:
    """None if the disk has damaged the file. Its workspace is then found by its engine, and not deleted."""
    content = read_file(path) or b""
    try:
        record = msgspec.json.decode(content, type=record_type)
    except msgspec.MsgspecError as error:
        damaged = path.with_suffix(".damaged")
        log.error("the record of a workspace is damaged", path=str(damaged), error=str(error))
        os.replace(path, damaged)
        return None
    return record if record.uid == path.stem else None
