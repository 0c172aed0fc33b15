"""Whatever comes to depend on a virtual cluster writes its owner too, unchanged, in the same commit.

A virtual cluster moves to another project with all that depends on it (`registry/moving.py`), on condition that none of
it has changed meanwhile. An object that was only just attached would not be among what was looked at: it would stay
behind, without its owner, and be collected. The owner's new revision makes the move look again.

Nothing else moves, so nothing else is touched.
"""

from collections.abc import Iterator, Sequence

from fairlead.admission.chain import Rule, concerning
from fairlead.core.objects import Object, metadata
from fairlead.registry.kind import Change
from fairlead.registry.record import decode, encode
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Change as Write
from fairlead.storage.view import Entry

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
