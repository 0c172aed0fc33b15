"""Nobody gives rights that they do not hold: the rules of a role, and the role of a binding, must be the writer's own.

As in Kubernetes, the verb `escalate` on roles and the verb `bind` on the role that is bound stand for all of them.
A write that gives nothing (it leaves rules, subjects and role as they are) is nobody's concern; labels of a ClusterRole
are, because aggregated roles choose by them. A key with a scope gives only what `escalate` or `bind` allow within that
scope: what its identity holds beside the scope is not the key's to give.
"""

from collections.abc import Iterable
from typing import Protocol

from fairlead.admission.chain import May, Rule, concerning
from fairlead.admission.rule_cover import MAX_DESCRIBED, Holding, TooManyRights, quoted
from fairlead.core.call import Target
from fairlead.core.errors import MAX_PROBLEMS, Forbidden, NotFound
from fairlead.core.objects import Object, dig, metadata
from fairlead.core.user import User
from fairlead.kinds.rules import EVERYTHING, GROUP
from fairlead.registry.kind import Change
from fairlead.registry.record import decode
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Check

_ROLES = {"Role": "roles", "ClusterRole": "clusterroles"}
_GIVES = {
    "roles": ("rules",),
    "clusterroles": ("rules", "aggregationRule", "metadata.labels"),
    "rolebindings": ("roleRef", "subjects"),
    "clusterrolebindings": ("roleRef", "subjects"),
}
"""What of each kind gives rights to somebody."""


class Holders(Protocol):
    """Knows which rules somebody holds."""

    def rules_for(self, user: User, namespace: str) -> list[Object]: ...


def escalation(may: May, rbac: Holders) -> Rule:
    """The rule, for whoever decides what users may do and knows which rules they hold."""

    @concerning(lambda kind, verb: verb != "delete" and kind.group == GROUP)
    async def rule(change: Change, registry: Registry) -> None:
        if _gives_nothing(change) or change.user.holds_everything:
            return
        if change.kind.plural in _ROLES.values():
            _check_role(change, may, rbac)
        else:
            _check_binding(change, registry, may, rbac)

    return rule


def _gives_nothing(change: Change) -> bool:
    old, new = change.old, change.obj
    return old is not None and all(dig(old, path) == dig(new, path) for path in _GIVES[change.kind.plural])


def _check_role(change: Change, may: May, rbac: Holders) -> None:
    name = metadata(change.obj)["name"] if change.old is not None else ""  # as in the path of such a request
    if may(change.user, _target("escalate", change.kind.plural, change, name)).allowed:
        return
    _refuse_scoped(change, "escalate")
    _confirm(change, rbac, change.obj.get("rules") or ())
    if any(each and each.get("aggregationRule") for each in (change.old, change.obj)) and _missing(
        change, rbac, EVERYTHING
    ):
        raise _forbidden(change, "must have cluster-admin privileges to use an aggregationRule")


def _check_binding(change: Change, registry: Registry, may: May, rbac: Holders) -> None:
    reference = change.obj["roleRef"]
    plural, name = _ROLES.get(reference.get("kind", "")), reference.get("name")
    namespace = _place(change)
    if plural is None or not name or (plural == "roles" and not namespace):
        return  # the kind's own rules say what is wrong with it
    if may(change.user, _target("bind", plural, change, name)).allowed:
        return
    _refuse_scoped(change, "bind")
    role = registry.resource(GROUP, plural).peek(namespace if plural == "roles" else "", name)
    if role is None:
        raise NotFound.of(plural, GROUP, name)
    _confirm(change, rbac, decode(role).get("rules") or ())
    # The role could get more rules between this look and the commit; then the commit must not happen.
    change.checks.append(Check(role.key, role.revision))


def _target(verb: str, plural: str, change: Change, name: str) -> Target:
    return Target(verb, "", group=GROUP, version="v1", resource=plural, namespace=_place(change), name=name)


def _place(change: Change) -> str:
    return metadata(change.obj)["namespace"] if change.kind.namespaced else ""


def _refuse_scoped(change: Change, verb: str) -> None:
    if change.user.scope is not None:
        raise _forbidden(
            change, f'a key with a scope gives only what it may "{verb}" within that scope; use a key without one'
        )


def _confirm(change: Change, rbac: Holders, rules: Iterable[Object]) -> None:
    missing = _missing(change, rbac, rules)
    if missing:
        beyond = "" if len(missing) >= MAX_DESCRIBED else f"{len(missing) - MAX_PROBLEMS} "
        more = [f"and {beyond}more"] if len(missing) > MAX_PROBLEMS else []
        who = f'user "{change.user.name}" (groups={quoted(change.user.groups)})'
        told = "\n".join([*missing[:MAX_PROBLEMS], *more])
        raise _forbidden(change, f"{who} is attempting to grant RBAC permissions not currently held:\n{told}")


def _missing(change: Change, rbac: Holders, rules: Iterable[Object]) -> list[str]:
    try:
        return Holding(rbac.rules_for(change.user, _place(change))).missing(rules)
    except TooManyRights:
        why = (
            "its rules combine to more rights than can be compared with yours; split the role into smaller ones, or "
            'ask somebody who may "escalate" roles and "bind" them'
        )
        raise _forbidden(change, why) from None


def _forbidden(change: Change, why: str) -> Forbidden:
    kind, name = change.kind, str(metadata(change.obj).get("name") or "")
    return Forbidden.of(kind.plural, kind.group, name, why)
