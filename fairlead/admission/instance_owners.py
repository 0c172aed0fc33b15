"""Owners of instances: the default, and who may become one: the requester, or a member of the project who accepts.

A space, virtual cluster or deployed app always has an owner; the default is the requester. That is set before
`check_grants`, which then checks the owner like any other.

An instance counts for the quota of its owner, and a workspace gets the secrets that its owner may use. So no one may
become an owner without having agreed: the new owner writes `spec.owner`, which needs the permissions `update` and
`makeowner` on the instance. The current owner grants these in `spec.access`. Administrators may set any owner, and so
may those who may impersonate the new owner, such as a controller that manages the instances of others.

The new owner also has to be a member of the project, or have a role there, unless requesters name themselves. For a
team, that applies to the team: the quota of a team that has nothing to do with the project must not be used. An
instance that moves to another project keeps its owner, who has agreed before.

Only administrators remove an owner, and only of a workspace: instances without one count for no one. Any other update
that leaves it out keeps the current one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairlead.admission import Rule, applies_to, forbidden, is_resource
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.user import CONTROLLER_USER, TEAM_GROUP_PREFIX, User
from fairlead.domain.secret_references import owner_principal
from fairlead.kinds import CLUSTER_INSTANCES, INSTANCES
from fairlead.kinds.instances.app_instance import APP_INSTANCE
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


@dataclass(frozen=True, slots=True)
class OwnerChecks:
    """`may_own` says whether a principal may work in a namespace: the principal, the API group, the namespace and the
    plural of the instance."""

    authorize: Authorize
    owns: Callable[[User, str | None, str | None], bool]
    may_own: Callable[[str, str, str, str], bool]


def default_instance_owner(api_group: str) -> Rule:
    """Keeps the owner if an update leaves it out, as applied manifests often do. New instances get the requester."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER:
            return
        spec = change.obj.get("spec")
        if not isinstance(spec, dict | None) or not _is_empty(get_path(spec, "owner")):
            return
        _set_default_owner(change, spec)

    return rule


def _set_default_owner(change: Change, spec: Object | None) -> None:
    owner = _find_default_owner(change)
    others = {name: value for name, value in (spec or {}).items() if name != "owner"}
    if owner is not None:
        change.obj["spec"] = {**others, "owner": owner}
    elif spec is not None:
        change.obj["spec"] = others


def _find_default_owner(change: Change) -> Object | None:
    """None for workspaces that administrators create or update without an owner, and for stored ones without one."""
    is_always_owned = change.kind.plural in (*CLUSTER_INSTANCES, APP_INSTANCE.plural)
    before: Object | None = get_path(change.old, "spec.owner")
    if not _is_empty(before):
        return before if is_always_owned or not change.user.is_unscoped_admin else None
    is_created = change.old is None and not change.user.is_admin  # without an owner, it would count for no quota
    return _owner_for(change.user) if is_always_owned or is_created else None


def _owner_for(user: User) -> Object:
    team = user.name.removeprefix(TEAM_GROUP_PREFIX)
    return {"user": user.name} if team == user.name else {"team": team}


def _is_empty(owner: Any) -> bool:
    """Whether there is no owner. Schema validation rejects an owner that is not a map."""
    return owner is None or (isinstance(owner, dict) and not owner.get("user") and not owner.get("team"))


def require_owner_consent(checks: OwnerChecks, api_group: str) -> Rule:
    """Rejects a new owner who has not agreed, or who may not work in the project."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.new is None or change.is_move:
            return
        if change.user == CONTROLLER_USER or change.user.is_unscoped_admin:
            return
        owner = owner_principal(change.new)
        if not owner or _owner_fields(change.new) == _owner_fields(change.old):
            return
        is_self = _is_self(change, owner, checks)
        if not is_self and not _may_act_as(change.user, owner, checks.authorize):
            raise _consent_error(change, owner)
        namespace = str(metadata(change.obj).get("namespace") or "")
        if is_self and not owner.startswith(TEAM_GROUP_PREFIX):
            return
        if not checks.may_own(owner, change.kind.group, namespace, change.kind.plural):
            raise _membership_error(change, owner)

    return rule


def _is_self(change: Change, owner: str, checks: OwnerChecks) -> bool:
    user, team = (_text(change.obj, each) for each in ("user", "team"))
    return owner == change.user.name or checks.owns(change.user, user, team)


def _owner_fields(obj: Object | None) -> tuple[object, ...]:
    """Not as a principal: a user with the name of a team's group would be the same, and has a quota of its own."""
    return tuple(get_path(obj, f"spec.owner.{each}") or "" for each in ("user", "team"))


def _text(obj: Object, field: str) -> str | None:
    found = get_path(obj, f"spec.owner.{field}")
    return found if isinstance(found, str) else None


def _may_act_as(user: User, owner: str, authorize: Authorize) -> bool:
    resource = "groups" if owner.startswith(TEAM_GROUP_PREFIX) else "users"
    return authorize(user, RequestInfo("impersonate", version="v1", resource=resource, name=owner)).allowed


def _describe(owner: str) -> str:
    team = owner.removeprefix(TEAM_GROUP_PREFIX)
    return f'user "{owner}"' if team == owner else f'team "{team}"'


def _consent_error(change: Change, owner: str) -> Forbidden:
    whom = _describe(owner)
    who = "a member of it" if owner.startswith(TEAM_GROUP_PREFIX) else "they"
    why = (
        f"{whom} has to agree to own it: leave spec.owner out, grant {whom} the verbs get, update and makeowner in "
        f"spec.access, and let {'them' if who == 'they' else who} set spec.owner. Administrators, and those who may "
        f"impersonate {whom}, may set it directly"
    )
    return forbidden(change, why)


def _membership_error(change: Change, owner: str) -> Forbidden:
    why = f"{_describe(owner)} cannot own it, being no member of the project; add them to spec.members of the project"
    return forbidden(change, why)
