"""Options of writes and deletes, and results of deletes and lists, passed between the verbs and the registry."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from msgspec import Struct

from fairlead.core.user import CONTROLLER_USER, User
from fairlead.storage.view.view import ChunkSlice, Entry

MAX_WARNINGS = 100

SERVER_MANAGER = "fairlead"
"""The server's own field manager in managedFields."""


def _allow() -> None:
    return None


class WriteOptions(Struct, eq=False):  # one for every write: a Struct is created much faster than a dataclass
    """The requester and the options of a write. `warnings` collects warnings for the response."""

    user: User
    field_manager: str = "unknown"
    dry_run: bool = False
    field_validation: str = "Warn"
    subresource: str = ""
    is_patch: bool = False
    """The new object was computed from the old one, so problems with it are problems of the patch."""
    is_apply: bool = False
    """The new object is the result of an apply: its managedFields are computed already."""
    force: bool = False
    """With `is_apply`: take over fields that other managers own."""
    warnings: list[str] = []
    authorize_create: Callable[[], None] = _allow
    """Called when an apply finds no object. Raises if the requester may not create it."""
    size: int = 0
    """Bytes of the body, and of what it can grow to. Large objects are processed in a thread."""

    def add_warnings(self, warnings: Iterable[str]) -> None:
        """Adds warnings without duplicates (a write may be retried), up to `MAX_WARNINGS`."""
        for warning in islice(warnings, MAX_WARNINGS):
            if len(self.warnings) < MAX_WARNINGS and warning not in self.warnings:
                self.warnings.append(warning)


def server_write_options(subresource: str = "") -> WriteOptions:
    """Options of a write by the server itself."""
    return WriteOptions(CONTROLLER_USER, SERVER_MANAGER, subresource=subresource)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The options of a delete. `propagation` is empty, Background, Foreground or Orphan."""

    uid: str | None = None
    resource_version: str | None = None
    propagation: str = ""
    grace_period_seconds: int | None = None
    is_cascading: bool = False
    """The deprecated `orphanDependents: false`: a delete that takes time is answered with 202."""


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The result of a delete. `is_removed` is False if finalizers block it. `body` is the object's last state."""

    is_removed: bool
    body: bytes
    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a list: its entries, the revision of the snapshot, the continue token and the number of remaining
    items."""

    entries: ChunkSlice | list[Entry]
    revision: int
    continue_token: str = ""
    remaining_count: int | None = None
