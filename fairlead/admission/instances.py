"""Instances: whose they are, and who may make them without a template.

A space or virtual cluster always has an owner: whoever creates it, if nobody is named. This comes before the rule about
granting, which then sees an owner like any other. Without a template, or with one written out in place, an instance can
be anything, so that it takes the right to create `<plural>/restricted` where the project does not allow it to all.
"""

from typing import Any

from fairlead.admission.chain import May, Rule, concerning, is_one_of
from fairlead.core.call import Target
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import CONTROLLER, User
from fairlead.kinds.resolution import TEMPLATES
from fairlead.registry.kind import Change
from fairlead.registry.record import decode
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
        if _is_free(change) and not _project_allows(change, registry, api_group, prefix):
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


def _is_free(change: Change) -> bool:
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
