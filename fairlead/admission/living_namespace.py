"""Objects are only made in namespaces that exist and are not about to go."""

from fairlead.admission.chain import concerning
from fairlead.core.errors import Forbidden, NotFound, Problem
from fairlead.core.objects import metadata
from fairlead.registry.kind import Change
from fairlead.registry.record import decode
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Check


@concerning(lambda kind, verb: verb == "create" and kind.namespaced)
async def living_namespace(change: Change, registry: Registry) -> None:
    meta = metadata(change.obj)
    entry = registry.resource("", "namespaces").peek("", meta["namespace"])
    if entry is None:
        raise NotFound.of("namespaces", "", meta["namespace"])
    if b'"deletionTimestamp":' in entry.body and "deletionTimestamp" in metadata(decode(entry)):
        raise _terminating(change, meta["namespace"])
    # The namespace could begin to end between this look and the commit; then the commit must not happen either.
    change.checks.append(Check(entry.key, entry.revision))


def _terminating(change: Change, namespace: str) -> Forbidden:
    kind, name = change.kind, metadata(change.obj).get("name", "")
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    problem = Problem("metadata.namespace", "NamespaceTerminating", f"namespace {namespace} is being terminated")
    return Forbidden.of(kind.plural, kind.group, name, why, (problem,))
