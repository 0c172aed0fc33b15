"""Says so when an object names an owner in another namespace: it looks owned, and yet it is garbage.

Called by the garbage collector when an object's references are new to it. What comes of it is an Event.
"""

from contextlib import suppress

from fairlead.controllers.owners import References, meta_of
from fairlead.core.errors import ApiError
from fairlead.core.objects import Object
from fairlead.registry.kind import Kind
from fairlead.registry.record import decode
from fairlead.registry.recording import record
from fairlead.registry.registry import Registry
from fairlead.storage.view import Entry

REASON = "OwnerRefInvalidNamespace"


async def report_misplaced(registry: Registry, references: References, entry: Entry) -> None:
    """Records a warning for each reference whose owner lives elsewhere."""
    namespace = entry.key[2]
    for each in meta_of(entry).ownerReferences or ():
        kind = references.kind(each)
        if kind is None or not kind.namespaced or _lives_in(registry, kind, namespace, each):
            continue
        namespaces = (place.key[3] for place in registry.view.entries("", "namespaces"))
        if any(_lives_in(registry, kind, other, each) for other in namespaces):
            message = f'ownerRef {_shown(each, namespace)} does not exist in namespace "{namespace}"'
            # The namespace may be about to end, and then nothing can be recorded there any more.
            with suppress(ApiError):
                await record(registry, decode(entry), REASON, message, type="Warning")


def _lives_in(registry: Registry, kind: Kind, namespace: str, reference: Object) -> bool:
    found = registry.view.get(kind.key(namespace, reference["name"]))
    return found is not None and meta_of(found).uid == reference["uid"]


def _shown(reference: Object, namespace: str) -> str:
    api_version, kind, name, uid = (reference[part] for part in ("apiVersion", "kind", "name", "uid"))
    return f"[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]"
