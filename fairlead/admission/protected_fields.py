"""Protects status fields, labels and annotations that only the server may write.

- `protect_status`: the status of clusters, spaces and virtual clusters. Controllers act on it: it says what to deploy
  with the stored credential of a cluster, who owns a namespace and where a gateway leads. Only the server and
  administrators write it. Runners report in the status of a workspace, but what the server has decided there is not
  theirs to change: the rendered template says which secrets they get, and `Scheduled` whether they get any. Only
  runners may report a workspace as sleeping, which frees quota.
- `protect_ownership_labels`: labels and annotations that say to whom an object belongs. Once set, only administrators
  change them. The labels and annotations of project namespaces are for administrators only, since relabelling would
  move a namespace to another project. Those in `SERVER_ONLY_KEYS` are dropped, with a warning, when other requesters
  set them: users create new objects from what they have read, so this is no error. Those in `CHECKED_KEYS` are dropped
  unless they are true: clients select objects by them, and would find an object that claims to be another one.

Annotations and labels with rules of their own are elsewhere: `service.sh/trusted` (`templates.py`),
`service.sh/abandon` (`instances.py`), `service.sh/cooldown-seconds` (`access_keys.py`),
`service.sh/secret-consent` (`secret_references.py`, `chart_secrets.py`),
`service.sh/import-source-writer` (`instances.py`).

Protects the Secrets and Leases of the server itself (`kinds/core/server_objects.py`) from all other writers.

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

from collections.abc import Iterator, Sequence

from fairlead.admission import Rule, applies_to, forbidden, is_resource
from fairlead.admission.namespaces import PROJECT_LABEL
from fairlead.core.call import NAMESPACE_RESOURCE
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.core.workspaces import MOVED_FROM_ANNOTATION
from fairlead.domain.cluster_identity import SHARED_IDENTITY_ANNOTATION
from fairlead.domain.key_lifetime import FIRST_KEY_ANNOTATION
from fairlead.domain.quotas import SLEEPING_PHASE
from fairlead.kinds.access.components import KEY_ANNOTATION, Component
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.kinds.core.lease import LEASE
from fairlead.kinds.core.server_objects import SERVER_SECRETS, is_managed, is_server_lease, is_server_owned
from fairlead.kinds.core.service_account import UID_LABEL
from fairlead.kinds.instances.workspace import REPORTED_FIELDS, SERVER_CONDITIONS, WORKSPACE
from fairlead.registry.conditions import conditions_of
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


def protect_status(api_group: str) -> Rule:
    """Rejects status writes by users other than administrators, whatever their permissions on `status` are. In
    workspaces, fields and conditions that runners report are excepted."""

    @applies_to(
        lambda kind, verb: (
            verb == "update"
            and kind.group == api_group
            and (kind.has_protected_status or kind.plural == WORKSPACE.plural)
        )
    )
    async def rule(change: Change, registry: Registry) -> None:
        free = change.user == CONTROLLER_USER or change.user.is_unscoped_admin
        if change.subresource != "status" or free or change.new is None:
            return
        if change.kind.plural == WORKSPACE.plural:
            _check_server_fields(change)
            _check_sleeping_phase(change)
        elif (change.old or {}).get("status") != change.new.get("status"):
            why = "only the server may write its status; change its spec instead"
            raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.new), why)

    return rule


def _check_server_fields(change: Change) -> None:
    for path in _modified_server_fields(_status_of(change.old), _status_of(change.new)):
        reported = ", ".join(sorted(REPORTED_FIELDS - {"conditions"}))
        why = f"only the server may write {path}; a runner may write {reported} and conditions of its own"
        raise forbidden(change, why)


def _modified_server_fields(before: Object, after: Object) -> Iterator[str]:
    for name in sorted((before.keys() | after.keys()) - REPORTED_FIELDS):
        if (before.get(name) or None) != (after.get(name) or None):
            yield f"status.{name}"
    for type in sorted(SERVER_CONDITIONS):
        # All entries of the type: a second one must not pass because the first is unchanged.
        old, new = ([each for each in conditions_of(status) if each.get("type") == type] for status in (before, after))
        if old != new:
            yield f"the condition {type} in status.conditions"


def _status_of(obj: Object | None) -> Object:
    """The status; empty if it is not a map, which validation rejects."""
    found = (obj or {}).get("status")
    return found if isinstance(found, dict) else {}


def _check_sleeping_phase(change: Change) -> None:
    before = get_path(change.old, "status.phase")
    after = get_path(change.new, "status.phase")
    if after == SLEEPING_PHASE and before != SLEEPING_PHASE and RUNNER_COMPONENT.group not in change.user.groups:
        why = "only its runner may report it as sleeping; request sleep with the annotation sleepmode.service.sh/force"
        raise forbidden(change, why)


WORKSPACE_UID_LABEL = "service.sh/workspace-uid"
OWNERSHIP_KEYS = (
    ("labels", PROJECT_LABEL),
    ("labels", WORKSPACE_UID_LABEL),
    ("labels", "service.sh/runner"),
    ("labels", UID_LABEL),
    ("annotations", "service.sh/runner-endpoint"),
)
SERVER_ONLY_KEYS = (
    ("annotations", "service.sh/runner-endpoint"),  # where the clients of a workspace send their keys
    ("labels", RUNNER_COMPONENT.label),  # the runner of a key
    ("labels", AGENT.label),  # the cluster whose agent a key belongs to
    ("annotations", KEY_ANNOTATION),  # the access key whose value a Secret contains
    ("labels", UID_LABEL),  # the service account of a token
    ("annotations", "service.sh/default-rules"),  # digest of the rules that the server gave a default role
    ("annotations", "service.sh/offered-rules"),  # the rules that later versions do not add again
    ("annotations", "service.sh/unlisted-clusters"),  # what projects without allowedClusters may use
    ("annotations", "service.sh/default-templates"),  # whether the default templates were created
    ("annotations", SHARED_IDENTITY_ANNOTATION),  # lets users of another installation act as those of this one
    ("labels", "service.sh/managed"),  # created by the server
    ("labels", "service.sh/uid"),  # the instance it was created for
    ("labels", "service.sh/space"),  # the space it was created for
    ("labels", "service.sh/virtual-cluster"),  # the virtual cluster it was created for
    ("labels", "service.sh/trust-rule"),  # the rule that a key was issued by; its keys are counted
    ("labels", "service.sh/consumed"),  # a record of a token that was used
    ("annotations", "service.sh/login-ttl"),  # a login that was not redeemed yet
    ("annotations", FIRST_KEY_ANNOTATION),  # when the key of the first administrator expires
    ("annotations", "service.sh/replica-address"),  # where other replicas connect to
    ("annotations", MOVED_FROM_ANNOTATION),  # runners that are told to remove what they have of a workspace
    ("annotations", "service.sh/resembles-user"),  # shown to administrators who review a new user
)
"""Labels and annotations that this server or its clients act on, and that only the server needs to set."""
CHECKED_KEYS = (PROJECT_LABEL, WORKSPACE_UID_LABEL)
"""Labels that others may set to their true value: the project that the object is in, and its own uid."""
_METADATA_MAPS = ("labels", "annotations")
_DROPPED_KEYS = {part: frozenset(key for where, key in SERVER_ONLY_KEYS if where == part) for part in _METADATA_MAPS}


def protect_ownership_labels(namespace_prefix: str) -> Rule:
    """Protects ownership labels and annotations. `namespace_prefix` is that of project namespaces."""

    @applies_to(lambda kind, verb: verb != "delete")
    async def rule(change: Change, registry: Registry) -> None:
        if change.user.is_unscoped_admin or change.is_move:
            return
        _drop_server_only_keys(change, namespace_prefix)
        if change.old is None:
            return
        for path in _modified_keys(change, namespace_prefix):
            why = f"{path} records ownership, and only administrators may change it"
            raise forbidden(change, why)

    return rule


def _drop_server_only_keys(change: Change, namespace_prefix: str) -> None:
    for part in _METADATA_MAPS:
        requested = _metadata_map(change.obj, part)
        if not requested:
            continue
        current = _metadata_map(change.old, part) if change.old is not None else {}
        found = [key for key in requested if key in _DROPPED_KEYS[part] and key not in current]
        if part == "labels" and (claimed := [key for key in CHECKED_KEYS if key in requested and key not in current]):
            true_labels = _true_labels(change, namespace_prefix)
            found += [key for key in claimed if requested[key] != true_labels.get(key)]
        if not found:
            continue
        allowed = {key: value for key, value in requested.items() if key not in found}
        metadata(change.obj)[part] = allowed
        if not allowed:
            del metadata(change.obj)[part]
        change.warnings.extend(f"metadata.{part}[{key}] is set by the server only; it was dropped" for key in found)


def _true_labels(change: Change, namespace_prefix: str) -> Object:
    """The labels of `CHECKED_KEYS` that are true for the object. A namespace is labelled by the server alone."""
    meta = metadata(change.obj)
    namespace = str(meta.get("namespace") or "")
    if (change.kind.group, change.kind.plural) == NAMESPACE_RESOURCE or not namespace.startswith(namespace_prefix):
        return {}
    found = {PROJECT_LABEL: namespace.removeprefix(namespace_prefix)}
    return {**found, WORKSPACE_UID_LABEL: meta.get("uid")} if change.kind.plural == WORKSPACE.plural else found


def _modified_keys(change: Change, namespace_prefix: str) -> Iterator[str]:
    """The protected labels and annotations that the change modifies or removes."""
    old, new = change.old or {}, change.obj
    if (change.kind.group, change.kind.plural) == NAMESPACE_RESOURCE and name_of(new).startswith(namespace_prefix):
        yield from (
            f"metadata.{part}" for part in _METADATA_MAPS if _metadata_map(old, part) != _metadata_map(new, part)
        )
    for part, key in dict.fromkeys((*OWNERSHIP_KEYS, *SERVER_ONLY_KEYS)):
        before = _metadata_map(old, part).get(key)
        if before is not None and before != _metadata_map(new, part).get(key):
            yield f"metadata.{part}[{key}]"


def _metadata_map(obj: Object, part: str) -> Object:
    """The labels or annotations of an object; empty if they are not a map, which validation rejects."""
    found = get_path(obj, f"metadata.{part}")
    return found if isinstance(found, dict) else {}


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
            raise forbidden(change, why)
    elif change.old is None or not (change.user.is_unscoped_admin and _is_same(change.old, change.obj)):
        why = f"it is for the server's own use, and only the server writes it; {advice} for your own secrets"
        raise forbidden(change, why)


def _check_managed(change: Change) -> None:
    paths = ("data", "stringData", "type", "immutable", "metadata.ownerReferences")
    if change.user.is_unscoped_admin or all(get_path(change.old, each) == get_path(change.obj, each) for each in paths):
        return
    why = (
        "the server keeps the kubeconfig of a virtual cluster there, and only the server changes it; to use another "
        "one, store it in a Secret of your own and name that in spec.config of the virtual cluster"
    )
    raise forbidden(change, why)


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
            raise forbidden(change, why)

    return rule
