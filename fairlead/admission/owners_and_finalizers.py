"""Protects the metadata that garbage collection and deletion depend on: owner references and finalizers.

`protect_metadata` applies to create, update, patch, apply and `finalize`:

- Changing the `ownerReferences` of an object needs the permission to delete it: an object without its owners is garbage
  collected.
- Finalizers in the domain `service.sh` are set and removed only by the server and by administrators. An update that
  omits them keeps them.
- Objects that the server needs get no owners, and finalizers only from administrators: namespaces of projects, the
  permanent namespaces, everything in the system namespace, and the default roles.

`check_block_owner_deletion` is Kubernetes' OwnerReferencesPermissionEnforcement: `blockOwnerDeletion: true` makes a
foreground deletion of the owner wait for the dependent, so setting it needs the permission to delete the owner.
References that were set before may stay.

`touch_movable_owner` rewrites the owner, unchanged, in the commit that adds a dependent to a virtual cluster. A virtual
cluster moves to another project together with its dependents (`registry/namespace_move.py`), on condition that none of
them has changed. A dependent added meanwhile would be left behind and garbage collected; the owner's new revision makes
the move start over. No other kind moves, so no other owner is touched.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from fairlead.admission import Rule, applies_to, forbidden, invalid
from fairlead.core.call import NAMESPACE_RESOURCE, Authorize, Decision, RequestInfo
from fairlead.core.errors import Problem
from fairlead.core.objects import Object, get_path, labels_of, metadata, name_of
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.instances.remote_instances import VIRTUAL_CLUSTER
from fairlead.registry.codec import decode, encode
from fairlead.registry.kind import Change, Kind
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Write
from fairlead.storage.view.view import Entry

OWNER_REFERENCES_PATH = "metadata.ownerReferences"
_IDENTITY_FIELDS = ("apiVersion", "kind", "name", "uid")


def check_block_owner_deletion(authorize: Authorize) -> Rule:
    """Setting `blockOwnerDeletion` needs the permission to delete the owner."""

    @applies_to(lambda kind, verb: verb != "delete")
    async def rule(change: Change, registry: Registry) -> None:
        if not metadata(change.obj).get("ownerReferences"):
            return
        before = {_identity(each) for each in _blocking_references(change.old)}
        problems = []
        for each in _blocking_references(change.obj):
            if _identity(each) not in before:
                verdict = authorize(change.user, _deletion_target(each, change, registry.catalog.kinds))
                if not verdict.allowed:
                    problems.append(_block_denied_problem(each, change.user, verdict))
        if problems:
            raise invalid(change, *problems)

    return rule


def _blocking_references(obj: Object | None) -> Iterator[Object]:
    owners = metadata(obj).get("ownerReferences") if obj is not None else None
    return (each for each in owners or () if each.get("blockOwnerDeletion"))


def _identity(reference: Object) -> tuple[str, ...]:
    """All identifying fields: with the uid alone, an allowed reference could be redirected to another owner later."""
    return tuple(reference.get(part, "") for part in _IDENTITY_FIELDS)


def _deletion_target(reference: Object, change: Change, kinds: tuple[Kind, ...]) -> RequestInfo:
    """The request to delete the owner. For a kind that is not served: to delete anything in its API group."""
    api_version = reference.get("apiVersion", "")
    name = reference.get("name", "")
    group, _, version = api_version.rpartition("/")
    kind = next((each for each in kinds if (each.api_version, each.name) == (api_version, reference.get("kind"))), None)
    if kind is None:
        return RequestInfo("delete", group=group, version=version, resource="*", name="*")
    namespace = metadata(change.obj).get("namespace", "") if kind.namespaced else ""
    if (kind.group, kind.plural) == NAMESPACE_RESOURCE:
        namespace = name  # as in the path of a request for a namespace
    return kind.request("delete", namespace, name)


def _block_denied_problem(reference: Object, user: User, decision: Decision) -> Problem:
    owner = f'{reference.get("kind", "")} "{reference.get("name", "")}"'
    because = f" ({decision.reason})" if decision.reason else ""
    return Problem.forbidden(
        OWNER_REFERENCES_PATH,
        f'cannot set blockOwnerDeletion for {owner}: User "{user.name}" may not delete that owner{because}; '
        "leave blockOwnerDeletion out, or ask for that permission",
    )


def touch_movable_owner(api_group: str) -> Rule:
    """Writes the owner again when a virtual cluster, or a dependent of one, gets a new dependent."""

    @applies_to(lambda kind, verb: verb != "delete" and kind.namespaced)
    async def rule(change: Change, registry: Registry) -> None:
        meta = metadata(change.obj)
        if change.subresource or not meta.get("ownerReferences"):
            return
        itself = change.kind.key(meta.get("namespace", ""), meta.get("name", ""))
        for owner in _existing_owners(registry, meta, metadata(change.old or {}).get("ownerReferences")):
            if owner.key != itself and _is_movable(registry, owner, api_group):
                change.extra_writes.append(Write(owner.key, encode(decode(owner)), owner.revision))

    return rule


def _existing_owners(registry: Registry, meta: Object, known: Sequence[Object] | None = None) -> Iterator[Entry]:
    """The existing owners in the object's namespace, except those of `known` references."""
    kinds = {(kind.api_version, kind.name): kind for kind in registry.catalog.kinds if kind.namespaced}
    found = dict[tuple[str, ...], Entry]()
    for reference in meta.get("ownerReferences") or ():
        kind = kinds.get((reference.get("apiVersion", ""), reference.get("kind", "")))
        if kind is None or reference in (known or ()):
            continue
        entry = registry.view.get(kind.key(meta.get("namespace", ""), reference.get("name", "")))
        if entry is not None and metadata(decode(entry))["uid"] == reference.get("uid"):
            found[entry.key] = entry
    yield from found.values()


def _is_movable(registry: Registry, entry: Entry, api_group: str) -> bool:
    """Whether the object is a virtual cluster, or a transitive dependent of one."""
    seen, ahead = {entry.key}, [entry]
    while ahead:
        at = ahead.pop()
        if at.key[:2] == (api_group, VIRTUAL_CLUSTER.plural):
            return True
        for owner in _existing_owners(registry, metadata(decode(at))):
            if owner.key not in seen:
                seen.add(owner.key)
                ahead.append(owner)
    return False


SERVER_FINALIZER_PREFIX = "service.sh/"
"""Prefix of the finalizers that only the server sets and removes."""
DEFAULT_ROLE_LABEL = "kubernetes.io/bootstrapping"
"""Label of the default roles and bindings."""
_RBAC_GROUP = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class ProtectedObjects:
    """The objects that the server needs: project namespaces by prefix, the permanent namespaces, and the system
    namespace with its content."""

    namespace_prefix: str
    permanent_namespaces: Collection[str]
    system_namespace: str

    def includes(self, change: Change) -> bool:
        kind, name = change.kind, name_of(change.obj)
        if (kind.group, kind.plural) == NAMESPACE_RESOURCE:
            return name.startswith(self.namespace_prefix) or name in self.permanent_namespaces
        if metadata(change.obj).get("namespace") == self.system_namespace:
            return True
        return kind.group == _RBAC_GROUP and DEFAULT_ROLE_LABEL in labels_of(change.old)


def protect_metadata(authorize: Authorize, protected: ProtectedObjects) -> Rule:
    """Checks changes to owner references and finalizers."""

    @applies_to(lambda kind, verb: verb != "delete")
    async def rule(change: Change, registry: Registry) -> None:
        if change.user is CONTROLLER_USER or change.is_move or change.new is None:
            return
        before = metadata(change.old) if change.old is not None else {}
        after = metadata(change.new)
        if (before.get("ownerReferences") or []) != (after.get("ownerReferences") or []):
            _check_owners(change, authorize, protected)
        if not change.user.is_unscoped_admin:
            if (before.get("finalizers") or []) != (after.get("finalizers") or []):
                _keep_finalizers(change, protected)
            if change.subresource == "finalize" and protected.includes(change):
                raise forbidden(change, "its spec.finalizers are managed by the server; leave them as they are")

    return rule


def _check_owners(change: Change, authorize: Authorize, protected: ProtectedObjects) -> None:
    kind = change.kind
    is_open = change.user.is_unscoped_admin and (kind.group, kind.plural) != NAMESPACE_RESOURCE
    if protected.includes(change) and metadata(change.obj).get("ownerReferences") and not is_open:
        why = "the server needs it, and it would be deleted with its owners; leave its ownerReferences out"
        raise forbidden(change, why)
    if change.old is None or change.user.is_unscoped_admin:
        return
    meta = metadata(change.old)
    name = name_of(change.old)
    namespace = str(meta.get("namespace") or "")
    if (kind.group, kind.plural) == NAMESPACE_RESOURCE:
        namespace = name  # as in the path of a request for a namespace
    if not authorize(change.user, kind.request("delete", namespace, name)).allowed:
        why = (
            f'User "{change.user.name}" may not delete it, and changing its ownerReferences needs that permission; '
            "leave them as they are, or ask for it"
        )
        raise forbidden(change, why)


def _keep_finalizers(change: Change, protected: ProtectedObjects) -> None:
    meta = metadata(change.obj)
    requested = meta.get("finalizers") or []
    current = get_path(change.old, "metadata.finalizers") or []
    if not isinstance(requested, list):
        return  # schema validation rejects it
    if protected.includes(change):
        raise forbidden(change, "its metadata.finalizers are managed by the server; leave them as they are")
    own = [each for each in current if _is_server_finalizer(each)]
    allowed = [each for each in requested if not _is_server_finalizer(each) or each in own]
    allowed += [each for each in own if each not in allowed]
    if allowed == requested:
        return
    change.warnings.append(
        f"metadata.finalizers: only the server sets and removes {SERVER_FINALIZER_PREFIX} finalizers; they were left "
        "unchanged"
    )
    meta["finalizers"] = allowed
    if not allowed:
        del meta["finalizers"]


def _is_server_finalizer(finalizer: object) -> bool:
    return isinstance(finalizer, str) and finalizer.startswith(SERVER_FINALIZER_PREFIX)
