"""Admission of `metadata.ownerReferences`.

`check_block_owner_deletion` is Kubernetes' OwnerReferencesPermissionEnforcement: `blockOwnerDeletion: true` makes a
foreground deletion of the owner wait for the dependent, so setting it needs the permission to delete the owner.
References that were set before may stay.

`touch_movable_owner` rewrites the owner, unchanged, in the commit that adds a dependent to a virtual cluster. A virtual
cluster moves to another project together with its dependents (`registry/namespace_move.py`), on condition that none of
them has changed. A dependent added meanwhile would be left behind and garbage collected; the owner's new revision makes
the move start over. No other kind moves, so no other owner is touched.
"""

from collections.abc import Iterator, Sequence

from fairlead.admission import Rule, applies_to
from fairlead.core.call import NAMESPACE_RESOURCE, Authorize, Decision, RequestInfo
from fairlead.core.errors import Invalid, Problem
from fairlead.core.objects import Object, metadata, name_of
from fairlead.core.user import User
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
            raise Invalid.of(change.kind.name, change.kind.group, name_of(change.obj), problems)

    return rule


def _blocking_references(obj: Object | None) -> Iterator[Object]:
    owners = metadata(obj).get("ownerReferences") if obj is not None else None
    return (each for each in owners or () if each.get("blockOwnerDeletion"))


def _identity(reference: Object) -> tuple[str, ...]:
    """All identifying fields: with the uid alone, an allowed reference could be redirected to another owner later."""
    return tuple(reference.get(part, "") for part in _IDENTITY_FIELDS)


def _deletion_target(reference: Object, change: Change, kinds: tuple[Kind, ...]) -> RequestInfo:
    """The request to delete the owner. For a kind that is not served: to delete anything in its API group."""
    api_version, name = reference.get("apiVersion", ""), reference.get("name", "")
    group, _, version = api_version.rpartition("/")
    kind = next((each for each in kinds if (each.api_version, each.name) == (api_version, reference.get("kind"))), None)
    if kind is None:
        return RequestInfo("delete", "", group=group, version=version, resource="*", name="*")
    namespace = metadata(change.obj).get("namespace", "") if kind.namespaced else ""
    if (kind.group, kind.plural) == NAMESPACE_RESOURCE:
        namespace = name  # as in the path of a request for a namespace
    return RequestInfo("delete", "", group=group, version=version, resource=kind.plural, namespace=namespace, name=name)


def _block_denied_problem(reference: Object, user: User, decision: Decision) -> Problem:
    owner = f'{reference.get("kind", "")} "{reference.get("name", "")}"'
    because = f" ({decision.reason})" if decision.reason else ""
    return Problem.forbidden(
        OWNER_REFERENCES_PATH,
        f'cannot set blockOwnerDeletion for {owner}: User "{user.name}" may not delete that owner{because}; '
        "leave blockOwnerDeletion out, or ask for that permission",
    )


MOVABLE = "virtualclusterinstances"


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
        if at.key[:2] == (api_group, MOVABLE):
            return True
        for owner in _existing_owners(registry, metadata(decode(at))):
            if owner.key not in seen:
                seen.add(owner.key)
                ahead.append(owner)
    return False
