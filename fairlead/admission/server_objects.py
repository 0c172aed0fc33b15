"""Protects the Secrets and Leases of the server itself (`kinds/core/server_objects.py`) from all other writers.

- Secrets of a type that is reserved for the server: password hashes, keys of components, and the keys by which it signs
  and encrypts. Their data is in no response, so no client could send it back, and replacing it would allow signing in
  as another user. Administrators, with a key without a scope, may delete them: that is how all tokens that such a key
  has signed are revoked, and the server creates another one.
- Secrets with the names of these in the system namespace, whatever their type says: another Secret must not take the
  place of one that does not exist yet, or was deleted. No reader uses one of another type that was stored before.
- Secrets with the label `service.sh/managed`: the kubeconfigs of virtual clusters, in their projects. The gateway sends
  the requests of all users there, and charts are deployed there with their values. Permissions on Secrets are not
  enough to redirect that: it needs `spec.config` of the virtual cluster. They may be deleted, and are created again.
- Leases that record which tokens were used, and where the replicas are. Administrators may write these.
"""

from collections.abc import Sequence

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.access.components import Component
from fairlead.kinds.core.lease import LEASE
from fairlead.kinds.core.server_objects import SERVER_SECRETS, is_managed, is_server_lease, is_server_owned
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


def protect_server_secrets(namespace: str, components: Sequence[Component]) -> Rule:
    """Rejects writes and deletes of the server's own Secrets. `namespace` is the system namespace."""
    reserved = frozenset(each.name for each in SERVER_SECRETS)

    def has_reserved_name(secret: Object) -> bool:
        name = name_of(secret)
        is_reserved = name in reserved or any(each.is_key_secret_name(name) for each in components)
        return is_reserved and metadata(secret).get("namespace") == namespace

    @applies_to(lambda kind, verb: is_resource(kind, "", "secrets"))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER_USER:
            return
        if has_reserved_name(change.obj):
            _check_server_owned(change, f'choose another name in the namespace "{namespace}"')
        elif any(is_server_owned(each) for each in (change.old, change.new) if each is not None):
            _check_server_owned(change, "choose another type")
        elif change.old is not None and change.verb != "delete" and is_managed(change.old):
            _check_managed(change)

    return rule


def _check_server_owned(change: Change, advice: str) -> None:
    if change.verb == "delete":
        if not change.user.is_unscoped_admin:
            why = "it is for the server's own use; only administrators, with a key without a scope, may delete it"
            raise _forbidden(change, why)
    elif change.old is None or not (change.user.is_unscoped_admin and _is_same(change.old, change.obj)):
        why = f"it is for the server's own use, and only the server writes it; {advice} for your own secrets"
        raise _forbidden(change, why)


def _check_managed(change: Change) -> None:
    paths = ("data", "stringData", "type", "immutable", "metadata.ownerReferences")
    if change.user.is_unscoped_admin or all(get_path(change.old, each) == get_path(change.obj, each) for each in paths):
        return
    why = (
        "the server keeps the kubeconfig of a virtual cluster there, and only the server changes it; to use another "
        "one, store it in a Secret of your own and name that in spec.config of the virtual cluster"
    )
    raise _forbidden(change, why)


def _is_same(old: Object, new: Object) -> bool:
    """Whether an update changes nothing, as when all Secrets are written back to be encrypted with another key."""
    return _without_bookkeeping(old) == _without_bookkeeping(new)


def _without_bookkeeping(secret: Object) -> Object:
    ignored = ("managedFields", "resourceVersion")
    return {**secret, "metadata": {name: each for name, each in metadata(secret).items() if name not in ignored}}


def protect_server_leases(namespace: str) -> Rule:
    """Rejects writes and deletes of the server's own Leases in `namespace` by others than administrators."""

    @applies_to(lambda kind, verb: is_resource(kind, LEASE.group, LEASE.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER_USER or change.user.is_unscoped_admin:
            return
        if metadata(change.obj).get("namespace") == namespace and is_server_lease(name_of(change.obj)):
            why = "the server records there what it has to know about tokens and replicas; choose another name"
            raise _forbidden(change, why)

    return rule


def _forbidden(change: Change, why: str) -> Forbidden:
    return Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)
