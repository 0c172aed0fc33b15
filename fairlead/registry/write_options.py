"""Options of writes and deletes, and results of deletes and lists, passed between the verbs and the registry."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from fairlead.core.user import CONTROLLER, User
from fairlead.storage.view.view import Entry, Stretch

MAX_WARNINGS = 100

SERVER = "fairlead"
"""The server's own field manager in managedFields."""


def _anybody_may() -> None:
    return None


@dataclass(slots=True)
class Writing:
    """The requester and the options of a write. `warnings` collects warnings for the response.

    Only `warnings` changes. It is not frozen because creating a frozen dataclass takes three times as long.
    """

    user: User
    manager: str = "unknown"
    dry_run: bool = False
    field_validation: str = "Warn"
    subresource: str = ""
    patching: bool = False
    """The new object was computed from the old one, so problems with it are problems of the patch."""
    applying: bool = False
    """The new object is the result of an apply: its managedFields are computed already."""
    force: bool = False
    """With `is_apply`: take over fields that other managers own."""
    warnings: list[str] = field(default_factory=list)
    before_creating: Callable[[], None] = _anybody_may
    """Called when an apply finds no object. Raises if the requester may not create it."""
    size: int = 0
    """Bytes of the body, and of what it can grow to. Large objects are processed in a thread."""

    def tell(self, warnings: Iterable[str]) -> None:
        """Adds warnings without duplicates (a write may be retried), up to `MAX_WARNINGS`."""
        for warning in islice(warnings, MAX_WARNINGS):
            if len(self.warnings) < MAX_WARNINGS and warning not in self.warnings:
                self.warnings.append(warning)


def by_the_server(subresource: str = "") -> Writing:
    """Options of a write by the server itself."""
    return Writing(CONTROLLER, SERVER, subresource=subresource)


@dataclass(frozen=True, slots=True)
class Deleting:
    """The options of a delete. `propagation` is empty, Background, Foreground or Orphan."""

    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Deleted:
    """The result of a delete. `is_removed` is False if finalizers block it. `body` is the object's last state."""

    gone: bool
    body: bytes
    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of a list: its entries, the revision of the snapshot, the continue token and the number of remaining
    items."""

    entries: Stretch | list[Entry]
    revision: int
    token: str = ""
    remaining: int | None = None
