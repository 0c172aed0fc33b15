"""Whoever makes an object hold up the deletion of its owner must be allowed to delete that owner.

`blockOwnerDeletion: true` makes a foreground deletion of the owner wait for the object, for ever if that never goes. So
it takes the right to delete the owner to set it; what has been set before may stay.
"""

from collections.abc import Iterator, Sequence

from fairlead.admission import May, Rule, concerning
from fairlead.core.call import NAMESPACES, Target, Verdict
from fairlead.core.errors import Invalid, Problem
from fairlead.core.objects import Object, metadata, name_of
from fairlead.core.user import User
from fairlead.registry.codec import decode, encode
from fairlead.registry.kind import Change, Kind
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Change as Write
from fairlead.storage.view.view import Entry

PATH = "metadata.ownerReferences"
_IDENTITY = ("apiVersion", "kind", "name", "uid")


def block_owner_deletion(may: May) -> Rule:
    """The rule, for whoever decides what users may do."""

    @concerning(lambda kind, verb: verb != "delete")
    async def rule(change: Change, registry: Registry) -> None:
        if not metadata(change.obj).get("ownerReferences"):
            return
        before = {_identity(each) for each in _blocking(change.old)}
        problems = []
        for each in _blocking(change.obj):
            if _identity(each) not in before:
                verdict = may(change.user, _deletion_of(each, change, registry.catalog.kinds))
                if not verdict.allowed:
                    problems.append(_problem(each, change.user, verdict))
        if problems:
            raise Invalid.of(change.kind.name, change.kind.group, name_of(change.obj), problems)

    return rule


def _blocking(obj: Object | None) -> Iterator[Object]:
    owners = metadata(obj).get("ownerReferences") if obj is not None else None
    return (each for each in owners or () if each.get("blockOwnerDeletion"))


def _identity(reference: Object) -> tuple[str, ...]:
    """All of it: with the uid alone, a reference that was allowed could be turned onto another owner later."""
    return tuple(reference.get(part, "") for part in _IDENTITY)


def _deletion_of(reference: Object, change: Change, kinds: tuple[Kind, ...]) -> Target:
    """The request to delete an owner. Of a kind that is not served, it is one to delete anything in its group."""
    api_version, name = reference.get("apiVersion", ""), reference.get("name", "")
    group, _, version = api_version.rpartition("/")
    kind = next((each for each in kinds if (each.api_version, each.name) == (api_version, reference.get("kind"))), None)
    if kind is None:
        return Target("delete", "", group=group, version=version, resource="*", name="*")
    namespace = metadata(change.obj).get("namespace", "") if kind.namespaced else ""
    if (kind.group, kind.plural) == NAMESPACES:
        namespace = name  # as in the path of a request for a namespace
    return Target("delete", "", group=group, version=version, resource=kind.plural, namespace=namespace, name=name)


def _problem(reference: Object, user: User, verdict: Verdict) -> Problem:
    owner = f'{reference.get("kind", "")} "{reference.get("name", "")}"'
    because = f" ({verdict.reason})" if verdict.reason else ""
    return Problem.forbidden(
        PATH,
        f'cannot set blockOwnerDeletion for {owner}: User "{user.name}" may not delete that owner{because}; '
        "leave blockOwnerDeletion out, or ask for that right",
    )


# DOC-MERGED admission/attaching
# Whatever comes to depend on a virtual cluster writes its owner too, unchanged, in the same commit.
#
# A virtual cluster moves to another project with all that depends on it (`registry/namespace_move.py`), on condition that none of
# it has changed meanwhile. An object that was only just attached would not be among what was looked at: it would stay
# behind, without its owner, and be collected. The owner's new revision makes the move look again.
#
# Nothing else moves, so nothing else is touched.


MOVING = "virtualclusterinstances"


def attaching(api_group: str) -> Rule:
    """The rule, for the API group that this server uses."""

    @concerning(lambda kind, verb: verb != "delete" and kind.namespaced)
    async def rule(change: Change, registry: Registry) -> None:
        meta = metadata(change.obj)
        if change.subresource or not meta.get("ownerReferences"):
            return
        itself = change.kind.key(meta.get("namespace", ""), meta.get("name", ""))
        for owner in _owners(registry, meta, metadata(change.old or {}).get("ownerReferences")):
            if owner.key != itself and _moves(registry, owner, api_group):
                change.also.append(Write(owner.key, encode(decode(owner)), owner.revision))

    return rule


def _owners(registry: Registry, meta: Object, known: Sequence[Object] | None = None) -> Iterator[Entry]:
    """The owners in an object's own namespace that are there; without those of `known` references."""
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


def _moves(registry: Registry, entry: Entry, api_group: str) -> bool:
    """Whether it is a virtual cluster, or depends on one."""
    seen, ahead = {entry.key}, [entry]
    while ahead:
        at = ahead.pop()
        if at.key[:2] == (api_group, MOVING):
            return True
        for owner in _owners(registry, metadata(decode(at))):
            if owner.key not in seen:
                seen.add(owner.key)
                ahead.append(owner)
    return False
