"""Metadata that others act on is not everybody's to write: what the garbage collector and deletions go by.

Three things, whichever way they come (create, update, patch, apply, `finalize`):

- `ownerReferences` of an object are changed only by those who may delete it: one whose owners are gone is deleted.
- Finalizers of our domain say that something has to be cleaned up first. Only the server sets and removes them, and
  administrators, who may give up on that. An update that leaves them out keeps them.
- What the server itself relies on gets no owners, and no finalizers from anybody but administrators: namespaces of
  projects, the namespaces that are always there with all that is in the server's own, and the default roles.
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
"""How the finalizers begin that the server alone sets and removes."""
DEFAULT_ROLE = "kubernetes.io/bootstrapping"
"""The label of roles and bindings that are there from the beginning."""
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class Protected:
    """What the server relies on. `lasting` are the namespaces that are always there, `system` is its own of them."""

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
    """The rule, for what this server relies on."""

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
                raise _refused(change, "its spec.finalizers are the server's; leave them as they are")

    return rule


def _check_owners(change: Change, may: May, protected: Protected) -> None:
    kind = change.kind
    is_open = change.user.holds_everything and (kind.group, kind.plural) != NAMESPACES
    if protected.holds(change) and metadata(change.obj).get("ownerReferences") and not is_open:
        why = "the server relies on it, and it would go with its owners; leave its ownerReferences out"
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
            f'User "{change.user.name}" may not delete it, which it takes to change its ownerReferences; leave them as '
            "they are, or ask for that right"
        )
        raise _refused(change, why)


def _keep_finalizers(change: Change, protected: Protected) -> None:
    meta = metadata(change.obj)
    asked, held = meta.get("finalizers") or [], dig(change.old, "metadata.finalizers") or []
    if not isinstance(asked, list):
        return  # the schema says what is wrong with it
    if protected.holds(change):
        raise _refused(change, "its metadata.finalizers are the server's; leave them as they are")
    ours = [each for each in held if _is_own(each)]
    kept = [each for each in asked if not _is_own(each) or each in ours]
    kept += [each for each in ours if each not in kept]
    if kept == asked:
        return
    change.warnings.append(
        f"metadata.finalizers: those of {OWN_FINALIZERS} are set and removed by the server; they stay as they were"
    )
    meta["finalizers"] = kept
    if not kept:
        del meta["finalizers"]


def _is_own(finalizer: object) -> bool:
    return isinstance(finalizer, str) and finalizer.startswith(OWN_FINALIZERS)


def _refused(change: Change, why: str) -> Forbidden:
    return Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)
