"""RBAC: what roles and bindings allow, by Kubernetes' own rules.

One of the authorizers that `app` puts in order; rules reviews and the escalation check ask it for the rules behind its
decisions. Rights only ever add up: who has none gets no opinion, so that others may still allow the request.

What a name and its groups add up to is worked out once and kept until a role or a binding changes, in whichever
replica: the four resources are followed, and each request first asks whether they still are what they were.
"""

import json
from dataclasses import dataclass
from operator import itemgetter

import orjson

from fairlead.authz.chain import Decision
from fairlead.authz.rights import KEPT_NAMES, Rights, spellings
from fairlead.core.call import Target
from fairlead.core.objects import Object
from fairlead.core.user import SERVICE_ACCOUNT, User
from fairlead.kinds.rules import EVERYTHING, GROUP
from fairlead.registry.following import Following
from fairlead.storage.view import View

FEW = 8
"""Roles that are asked one by one."""
KEPT_ANSWERS = 256
KEPT = 4_096
"""How many identities are kept ready; the ones that came first go first."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A role that an identity has through a binding, and the decision that comes of it."""

    rights: Rights
    decision: Decision


class Grants:
    """The roles that an identity has in one place. The first that allows something decides.

    Where there are many, it is kept which of them that is, name by name: a list that is cut asks for each object.
    """

    __slots__ = ("_found", "_weight", "every")

    def __init__(self) -> None:
        self.every: list[Grant] = []
        self._found: dict[tuple[str, ...], tuple[dict[str, Decision], Decision | None]] = {}
        self._weight = 0

    def decide(self, target: Target, spelled: tuple[str, ...]) -> Decision | None:
        if not spelled or len(self.every) <= FEW:
            for grant in self.every:
                if grant.rights.allow(target, spelled):
                    return grant.decision
            return None
        key = (target.verb, target.group, *spelled)
        found = self._found.get(key)
        if found is None:
            found = self._add_up(target, spelled)
            self._weight += len(found[0]) + 1
            if self._weight > KEPT_NAMES or len(self._found) >= KEPT_ANSWERS:
                self._found.clear()
                self._weight = len(found[0]) + 1
            self._found[key] = found
        return found[0].get(target.name) or found[1]

    def _add_up(self, target: Target, spelled: tuple[str, ...]) -> tuple[dict[str, Decision], Decision | None]:
        """By the name of an object who decides about it, and who decides about all others."""
        by_name: dict[str, Decision] = {}
        for grant in self.every:
            names = grant.rights.extent(target, spelled)
            if names is None:
                return by_name, grant.decision
            for name in names:
                by_name.setdefault(name, grant.decision)
        return by_name, None


Held = dict[str, Grants]
"""What an identity holds, by the namespace where it counts; the empty one stands for everywhere."""
Noted = tuple[str, str, int, Object]
"""A subject of a binding: the binding's namespace and name, the place of the subject in it, and the binding."""


class Rbac:
    """The authorizer for roles and bindings."""

    def __init__(
        self,
        roles: Following,
        cluster_roles: Following,
        role_bindings: Following,
        cluster_role_bindings: Following,
    ) -> None:
        self._followings = (roles, cluster_roles, role_bindings, cluster_role_bindings)
        self._generation: tuple[int, ...] = ()
        self._as_of = -1
        self._picture = _Picture(*self._followings)

    @staticmethod
    def over(view: View) -> "Rbac":
        """The authorizer for the roles and bindings in a view."""
        plurals = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
        return Rbac(*(Following(view, GROUP, plural) for plural in plurals))

    def __call__(self, user: User, target: Target) -> Decision | None:
        held = self._now().held(user)
        spelled = spellings(target)
        for namespace in ("", target.namespace) if target.namespace else ("",):
            grants = held.get(namespace)
            decision = None if grants is None else grants.decide(target, spelled)
            if decision is not None:
                return decision
        return None

    def generation(self) -> tuple[int, ...]:
        """Another value whenever a role or a binding has changed."""
        roles, cluster_roles, role_bindings, cluster_role_bindings = self._followings
        return (
            roles.refresh(),
            cluster_roles.refresh(),
            role_bindings.refresh(),
            cluster_role_bindings.refresh(),
        )

    def rules_for(self, user: User, namespace: str) -> list[Object]:
        """Every rule that counts for the user in the namespace, those that count everywhere included; the caller's to
        change."""
        if user.is_admin:
            found = [orjson.dumps(rule) for rule in EVERYTHING]
        else:
            held = self._now().held(user)
            places = [held[each] for each in dict.fromkeys(("", namespace)) if each in held]
            found = [orjson.dumps(rule) for grants in places for grant in grants.every for rule in grant.rights.rules]
        return [orjson.loads(rule) for rule in dict.fromkeys(found)]

    def role_allows(self, name: str, target: Target) -> bool:
        """Whether the ClusterRole of that name would allow something to whoever has it."""
        rights = self._now().rights("ClusterRole", "", name)
        return rights is not None and rights.allow(target, spellings(target))

    def _now(self) -> "_Picture":
        now = self._followings[0].as_of
        if now != self._as_of:  # something has happened, though perhaps to other resources
            self._as_of = now
            generation = self.generation()
            if generation != self._generation:
                self._generation = generation
                self._picture = _Picture(*self._followings)
        return self._picture


class _Picture:
    """Roles and bindings as they stand between two changes."""

    def __init__(
        self,
        roles: Following,
        cluster_roles: Following,
        role_bindings: Following,
        cluster_role_bindings: Following,
    ) -> None:
        self._roles = {"Role": roles.objects, "ClusterRole": cluster_roles.objects}
        self._rights: dict[tuple[str, str, str], Rights | None] = {}
        self._held: dict[tuple[str, tuple[str, ...]], Held] = {}
        self._users: dict[str, list[Noted]] = {}
        self._groups: dict[str, list[Noted]] = {}
        for bindings in (cluster_role_bindings.objects, role_bindings.objects):
            for (namespace, name), binding in bindings.items():
                self._note(namespace, name, binding)

    def _note(self, namespace: str, name: str, binding: Object) -> None:
        """Files a binding under its subjects. There may be very many, so nothing more is made of it yet."""
        for place, subject in enumerate(binding.get("subjects") or ()):
            index, who = self._users, subject["name"]
            if subject["kind"] == "Group":
                index = self._groups
            elif subject["kind"] == "ServiceAccount":
                who = f"{SERVICE_ACCOUNT}{subject.get('namespace') or namespace}:{who}"
            index.setdefault(who, []).append((namespace, name, place, binding))

    def held(self, user: User) -> Held:
        identity = (user.name, user.groups)
        held = self._held.get(identity)
        if held is None:
            if len(self._held) >= KEPT:
                del self._held[next(iter(self._held))]
            held = self._held[identity] = self._work_out(user)
        return held

    def _work_out(self, user: User) -> Held:
        noted = [*self._users.get(user.name, ())]
        for group in dict.fromkeys(user.groups):
            noted.extend(self._groups.get(group, ()))
        held: Held = {}
        seen: set[tuple[str, str]] = set()
        for namespace, name, place, binding in sorted(noted, key=itemgetter(0, 1, 2)):
            if (namespace, name) in seen:
                continue
            seen.add((namespace, name))
            role = binding["roleRef"]
            rights = self.rights(role["kind"], namespace if role["kind"] == "Role" else "", role["name"])
            if rights is not None:
                decision = Decision(True, _reason(namespace, name, role, binding["subjects"][place]))
                held.setdefault(namespace, Grants()).every.append(Grant(rights, decision))
        return held

    def rights(self, kind: str, namespace: str, name: str) -> Rights | None:
        """What a role allows; None while there is no such role."""
        place = (kind, namespace, name)
        if place not in self._rights:
            role = self._roles[kind].get((namespace, name))
            self._rights[place] = None if role is None else Rights(role.get("rules") or ())
        return self._rights[place]


def _reason(namespace: str, name: str, role: Object, subject: Object) -> str:
    binding, who = f"ClusterRoleBinding {_quoted(name)}", subject["name"]
    if namespace:
        binding = f"RoleBinding {_quoted(f'{name}/{namespace}')}"
    if subject["kind"] == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or namespace}"
    of, to = f"{role['kind']} {_quoted(role['name'])}", f"{subject['kind']} {_quoted(who)}"
    return f"RBAC: allowed by {binding} of {of} to {to}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
