"""Instances: whose they are, and who may make them without a template.

A space or virtual cluster always has an owner: whoever creates it, if nobody is named. This comes before the rule about
granting, which then sees an owner like any other. Without a template, or with one written out in place, an instance can
be anything, so that it takes the right to create `<plural>/restricted` where the project does not allow it to all.
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

OWNED = ("spaceinstances", "virtualclusterinstances")
RESTRICTED = "restricted"
TEAM = "service:team:"


def instances(may: May, api_group: str, prefix: str) -> Rule:
    """The rule, for the API group and the prefix of project namespaces that this server uses."""

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
    """An update that leaves the owner out keeps it; people's files often do."""
    owner = dig(change.obj, "spec.owner")
    if isinstance(owner, dict) and (owner.get("user") or owner.get("team")):
        return
    if owner is not None and not isinstance(owner, dict):
        return  # the schema says what is wrong with it
    spec = change.obj.setdefault("spec", {})
    if isinstance(spec, dict):
        before = dig(change.old or {}, "spec.owner")
        spec["owner"] = before if before else _as_owner(change.user)


def _as_owner(user: User) -> Object:
    return {"team": user.name.removeprefix(TEAM)} if user.name.startswith(TEAM) else {"user": user.name}


def _has_no_template(change: Change) -> bool:
    """Whether the change makes something that no template has settled. What was made so before may stay as it is."""
    after = _made_from(change.obj)
    name, template, _ = after
    if name and not template:
        return False
    return change.old is None or after != _made_from(change.old)


def _made_from(instance: Object) -> tuple[Any, Any, Any]:
    template = dig(instance, "spec.template") or None
    # Only what is written out in place takes values that nobody has set limits for.
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
    # Without a name: the right is about making things, and owners of an object do not have it from that.
    right = Target("create", "", "", kind.group, kind.version, kind.plural, RESTRICTED, namespace)
    if not may(change.user, right).allowed:
        why = (
            f'User "{change.user.name}" cannot create {kind.plural}/{RESTRICTED} in the namespace "{namespace}"; '
            "name a template in spec.templateRef.name and leave spec.template out, or ask for that right"
        )
        raise Forbidden.of(kind.plural, kind.group, name_of(change.obj), why)


# DOC-MERGED admission/instance_reach
# What instances reach in a cluster beyond what their template settles: roles in a space, and a namespace by name.
#
# Whoever may make or change a space is not thereby somebody who may hand out any role of the cluster, or take a namespace
# of any name before the one that it is meant for comes. Roles in a space are those that a setting lists, or come from an
# administrator's template. The name of a namespace takes the right to create `<plural>/restricted`, as it does to make an
# instance without a template. What was there before may stay, and the server itself writes what it has chosen.


SPACES, VIRTUAL_CLUSTERS = "spaceinstances", "virtualclusterinstances"
ORDINARY = frozenset({"view", "edit", "admin"})
"""The roles that every cluster has for use in a namespace."""


def instance_reach(may: May, api_group: str, roles: Collection[str] = ORDINARY) -> Rule:
    """The rule, for the API group that this server uses. `roles` may be given by everybody who may write a space."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, SPACES, VIRTUAL_CLUSTERS))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER or change.new is None:
            return
        old = change.old or {}
        if change.kind.plural == SPACES:
            given = sorted(_roles(change.new) - _roles(old) - set(roles))
            if given:
                raise _not_given(change, given[0], roles)
        if change.old is None and dig(change.new, "status.serviceUID"):
            return  # it moves here from another project and stays where it was; nobody else creates a status
        namespace = dig(change.new, "spec.clusterRef.namespace")
        if namespace and namespace != dig(old, "spec.clusterRef.namespace") and not _is_unrestricted(change, may):
            advice = "leave it out, so that the server chooses one, or ask for that right"
            raise _refused(change, "to choose spec.clusterRef.namespace", advice)

    return rule


def _roles(instance: Object) -> set[str]:
    """All that a space gives without a template of an administrator."""
    given = [
        *_in_rules(dig(instance, "spec.extraAccessRules")),
        *_in_rules(dig(instance, "spec.template.access.rules")),
    ]
    given.append(dig(instance, "spec.template.access.defaultClusterRole"))
    return {role for role in given if isinstance(role, str) and role}


def _in_rules(rules: Any) -> list[Any]:
    """Of what is no list of rules the schema says what is wrong with it."""
    return [each.get("clusterRole") for each in rules if isinstance(each, dict)] if isinstance(rules, list) else []


def _not_given(change: Change, role: str, roles: Collection[str]) -> Forbidden:
    why = (
        f'the cluster role "{role}" cannot be given in spec.extraAccessRules or spec.template.access; use '
        f"{', '.join(sorted(roles))}, have an administrator put it into a template, or have it added to the setting "
        "space_roles"
    )
    return Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)


def _is_unrestricted(change: Change, may: May) -> bool:
    kind, namespace = change.kind, str(metadata(change.obj).get("namespace") or "")
    # Without a name: the right is about making things, and owners of an object do not have it from that.
    right = Target("create", "", "", kind.group, kind.version, kind.plural, RESTRICTED, namespace)
    return may(change.user, right).allowed


def _refused(change: Change, what: str, advice: str) -> Forbidden:
    kind, namespace = change.kind, str(metadata(change.obj).get("namespace") or "")
    right = f'create {kind.plural}/{RESTRICTED} in the namespace "{namespace}"'
    why = f'User "{change.user.name}" cannot {right}, which it takes {what}; {advice}'
    return Forbidden.of(kind.plural, kind.group, name_of(change.obj), why)


# DOC-MERGED admission/abandoning
# Leaving behind in a cluster what was made for an instance takes the right to change that cluster.
#
# The annotation `service.sh/abandon` lets an instance go at once. What runs for it in the cluster goes on, and counts
# towards no quota any more: whoever could abandon instances freely could have as many as he likes. So it takes the right
# to update the Cluster; for one that is imported, and so is in no cluster of ours, nothing beyond that to change it.


ABANDON = "service.sh/abandon"
INSTANCES = ("spaceinstances", "virtualclusterinstances")


def abandoning(may: May, api_group: str) -> Rule:
    """The rule, for the API group that this server uses."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, *INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER or change.arriving or not _asks(change.obj):
            return
        cluster = dig(change.obj, "spec.clusterRef.cluster")
        if _asks(change.old) and cluster == dig(change.old, "spec.clusterRef.cluster") and not _is_deployed_now(change):
            return
        if (not isinstance(cluster, str) or not cluster) and dig(change.obj, "spec.config.secretName"):
            return  # whatever is in it is its owner's own
        cluster = cluster if isinstance(cluster, str) else ""
        target = Target("update", "", "", api_group, "v1", "clusters", "", "", cluster)
        if not may(change.user, target).allowed:
            where = f'the cluster "{cluster}"' if cluster else "clusters"
            why = (
                f'User "{change.user.name}" may not update {where}, which it takes to leave something behind there '
                f"with the annotation {ABANDON}; delete it without, or have an administrator of the cluster do that"
            )
            raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)

    return rule


def _is_deployed_now(change: Change) -> bool:
    """Whether it was imported before, and is not any more: from then on something is made for it in a cluster."""
    was_imported, is_imported = (bool(dig(each, "spec.config.secretName")) for each in (change.old, change.obj))
    return was_imported and not is_imported


def _asks(instance: Object | None) -> bool:
    annotations = metadata(instance).get("annotations") if instance is not None else None
    return isinstance(annotations, dict) and annotations.get(ABANDON) == "true"
