"""What the runner remembers of a workspace in a cluster: a file for each uid, written before anything is created.

Objects are found by it, also when the template is gone or names another place. If the file is lost, labels tell where
the objects are, and the rest is found out anew.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from fairlead.core.body_errors import Malformed
from fairlead.core.files import ensure_private_folder, read_file, write_file
from fairlead.core.json import decode, encode_pretty

UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True)
class Session:
    """How processes inside are started. Empty until the first Pod has run."""

    user: str = ""
    container_user: str = ""
    """The number of the user of the container. Root can become another user."""
    folder: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Expressions of a shell."""


NO_SESSION = Session()


@dataclass(frozen=True, slots=True)
class Record:
    uid: str
    cluster: str
    """The name of the context."""
    namespace: str
    project: str = "workspace"
    """The name of the work folder. It does not follow the name of the workspace."""
    configuration: str | None = None
    """The devcontainer.json. Empty: the source has none. None: not read yet."""
    session: Session = NO_SESSION
    ready_pod: str = ""
    """The uid of the Pod whose lifecycle commands have ended."""
    ready_template: str = ""


class Records:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / "workspaces"

    def find(self, uid: str) -> Record | None:
        content = read_file(self._path(uid))
        if content is None:
            return None
        try:
            fields = decode(content)
            return Record(**{**fields, "session": Session(**fields["session"])})
        except (Malformed, TypeError, KeyError):
            return None  # of another version, or damaged: the labels tell the rest

    def save(self, record: Record) -> Record:
        ensure_private_folder(self._folder)
        write_file(self._path(record.uid), encode_pretty(asdict(record)))
        return record

    def update(self, record: Record, **changes: object) -> Record:
        return self.save(replace(record, **changes))  # type: ignore[arg-type]

    def remove(self, uid: str) -> None:
        self._path(uid).unlink(missing_ok=True)

    def list_all(self) -> Iterator[Record]:
        paths = sorted(self._folder.glob("*.json")) if self._folder.is_dir() else []
        for path in paths:
            if (record := self.find(path.stem)) is not None:
                yield record

    def _path(self, uid: str) -> Path:
        if not UID.fullmatch(uid):
            raise ValueError(f"{uid!r} is not a uid")
        return self._folder / f"{uid}.json"
