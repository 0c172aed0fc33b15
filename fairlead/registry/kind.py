"""The words that a kind is declared with: Kind, Column, Change.

One `Kind` value is all there is to say about a kind. Routes, discovery, OpenAPI, validation, defaults, unknown-field
warnings, merge keys, `/status`, `kubectl get` tables, field selectors and authorization names derive from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.core.errors import Problem
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry import schema as words
from fairlead.registry.schema import Schema
from fairlead.storage.contract import Change as Write
from fairlead.storage.contract import Check, Key

__all__ = ["ALL_VERBS", "MANAGEMENT_GROUP", "Action", "Change", "Column", "Form", "Kind", "Problem"]

MANAGEMENT_GROUP = "management.service.sh"
"""The default of the setting `api_group`; kinds declared with this group move along when it is set."""

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`. `path` is dotted (`status.phase`) or a function of the object.

    A `wide` one needs `-o wide`; one of type `date` shows how long ago that was.
    """

    name: str
    path: str | Callable[[Object], Any]
    type: str = "string"
    description: str = ""
    wide: bool = False


@dataclass(slots=True)
class Change:
    """A write under way, as the kind's own rules and the admission chain see it.

    `old` is None on create, `new` on delete. Rules may fill in `new` (prepare, admission), add `warnings`, and hang
    further writes and conditions onto the same commit (`also`, `checks`).
    """

    verb: str
    kind: Kind
    user: User
    old: Object | None
    new: Object | None
    subresource: str = ""
    dry_run: bool = False
    arriving: bool = False
    """A create of what comes from another namespace and has a past: what the server has set on it is there rightly."""
    also: list[Write] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: Sequence[Problem] = ()
    """What the schema has against the new object. Admission comes first all the same: a 403 is said before a 422."""
    once: dict[str, str] = field(default_factory=dict)
    """Values by dotted path that the answer to this very write carries and no other: a new key, shown once. It lasts
    through all attempts of one write, so whoever finds its value in here has made it already."""

    @property
    def spec(self) -> Object:
        """The new object's spec, empty if there is none."""
        spec = (self.new or {}).get("spec")
        return spec if isinstance(spec, dict) else {}

    @property
    def obj(self) -> Object:
        """The object after the change, or the one that goes away."""
        return self.new if self.new is not None else self.old or {}


@dataclass(frozen=True, slots=True)
class Action:
    """A path below an object that does something instead of being a part of it (`ownedaccesskeys/<name>/rotate`).

    `kind` is what it takes and answers with; None for the kind that it belongs to. What it does is the server's matter.
    """

    name: str
    verbs: tuple[str, ...]
    kind: Kind | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """Says that a kind shows the objects of another one, `of`, which is the one that is stored.

    `show` and `store` turn the fields of an object from one form into the other; apiVersion, kind and metadata are
    looked after elsewhere. `fields` gives the stored kind's name for each field that can be selected by. The stored
    kind has no secret fields.
    """

    of: Kind
    show: Callable[[Object], Object]
    store: Callable[[Object], Object]
    fields: Mapping[str, str]


def _nothing(change: Change) -> None:
    return None


def _is_nobodys(obj: Object) -> bool:
    return False


def _no_problems(change: Change) -> Iterable[Problem]:
    return ()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object. `fields` are those beside apiVersion, kind and metadata: usually spec and status."""

    name: str
    plural: str
    namespaced: bool
    fields: Mapping[str, Schema]
    description: str
    group: str = MANAGEMENT_GROUP
    version: str = "v1"
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    status_subresource: bool = False
    """The status belongs to a controller: it has `/status`, and writes elsewhere leave it alone."""
    parts: tuple[str, ...] = ()
    """Further subresources that are written like the object itself (Namespace's `finalize`)."""
    columns: tuple[Column, ...] = ()
    whole_table: bool = False
    """The columns are the whole table; otherwise Name comes first and Age last by themselves."""
    selectable: tuple[str, ...] = ()
    """Dotted paths that fieldSelector accepts beside metadata.name and metadata.namespace."""
    immutable: tuple[str, ...] = ()
    """Dotted paths whose value may not change once set."""
    secret: tuple[str, ...] = ()
    """Dotted paths of credentials, a step into a list meaning each entry: sealed in the store, and left out of logs,
    audit and the console."""
    hidden: tuple[str, ...] = ()
    """Those secret paths that can be written and never read again: no answer has them, and an update without them keeps
    them."""
    unbound: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By hidden path: the fields of the same structure that may change without it. All others say what the credential
    is for, and who changes one of them has to send it again."""
    sealed: tuple[str, ...] = ()
    """Further paths, of texts that may hold a credential before anybody knows: sealed in the store, and no more."""
    conceal: Callable[[Object], None] | None = None
    """Takes what is derived from hidden fields out of an object that is to be shown. Asked for objects with one."""
    concealed: tuple[str, ...] = ()
    """Dotted paths that `conceal` changes: what comes back as it was shown is put back as it was."""
    is_the_servers: Callable[[Object], bool] = _is_nobodys
    """Whether an object is the server's own: its secret paths are hidden then, whoever asks, and nobody else writes
    them."""
    strict: tuple[str, ...] = ()
    """Dotted paths below which unknown fields are always refused: a misspelt limit must not vanish."""
    shared: bool = False
    """`spec.owner` and `spec.access` give rights to the object, and who may not list all sees those that it may get."""
    stored: bool = True
    """False for kinds that are only asked (reviews): a POST is answered and nothing is kept."""
    actions: tuple[Action, ...] = ()
    name_is_label: bool = False
    """Names are DNS labels (63 characters, no dots) instead of DNS subdomains."""
    name_is_path_segment: bool = False
    """Names are whatever can be one step of a URL path, such as `system:discovery`."""
    held_by: tuple[str, ...] = ("metadata.finalizers",)
    """Dotted paths of the lists that must be empty before a deleted object goes."""
    deleting: Callable[[Object], None] | None = None
    """Marks the object when its deletion begins, for a kind that shows it beyond metadata (Namespace's phase)."""
    prepare: Callable[[Change], None] = _nothing
    """Fills in what may be left out, after pruning and defaults and before checks. Pure."""
    check: Callable[[Change], Iterable[Problem]] = _no_problems
    """Yields every problem that a schema cannot say. Pure."""
    selectable_value: Callable[[Object, str], Any] | None = None
    """For a kind whose selectable fields are not simply their paths (Event's `source`)."""
    tracks_generation: bool = True
    """metadata.generation counts changes of the desired state; a few core kinds have none."""
    builtin: bool = False
    """Behaves like the kinds compiled into a kube-apiserver where those differ from custom resources: bodies may leave
    out kind and apiVersion, what does not decode is a 400, list items carry no types, ages in tables are text."""
    writes_without_version: bool = False
    """PUT without resourceVersion is taken as it comes (last write wins), as core kinds do."""
    empty: Mapping[str, Any] = field(default_factory=dict)
    """Fields that every object shows although nothing is in them. Whoever makes an object does not own them by that."""
    form: Form | None = None
    """Set for a second form of a kind: it has names, rules and permissions of its own, and no objects."""

    @property
    def has_servers_own(self) -> bool:
        """Whether any of its objects can be the server's own."""
        return self.is_the_servers is not _is_nobodys

    def hidden_in(self, obj: Object) -> tuple[str, ...]:
        """The paths that no answer about this object has."""
        return self.secret if self.is_the_servers(obj) else self.hidden

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.name.lower()

    @property
    def subresources(self) -> tuple[str, ...]:
        """What stands below an object's path and is written like the object."""
        return ("status", *self.parts) if self.status_subresource else self.parts

    @property
    def list_kind(self) -> str:
        return f"{self.name}List"

    @property
    def place(self) -> tuple[str, str]:
        """Where its objects are stored: the first two parts of their keys."""
        of = self if self.form is None else self.form.of
        return of.group, of.plural

    def key(self, namespace: str, name: str) -> Key:
        """Where the object is stored."""
        if self.form is None:
            return (self.group, self.plural, namespace, name)
        return (*self.place, namespace, name)

    def schema(self) -> Schema:
        """The whole object as structural OpenAPI, metadata left as the object that `registry/meta.py` looks after."""
        properties = {
            "apiVersion": words.string("Versioned schema of this representation of an object."),
            "kind": words.string("The kind of object that this is."),
            "metadata": words.free("Standard object metadata."),
            **self.fields,
        }
        return {"type": "object", "description": self.description, "properties": properties}
