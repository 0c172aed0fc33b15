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

from fairlead.admission import Rule, applies_to
from fairlead.core.call import NAMESPACE_RESOURCE, Authorize, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

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
        return kind.group == _RBAC_GROUP and DEFAULT_ROLE_LABEL in (get_path(change.old, "metadata.labels") or {})


def protect_metadata(authorize: Authorize, protected: ProtectedObjects) -> Rule:
    """Checks changes to owner references and finalizers."""

    @applies_to(lambda kind, verb: verb != "delete")
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER_USER or change.is_move or change.new is None:
            return
        before, after = metadata(change.old) if change.old is not None else {}, metadata(change.new)
        if (before.get("ownerReferences") or []) != (after.get("ownerReferences") or []):
            _check_owners(change, authorize, protected)
        if not change.user.is_unscoped_admin:
            if (before.get("finalizers") or []) != (after.get("finalizers") or []):
                _keep_finalizers(change, protected)
            if change.subresource == "finalize" and protected.includes(change):
                raise _forbidden(change, "its spec.finalizers are managed by the server; leave them as they are")

    return rule


def _check_owners(change: Change, authorize: Authorize, protected: ProtectedObjects) -> None:
    kind = change.kind
    is_open = change.user.is_unscoped_admin and (kind.group, kind.plural) != NAMESPACE_RESOURCE
    if protected.includes(change) and metadata(change.obj).get("ownerReferences") and not is_open:
        why = "the server needs it, and it would be deleted with its owners; leave its ownerReferences out"
        raise _forbidden(change, why)
    if change.old is None or change.user.is_unscoped_admin:
        return
    meta = metadata(change.old)
    name, namespace = name_of(change.old), str(meta.get("namespace") or "")
    if (kind.group, kind.plural) == NAMESPACE_RESOURCE:
        namespace = name  # as in the path of a request for a namespace
    target = RequestInfo("delete", "", "", kind.group, kind.version, kind.plural, "", namespace, name)
    if not authorize(change.user, target).allowed:
        why = (
            f'User "{change.user.name}" may not delete it, and changing its ownerReferences needs that permission; '
            "leave them as they are, or ask for it"
        )
        raise _forbidden(change, why)


def _keep_finalizers(change: Change, protected: ProtectedObjects) -> None:
    meta = metadata(change.obj)
    requested, current = meta.get("finalizers") or [], get_path(change.old, "metadata.finalizers") or []
    if not isinstance(requested, list):
        return  # schema validation rejects it
    if protected.includes(change):
        raise _forbidden(change, "its metadata.finalizers are managed by the server; leave them as they are")
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


def _forbidden(change: Change, reason: str) -> Forbidden:
    return Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), reason)
