"""Protects the metadata that garbage collection and deletion depend on: owner references and finalizers.

Applies to create, update, patch, apply and `finalize`:

- Changing the `ownerReferences` of an object needs the permission to delete it: an object without its owners is garbage
  collected.
- Finalizers in the domain `service.sh` are set and removed only by the server and by administrators. An update that
  omits them keeps them.
- Objects that the server needs get no owners, and finalizers only from administrators: namespaces of projects, the
  permanent namespaces, everything in the system namespace, and the default roles.
"""

from collections.abc import Collection
from dataclasses import dataclass

from fairlead.admission import May, Rule, concerning
from fairlead.core.call import NAMESPACES, Target
from fairlead.core.errors import Forbidden
from fairlead.core.objects import dig, metadata, name_of
from fairlead.core.user import CONTROLLER
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

OWN_FINALIZERS = "service.sh/"
"""Prefix of the finalizers that only the server sets and removes."""
DEFAULT_ROLE = "kubernetes.io/bootstrapping"
"""Label of the default roles and bindings."""
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class Protected:
    """The objects that the server needs: project namespaces by prefix, the permanent namespaces, and the system
    namespace with its content."""

    prefix: str
    lasting: Collection[str]
    system: str

    def holds(self, change: Change) -> bool:
        kind, name = change.kind, name_of(change.obj)
        if (kind.group, kind.plural) == NAMESPACES:
            return name.startswith(self.prefix) or name in self.lasting
        if metadata(change.obj).get("namespace") == self.system:
            return True
        return kind.group == _RBAC and DEFAULT_ROLE in (dig(change.old, "metadata.labels") or {})


def protected_objects(may: May, protected: Protected) -> Rule:
    """Checks changes to owner references and finalizers."""

    @concerning(lambda kind, verb: verb != "delete")
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER or change.arriving or change.new is None:
            return
        before, after = metadata(change.old) if change.old is not None else {}, metadata(change.new)
        if (before.get("ownerReferences") or []) != (after.get("ownerReferences") or []):
            _check_owners(change, may, protected)
        if not change.user.holds_everything:
            if (before.get("finalizers") or []) != (after.get("finalizers") or []):
                _keep_finalizers(change, protected)
            if change.subresource == "finalize" and protected.holds(change):
                raise _refused(change, "its spec.finalizers are managed by the server; leave them as they are")

    return rule


def _check_owners(change: Change, may: May, protected: Protected) -> None:
    kind = change.kind
    is_open = change.user.holds_everything and (kind.group, kind.plural) != NAMESPACES
    if protected.holds(change) and metadata(change.obj).get("ownerReferences") and not is_open:
        why = "the server needs it, and it would be deleted with its owners; leave its ownerReferences out"
        raise _refused(change, why)
    if change.old is None or change.user.holds_everything:
        return
    meta = metadata(change.old)
    name, namespace = name_of(change.old), str(meta.get("namespace") or "")
    if (kind.group, kind.plural) == NAMESPACES:
        namespace = name  # as in the path of a request for a namespace
    target = Target("delete", "", "", kind.group, kind.version, kind.plural, "", namespace, name)
    if not may(change.user, target).allowed:
        why = (
            f'User "{change.user.name}" may not delete it, and changing its ownerReferences needs that permission; '
            "leave them as they are, or ask for it"
        )
        raise _refused(change, why)


def _keep_finalizers(change: Change, protected: Protected) -> None:
    meta = metadata(change.obj)
    requested, current = meta.get("finalizers") or [], dig(change.old, "metadata.finalizers") or []
    if not isinstance(requested, list):
        return  # schema validation rejects it
    if protected.holds(change):
        raise _refused(change, "its metadata.finalizers are managed by the server; leave them as they are")
    own = [each for each in current if _is_own(each)]
    allowed = [each for each in requested if not _is_own(each) or each in own]
    allowed += [each for each in own if each not in allowed]
    if allowed == requested:
        return
    change.warnings.append(
        f"metadata.finalizers: only the server sets and removes {OWN_FINALIZERS} finalizers; they were left unchanged"
    )
    meta["finalizers"] = allowed
    if not allowed:
        del meta["finalizers"]


def _is_own(finalizer: object) -> bool:
    return isinstance(finalizer, str) and finalizer.startswith(OWN_FINALIZERS)


def _refused(change: Change, why: str) -> Forbidden:
    return Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)
