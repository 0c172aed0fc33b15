"""How a kind is declared: `Kind`, `Column`, `Action`, `Conversion`, and the `Change` that its rules see.

One `Kind` value declares everything about a kind. Routes, discovery, OpenAPI, validation, defaults, unknown-field
warnings, merge keys, `/status`, `kubectl get` tables, field selectors and authorization names derive from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.core.errors import Problem
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry import schema as openapi
from fairlead.registry.schema import Schema
from fairlead.storage.contract import Change as Write
from fairlead.storage.contract import Check, Key

__all__ = ["ALL_VERBS", "MANAGEMENT_GROUP", "Action", "Change", "Column", "Form", "Kind", "Problem"]

MANAGEMENT_GROUP = "management.service.sh"
"""Default of the setting `api_group`. Kinds declared with this group move to the configured one."""

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column of `kubectl get`. `path` is a dotted path (`status.phase`) or a function of the object.

    `wide` columns appear only with `-o wide`; columns of type `date` show an age.
    """

    name: str
    path: str | Callable[[Object], Any]
    type: str = "string"
    description: str = ""
    wide: bool = False


@dataclass(slots=True)
class Change:
    """A write in progress, as seen by the kind's own rules and by the admission chain.

    `old` is None on create, `new` is None on delete. Rules may set defaults in `new`, add `warnings`, and add writes
    and preconditions to the same commit (`extra_writes`, `preconditions`).
    """

    verb: str
    kind: Kind
    user: User
    old: Object | None
    new: Object | None
    subresource: str = ""
    dry_run: bool = False
    arriving: bool = False
    """A create of an object that moves in from another namespace: server-set fields on it are legitimate."""
    also: list[Write] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: Sequence[Problem] = ()
    """What schema validation found wrong with the new object. Admission runs first: a 403 takes precedence over a 422."""
    once: dict[str, str] = field(default_factory=dict)
    """Values by dotted path that only the response to this write contains, such as a new access key. It is kept across
    the retries of one write, so a rule that finds its value here must not generate another."""

    @property
    def spec(self) -> Object:
        """The new object's spec; empty if it has none."""
        spec = (self.new or {}).get("spec")
        return spec if isinstance(spec, dict) else {}

    @property
    def obj(self) -> Object:
        """The object after the change; for a delete, the object that is deleted."""
        return self.new if self.new is not None else self.old or {}


@dataclass(frozen=True, slots=True)
class Action:
    """An action subresource, which does something instead of reading or writing a part
    (`ownedaccesskeys/<name>/rotate`).

    `kind` is the kind of its request and response body; None for the kind it belongs to. The server implements the
    action.
    """

    name: str
    verbs: tuple[str, ...]
    kind: Kind | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """Declares that a kind serves the objects of another kind, `stored_kind`, converted on read and write.

    `from_stored` and `to_stored` convert the fields of an object. apiVersion, kind and metadata are handled by
    `registry/codec.py`. `field_names` maps each selectable field to its name in the stored kind. The stored kind must
    not have sensitive fields.
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
    """A kind of object. `fields` are the top-level fields besides apiVersion, kind and metadata, usually spec and
    status."""

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
    """The kind has `/status`, and writes to the main resource ignore the status."""
    parts: tuple[str, ...] = ()
    """Further subresources that are written like the object itself (`finalize` of Namespace)."""
    columns: tuple[Column, ...] = ()
    whole_table: bool = False
    """The columns are the complete table. Otherwise Name is added in front and Age at the end."""
    selectable: tuple[str, ...] = ()
    """Dotted paths that fieldSelector accepts besides metadata.name and metadata.namespace."""
    immutable: tuple[str, ...] = ()
    """Dotted paths whose value must not change once set."""
    secret: tuple[str, ...] = ()
    """Dotted paths of credentials; a path through a list covers each entry. They are encrypted at rest and left out of
    logs, audit events and the console."""
    hidden: tuple[str, ...] = ()
    """The sensitive paths that are write-only: no response contains them, and an update that omits them keeps them."""
    unbound: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By write-only path: sibling fields that may change without the credential being sent again. A change to any other
    sibling may redirect the credential, so the requester must send it again."""
    sealed: tuple[str, ...] = ()
    """Further paths, of text that may contain a credential. They are encrypted at rest, and served as usual."""
    conceal: Callable[[Object], None] | None = None
    """Removes values derived from write-only fields from an object before it is served. Called only for objects that
    have write-only fields."""
    concealed: tuple[str, ...] = ()
    """Dotted paths that `redact_derived` changes. An update that sends back the redacted value keeps the stored one."""
    is_the_servers: Callable[[Object], bool] = _is_nobodys
    """Whether the server owns an object. All its sensitive paths are then write-only, and only the server may write
    them."""
    strict: tuple[str, ...] = ()
    """Dotted paths below which unknown fields are always rejected, because dropping a misspelt restriction is
    dangerous."""
    shared: bool = False
    """`spec.owner` and `spec.access` grant rights on the object. Users who may not list all objects get a filtered
    list."""
    stored: bool = True
    """False for kinds that are never persisted, such as access reviews: a POST is only answered."""
    actions: tuple[Action, ...] = ()
    name_is_label: bool = False
    """Names are DNS labels (63 characters, no dots) instead of DNS subdomains."""
    name_is_path_segment: bool = False
    """Names may be any single URL path segment, such as `system:discovery`."""
    held_by: tuple[str, ...] = ("metadata.finalizers",)
    """Dotted paths of the lists that must be empty before a deleted object is removed."""
    deleting: Callable[[Object], None] | None = None
    """Called on the object when its deletion begins, for kinds that also show it outside metadata (phase of Namespace).
    """
    prepare: Callable[[Change], None] = _nothing
    """Sets default values, after pruning and schema defaults and before the checks. Pure."""
    check: Callable[[Change], Iterable[Problem]] = _no_problems
    """Yields every problem that the schema cannot express. Pure."""
    selectable_value: Callable[[Object, str], Any] | None = None
    """Reads a selectable field, for a kind where the value is not simply at the path (`source` of Event)."""
    tracks_generation: bool = True
    """metadata.generation counts changes of the desired state. Some core kinds do not have it."""
    builtin: bool = False
    """Behaves like the built-in kinds of a kube-apiserver where those differ from custom resources: bodies may omit
    kind and apiVersion, decoding errors are a 400, list items have no kind and apiVersion, ages in tables are text."""
    writes_without_version: bool = False
    """PUT without resourceVersion is accepted (unconditional update), as for core kinds."""
    empty: Mapping[str, Any] = field(default_factory=dict)
    """Fields that every object has even if they are empty. Creating an object does not make its manager own them."""
    form: Form | None = None
    """Set for a kind that serves the objects of another one: it has its own names, rules and permissions, but no
    storage."""

    @property
    def has_servers_own(self) -> bool:
        """Whether the server can own any of its objects."""
        return self.is_the_servers is not _is_nobodys

    def hidden_in(self, obj: Object) -> tuple[str, ...]:
        """The paths that no response about this object contains."""
        return self.secret if self.is_the_servers(obj) else self.hidden

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.name.lower()

    @property
    def subresources(self) -> tuple[str, ...]:
        """Subresources that are written like the object."""
        return ("status", *self.parts) if self.status_subresource else self.parts

    @property
    def list_kind(self) -> str:
        return f"{self.name}List"

    @property
    def place(self) -> tuple[str, str]:
        """The group and plural that its objects are stored under: the first two elements of their keys."""
        stored = self if self.form is None else self.form.of
        return stored.group, stored.plural

    def key(self, namespace: str, name: str) -> Key:
        """The storage key of an object."""
        if self.form is None:
            return (self.group, self.plural, namespace, name)
        return (*self.place, namespace, name)

    def schema(self) -> Schema:
        """The whole object as structural OpenAPI. `registry/metadata.py` has the schema of metadata."""
        properties = {
            "apiVersion": openapi.string("Versioned schema of this representation of an object."),
            "kind": openapi.string("The kind of this object."),
            "metadata": openapi.free("Standard object metadata."),
            **self.fields,
        }
        return {"type": "object", "description": self.description, "properties": properties}
