"""How a kind is declared: `Kind`, `Column`, `Action`, `Conversion`, and the `Change` that its rules see. The `Catalog`
has all kinds that are served.

One `Kind` value declares everything about a kind. Routes, discovery, OpenAPI, validation, defaults, unknown-field
warnings, merge keys, `/status`, `kubectl get` tables, field selectors and authorization names derive from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from msgspec import Struct

from fairlead.core.call import RequestInfo
from fairlead.core.errors import Problem
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry import schema as openapi
from fairlead.registry.schema import Schema
from fairlead.storage.contract import Key, Precondition, Write

__all__ = ["ALL_VERBS", "MANAGEMENT_GROUP", "Action", "Change", "Column", "Conversion", "Kind", "Problem"]

MANAGEMENT_GROUP = "management.service.sh"
"""Default of the setting `api_group`. Kinds declared with this group move to the configured one."""

T = TypeVar("T")

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


class Change(Struct, eq=False):  # one for every write: a Struct is created much faster than a dataclass
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
    is_untracked: bool = False
    """Field owners cannot be computed, as in Kubernetes if a part that is not written has a value of the wrong type."""
    sent_metadata: Object | None = None
    """The metadata that a write of /status contains, and does not change."""
    is_move: bool = False
    """A create of an object that moves in from another namespace: server-set fields on it are legitimate."""
    moves_with: tuple[Object, ...] = ()
    """Objects of the same kind that the same move adds to the namespace, and that count towards quotas."""
    extra_writes: list[Write] = []
    preconditions: list[Precondition] = []
    warnings: list[str] = []
    problems: Sequence[Problem] = ()
    """What schema validation found wrong with the new object. Admission runs first: a 403 precedes a 422."""
    one_time_fields: dict[str, str] = {}
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

    `object_verb` is the verb on the object that the action requires instead of its own verb on the subresource. It is
    for actions whose method says nothing about what they do, such as a WebSocket, which is always a GET, and for those
    that show no more than the object does: a user who may get the object may use them.
    """

    name: str
    verbs: tuple[str, ...]
    kind: Kind | None = None
    object_verb: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Conversion:
    """Declares that a kind serves the objects of another kind, `stored_kind`, converted on read and write.

    `from_stored` and `to_stored` convert the fields of an object. apiVersion, kind and metadata are handled by
    `registry/codec.py`. `field_names` maps each selectable field to its name in the stored kind. The stored kind must
    not have sensitive fields.
    """

    stored_kind: Kind
    from_stored: Callable[[Object], Object]
    to_stored: Callable[[Object], Object]
    field_names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Instance:
    """Declares that the objects of a kind are instances: objects of a project that stand for something deployed.

    `template_kind` is the name of the kind of the templates that define them; empty if there are none.
    `kinds.INSTANCES` has all instances by plural.
    """

    noun: str
    """The word for an object in messages."""
    template_kind: str = ""
    rendered_field: str = ""
    """The field of the status with the rendered template."""
    in_cluster: bool = False
    """It exists in the connected cluster that spec.clusterRef names: its owner defaults to the requester, and the
    removal of the cluster reports it."""

    @property
    def templates(self) -> str:
        """The plural of the templates."""
        return f"{self.template_kind.lower()}s"


@dataclass(frozen=True, slots=True)
class AllowListField:
    """A field that names a cluster, runner or template, and the allow list of the project that has to contain it."""

    path: str
    noun: str
    """The noun for messages."""
    allow_list: str
    """The field in the spec of the project, such as `allowedClusters`."""
    kind: str = ""
    """The kind of template, for `allowedTemplates`."""


def _no_defaults(change: Change) -> None:
    return None


def _never_server_owned(obj: Object) -> bool:
    return False


def _no_problems(change: Change) -> Iterable[Problem]:
    return ()


class Sensitivity(Enum):
    """Which default roles may read the objects of a kind (`authz/default_roles.py`)."""

    NORMAL = "normal"
    """Contains no credentials that a response shows: `view`, `edit` and `admin` may read it."""
    SECRET = "secret"
    """Contains credentials: `edit` and `admin` may read it, `view` may not."""
    CREDENTIAL = "credential"
    """Is itself a credential for this server: no default role of a namespace includes it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object. `fields` are the top-level fields besides apiVersion, kind and metadata, usually spec and
    status."""

    name: str
    plural: str
    namespaced: bool
    fields: Mapping[str, Schema]
    description: str
    sensitivity: Sensitivity = field(kw_only=True)
    group: str = MANAGEMENT_GROUP
    version: str = "v1"
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    status_subresource: bool = False
    """The kind has `/status`, and writes to the main resource ignore the status."""
    extra_subresources: tuple[str, ...] = ()
    """Further subresources that are written like the object itself (`finalize` of Namespace)."""
    columns: tuple[Column, ...] = ()
    explicit_columns: bool = False
    """The columns are the complete table. Otherwise Name is added in front and Age at the end."""
    selectable: tuple[str, ...] = ()
    """Dotted paths that fieldSelector accepts besides metadata.name and metadata.namespace."""
    immutable: tuple[str, ...] = ()
    """Dotted paths whose value must not change once set."""
    sensitive: tuple[str, ...] = ()
    """Dotted paths of credentials; a path through a list covers each entry. They are encrypted at rest and left out of
    logs, audit events and the console."""
    write_only: tuple[str, ...] = ()
    """The sensitive paths that are write-only: no response contains them, and an update that omits them keeps them."""
    safe_siblings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By write-only path: sibling fields that may change without the credential being sent again. A change to any other
    sibling may redirect the credential, so the requester must send it again."""
    encrypted: tuple[str, ...] = ()
    """Further paths, of text that may contain a credential. They are encrypted at rest, and served as usual."""
    redact_derived: Callable[[Object], None] | None = None
    """Removes values derived from write-only fields from an object before it is served. Called only for objects that
    have write-only fields."""
    redacted_paths: tuple[str, ...] = ()
    """Dotted paths that `redact_derived` changes. An update that sends back the redacted value keeps the stored one."""
    is_server_owned: Callable[[Object], bool] = _never_server_owned
    """Whether the server owns an object. All its sensitive paths are then write-only, and only the server may write
    them."""
    reject_unknown_under: tuple[str, ...] = ()
    """Dotted paths below which unknown fields are always rejected, because dropping a misspelt restriction is
    dangerous."""
    has_access_entries: bool = False
    """`spec.owner` and `spec.access` grant rights on the object. Users who may not list all objects get a filtered
    list."""
    instance: Instance | None = None
    """Set for kinds of instances: members of a project may create them, and they are deleted before the project's
    namespace, in the order of `kinds.DELETION_ORDER`."""
    allow_list_fields: tuple[AllowListField, ...] = ()
    """Fields whose values the allow lists of the object's project restrict."""
    has_protected_status: bool = False
    """Only the server and administrators may write the status, whatever the permissions on `status` are."""
    is_in_cli_scope: bool = False
    """Lists of the kind are filtered, not denied, for a key whose scope allows the read requests of command-line tools.
    """
    persisted: bool = True
    """False for kinds that are never persisted, such as access reviews: a POST is only answered."""
    is_audit_log: bool = False
    """Its objects are events of the audit log. Reading them is always recorded, without the response."""
    actions: tuple[Action, ...] = ()
    name_is_label: bool = False
    """Names are DNS labels (63 characters, no dots) instead of DNS subdomains."""
    name_is_path_segment: bool = False
    """Names may be any single URL path segment, such as `system:discovery`."""
    finalizer_paths: tuple[str, ...] = ("metadata.finalizers",)
    """Dotted paths of the lists that must be empty before a deleted object is removed."""
    on_delete: Callable[[Object], None] | None = None
    """Called on the object when its deletion begins, for kinds that also show it outside metadata (phase of Namespace).
    """
    default: Callable[[Change], None] = _no_defaults
    """Sets default values, after pruning and schema defaults and before the checks. Pure."""
    check: Callable[[Change], Iterable[Problem]] = _no_problems
    """Yields every problem that the schema cannot express. Pure."""
    canonicalize: Callable[[Object], None] | None = None
    """Brings a valid object into the form in which it is stored, after its fields got their owners."""
    read_selectable_field: Callable[[Object, str], Any] | None = None
    """Reads a selectable field, for a kind where the value is not simply at the path (`source` of Event)."""
    tracks_generation: bool = True
    """metadata.generation counts changes of the desired state. Some core kinds do not have it."""
    builtin: bool = False
    """Behaves like the built-in kinds of a kube-apiserver where those differ from custom resources: bodies may omit
    kind and apiVersion, decoding errors are a 400, list items have no kind and apiVersion, ages in tables are text."""
    allows_unconditional_update: bool = False
    """PUT without resourceVersion is accepted (unconditional update), as for core kinds."""
    requires_finalizer_domains: bool = True
    """For built-in kinds: finalizers without a domain are rejected, except for those of Kubernetes itself."""
    ignores_propagation_policy: bool = False
    """Deletes never wait for dependents: objects of the kind cannot be owners."""
    returns_deleted_object: bool = False
    """The response to a delete contains the object, not a Status, as for some built-in kinds."""
    allows_create_on_update: bool = False
    """PUT creates an object that does not exist, as for some built-in kinds."""
    empty_fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields that every object has even if they are empty. Creating an object does not make its manager own them."""
    conversion: Conversion | None = None
    """Set for a kind that serves the objects of another one: it has its own names, rules and permissions, but no
    storage."""
    _derived: dict[Callable[[Kind], Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def derive(self, build: Callable[[Kind], T]) -> T:
        """`build(self)`, which is called once: compiling a schema takes milliseconds, and all that need the same one
        share it, also those of other registries."""
        if build not in self._derived:
            self._derived[build] = build(self)
        derived: T = self._derived[build]
        return derived

    @property
    def may_be_server_owned(self) -> bool:
        """Whether the server can own any of its objects."""
        return self.is_server_owned is not _never_server_owned

    def write_only_paths(self, obj: Object) -> tuple[str, ...]:
        """The paths that no response about this object contains."""
        return self.sensitive if self.is_server_owned(obj) else self.write_only

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.name.lower()

    @property
    def subresources(self) -> tuple[str, ...]:
        """Subresources that are written like the object."""
        return ("status", *self.extra_subresources) if self.status_subresource else self.extra_subresources

    @property
    def list_kind(self) -> str:
        return f"{self.name}List"

    @property
    def stored_resource(self) -> tuple[str, str]:
        """The group and plural that its objects are stored under: the first two elements of their keys."""
        stored = self if self.conversion is None else self.conversion.stored_kind
        return stored.group, stored.plural

    def key(self, namespace: str, name: str) -> Key:
        """The storage key of an object."""
        if self.conversion is None:
            return (self.group, self.plural, namespace, name)
        return (*self.stored_resource, namespace, name)

    def request(
        self, verb: str, namespace: str = "", name: str = "", *, subresource: str = "", root: str = ""
    ) -> RequestInfo:
        """A request for its objects, which asks authorizers for the permission to do something to them."""
        return RequestInfo(
            verb=verb,
            root=root,
            group=self.group,
            version=self.version,
            resource=self.plural,
            subresource=subresource,
            namespace=namespace,
            name=name,
        )

    def build(self, meta: Object, **fields: Any) -> Object:
        """An object of the kind, with this metadata."""
        return {"kind": self.name, "apiVersion": self.api_version, "metadata": meta, **fields}

    def schema(self) -> Schema:
        """The whole object as structural OpenAPI. `registry/object_metadata.py` has the schema of metadata."""
        properties = {
            "apiVersion": openapi.string("Versioned schema of this representation of an object."),
            "kind": openapi.string("The kind of this object."),
            "metadata": openapi.open_object("Standard object metadata."),
            **self.fields,
        }
        return {"type": "object", "description": self.description, "properties": properties}


class Catalog:
    """The kinds that this server serves, in the order they were declared: the source of routes, discovery, OpenAPI and
    authorization.

    `api_group` replaces the group of the management kinds, for installations that serve them under their own domain.
    """

    def __init__(self, kinds: Iterable[Kind], api_group: str = MANAGEMENT_GROUP) -> None:
        self.kinds: tuple[Kind, ...] = tuple(_with_group(kind, api_group) for kind in kinds)
        self._by_plural = {(kind.group, kind.version, kind.plural): kind for kind in self.kinds}
        self._by_resource = {(kind.group, kind.plural): kind for kind in self.kinds}

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind behind a URL, if it is served."""
        return self._by_plural.get((group, version, plural))

    def resource(self, group: str, plural: str) -> Kind | None:
        """The kind behind a storage key, which starts with group and plural."""
        return self._by_resource.get((group, plural))

    def groups(self) -> dict[str, dict[str, list[Kind]]]:
        """Group -> version -> kinds, in order of declaration."""
        found: dict[str, dict[str, list[Kind]]] = {}
        for kind in self.kinds:
            found.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
        return found


def _with_group(kind: Kind, api_group: str) -> Kind:
    """The kind, and the kinds of its actions, with the management group replaced."""
    group = api_group if kind.group == MANAGEMENT_GROUP else kind.group
    if group == kind.group:
        return kind
    actions = tuple(
        replace(action, kind=_with_group(action.kind, api_group)) if action.kind is not None else action
        for action in kind.actions
    )
    return replace(kind, group=group, actions=actions)
