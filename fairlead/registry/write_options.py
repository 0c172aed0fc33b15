"""How a write was asked for, and what came of it: the values that pass between the verbs and the registry."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from fairlead.core.user import CONTROLLER, User
from fairlead.storage.view.view import Entry, Stretch

MAX_WARNINGS = 100

SERVER = "fairlead"
"""What the server calls itself where managedFields name who set a field."""


def _anybody_may() -> None:
    return None


@dataclass(slots=True)
class Writing:
    """Who writes, and the options that came with it. `warnings` collects what the writer should be told.

    Nothing else of it changes. It is not frozen all the same: each write makes one, and that would take thrice as long.
    """

    user: User
    manager: str = "unknown"
    dry_run: bool = False
    field_validation: str = "Warn"
    subresource: str = ""
    patching: bool = False
    """The new object was computed from the old one, so what is wrong with it is wrong with the patch."""
    applying: bool = False
    """The new object was applied: its managedFields are reckoned already, and name the fields that the writer wants."""
    force: bool = False
    """With `applying`: take fields over that others own."""
    warnings: list[str] = field(default_factory=list)
    before_creating: Callable[[], None] = _anybody_may
    """Asked when an apply finds nothing to change: it takes the right to create to go on."""
    size: int = 0
    """Bytes of what was sent, and of what it can grow to: work on something large is done in a thread."""

    def tell(self, warnings: Iterable[str]) -> None:
        """Each once, however often the write has to be tried, and no more than anybody would read."""
        for warning in islice(warnings, MAX_WARNINGS):
            if len(self.warnings) < MAX_WARNINGS and warning not in self.warnings:
                self.warnings.append(warning)


def by_the_server(subresource: str = "") -> Writing:
    """A write that the server does by itself, to keep things true."""
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
    """What a delete did: `gone`, or still there with its finalizers. `body` is the object's last known state."""

    gone: bool
    body: bytes
    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A piece of a list: the entries, the snapshot they stand for, where to go on, and how many more there are."""

    entries: Stretch | list[Entry]
    revision: int
    token: str = ""
    remaining: int | None = None
