"""What instances reach in a cluster beyond what their template settles: roles in a space, and a namespace by name.

Whoever may make or change a space is not thereby somebody who may hand out any role of the cluster, or take a namespace
of any name before the one that it is meant for comes. Roles in a space are those that a setting lists, or come from an
administrator's template. The name of a namespace takes the right to create `<plural>/restricted`, as it does to make an
instance without a template. What was there before may stay, and the server itself writes what it has chosen.
"""

from collections.abc import Collection
from typing import Any

from fairlead.admission.chain import May, Rule, concerning, is_one_of
from fairlead.core.call import Target
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import CONTROLLER
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

SPACES, VIRTUAL_CLUSTERS = "spaceinstances", "virtualclusterinstances"
RESTRICTED = "restricted"
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
        if namespace and namespace != dig(old, "spec.clusterRef.namespace") and not _is_free(change, may):
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


def _is_free(change: Change, may: May) -> bool:
    kind, namespace = change.kind, str(metadata(change.obj).get("namespace") or "")
    # Without a name: the right is about making things, and owners of an object do not have it from that.
    right = Target("create", "", "", kind.group, kind.version, kind.plural, RESTRICTED, namespace)
    return may(change.user, right).allowed


def _refused(change: Change, what: str, advice: str) -> Forbidden:
    kind, namespace = change.kind, str(metadata(change.obj).get("namespace") or "")
    right = f'create {kind.plural}/{RESTRICTED} in the namespace "{namespace}"'
    why = f'User "{change.user.name}" cannot {right}, which it takes {what}; {advice}'
    return Forbidden.of(kind.plural, kind.group, name_of(change.obj), why)
