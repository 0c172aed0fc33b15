"""Admission of instances: default owner, instances without a template, remote access, and abandoning.

- A space or virtual cluster always has an owner; the default is the requester. This runs before `check_grants`, which
  then checks the owner like any other.
- An instance without a template, or with an inline one, can be anything. Unless the project allows that to all members,
  it needs the permission to create `<plural>/restricted`.
- Cluster roles that a space grants in the remote cluster must be in the setting `space_roles` or come from a template.
  Choosing the remote namespace needs `<plural>/restricted` as well: otherwise it could take a name that is meant for
  another instance. Values that were set before may stay.
- The annotation `service.sh/abandon` removes an instance without deleting its remote objects, which then no longer
  count towards any quota. It needs the permission to update the Cluster. Imported virtual clusters are exempt: they run
  in no cluster of this server.
"""

from collections.abc import Collection
from typing import Any

from fairlead.admission import May, Rule, concerning, is_one_of
from fairlead.core.call import Target
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import CONTROLLER, User
from fairlead.domain.template_resolution import TEMPLATES
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

SPACES, VIRTUAL_CLUSTERS = "spaceinstances", "virtualclusterinstances"
OWNED = (SPACES, VIRTUAL_CLUSTERS)
RESTRICTED = "restricted"
TEAM = "service:team:"
ABANDON = "service.sh/abandon"
ORDINARY = frozenset({"view", "edit", "admin"})
"""The user-facing roles that every Kubernetes cluster has."""


def instances(may: May, api_group: str, prefix: str) -> Rule:
    """Sets the default owner and restricts instances without a template. `prefix` is that of project namespaces."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, *TEMPLATES))
    async def rule(change: Change, registry: Registry) -> None:
        kind = change.kind
        if change.subresource or change.user == CONTROLLER:
            return
        if kind.plural in OWNED:
            _give_owner(change)
        if _has_no_template(change) and not _project_allows(change, registry, api_group, prefix):
            _require(change, may)

    return rule


def _give_owner(change: Change) -> None:
    """Keeps the old owner if an update omits it, as applied manifests often do."""
    owner = dig(change.obj, "spec.owner")
    if isinstance(owner, dict) and (owner.get("user") or owner.get("team")):
        return
    if owner is not None and not isinstance(owner, dict):
        return  # schema validation rejects it
    spec = change.obj.setdefault("spec", {})
    if isinstance(spec, dict):
        before = dig(change.old or {}, "spec.owner")
        spec["owner"] = before if before else _as_owner(change.user)


def _as_owner(user: User) -> Object:
    return {"team": user.name.removeprefix(TEAM)} if user.name.startswith(TEAM) else {"user": user.name}


def _has_no_template(change: Change) -> bool:
    """Whether the change sets content that no stored template defines. Content that was set before may stay."""
    after = _made_from(change.obj)
    name, template, _ = after
    if name and not template:
        return False
    return change.old is None or after != _made_from(change.old)


def _made_from(instance: Object) -> tuple[Any, Any, Any]:
    template = dig(instance, "spec.template") or None
    # A stored template validates its parameters; for an inline one they are unrestricted content.
    parameters = (dig(instance, "spec.parameters") or None) if template else None
    return dig(instance, "spec.templateRef.name") or None, template, parameters


def _project_allows(change: Change, registry: Registry, api_group: str, prefix: str) -> bool:
    namespace = str(metadata(change.obj).get("namespace") or "")
    if not namespace.startswith(prefix):
        return False
    entry = registry.resource(api_group, "projects").peek("", namespace.removeprefix(prefix))
    return entry is not None and dig(decode(entry), "spec.requireTemplate.disabled") is True


def _require(change: Change, may: May) -> None:
    kind, namespace = change.kind, str(metadata(change.obj).get("namespace") or "")
    # Without a name: owners have every permission on their own object, and must not get this one from that.
    right = Target("create", "", "", kind.group, kind.version, kind.plural, RESTRICTED, namespace)
    if not may(change.user, right).allowed:
        why = (
            f'User "{change.user.name}" cannot create {kind.plural}/{RESTRICTED} in the namespace "{namespace}"; '
            "name a template in spec.templateRef.name and leave spec.template out, or ask for that permission"
        )
        raise Forbidden.of(kind.plural, kind.group, name_of(change.obj), why)


def instance_reach(may: May, api_group: str, roles: Collection[str] = ORDINARY) -> Rule:
    """Restricts cluster roles and the namespace in the remote cluster. Any writer of a space may grant `roles`."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, *OWNED))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER or change.new is None:
            return
        old = change.old or {}
        if change.kind.plural == SPACES:
            forbidden = sorted(_roles(change.new) - _roles(old) - set(roles))
            if forbidden:
                raise _not_given(change, forbidden[0], roles)
        if change.old is None and dig(change.new, "status.serviceUID"):
            return  # migrated from another project, keeps its namespace; no other create can set the status
        namespace = dig(change.new, "spec.clusterRef.namespace")
        if namespace and namespace != dig(old, "spec.clusterRef.namespace") and not _is_unrestricted(change, may):
            advice = "leave it out, so that the server chooses one, or ask for that permission"
            raise _refused(change, "setting spec.clusterRef.namespace", advice)

    return rule


def _roles(instance: Object) -> set[str]:
    """The cluster roles that the instance itself grants, without those of a stored template."""
    granted = [
        *_in_rules(dig(instance, "spec.extraAccessRules")),
        *_in_rules(dig(instance, "spec.template.access.rules")),
    ]
    granted.append(dig(instance, "spec.template.access.defaultClusterRole"))
    return {role for role in granted if isinstance(role, str) and role}


def _in_rules(rules: Any) -> list[Any]:
    """The cluster roles of access rules. Schema validation rejects anything that is not a list of rules."""
    return [each.get("clusterRole") for each in rules if isinstance(each, dict)] if isinstance(rules, list) else []


def _not_given(change: Change, role: str, roles: Collection[str]) -> Forbidden:
    why = (
        f'the cluster role "{role}" cannot be granted in spec.extraAccessRules or spec.template.access; use '
        f"{', '.join(sorted(roles))}, have an administrator add it to a template, or have it added to the setting "
        "space_roles"
    )
    return Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)


def _is_unrestricted(change: Change, may: May) -> bool:
    kind, namespace = change.kind, str(metadata(change.obj).get("namespace") or "")
    # Without a name: owners have every permission on their own object, and must not get this one from that.
    right = Target("create", "", "", kind.group, kind.version, kind.plural, RESTRICTED, namespace)
    return may(change.user, right).allowed


def _refused(change: Change, what: str, advice: str) -> Forbidden:
    kind, namespace = change.kind, str(metadata(change.obj).get("namespace") or "")
    right = f'create {kind.plural}/{RESTRICTED} in the namespace "{namespace}"'
    why = f'User "{change.user.name}" cannot {right}, which {what} needs; {advice}'
    return Forbidden.of(kind.plural, kind.group, name_of(change.obj), why)


def abandoning(may: May, api_group: str) -> Rule:
    """Setting the annotation `service.sh/abandon` needs the permission to update the Cluster."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, *OWNED))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER or change.arriving or not _asks(change.obj):
            return
        cluster = dig(change.obj, "spec.clusterRef.cluster")
        if _asks(change.old) and cluster == dig(change.old, "spec.clusterRef.cluster") and not _is_deployed_now(change):
            return
        if (not isinstance(cluster, str) or not cluster) and dig(change.obj, "spec.config.secretName"):
            return  # imported: it runs in no cluster of this server
        cluster = cluster if isinstance(cluster, str) else ""
        target = Target("update", "", "", api_group, "v1", "clusters", "", "", cluster)
        if not may(change.user, target).allowed:
            where = f'the cluster "{cluster}"' if cluster else "clusters"
            why = (
                f'User "{change.user.name}" may not update {where}, and the annotation {ABANDON} needs that permission '
                "because it leaves objects behind there; delete without it, or have an administrator of the cluster "
                "set it"
            )
            raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)

    return rule


def _is_deployed_now(change: Change) -> bool:
    """Whether the change turns an imported instance into one that the server deploys to a cluster."""
    was_imported, is_imported = (bool(dig(each, "spec.config.secretName")) for each in (change.old, change.obj))
    return was_imported and not is_imported


def _asks(instance: Object | None) -> bool:
    annotations = metadata(instance).get("annotations") if instance is not None else None
    return isinstance(annotations, dict) and annotations.get(ABANDON) == "true"
