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
from fairlead.authz.rights import Rights, spellings
from fairlead.core.call import Target
from fairlead.core.objects import Object
from fairlead.core.user import SERVICE_ACCOUNT, User
from fairlead.kinds.rules import EVERYTHING, GROUP
from fairlead.registry.following import Following
from fairlead.storage.view import View

KEPT = 4_096
"""How many identities are kept ready; the ones that came first go first."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A role that an identity has through a binding, and the decision that comes of it."""

    rights: Rights
    decision: Decision


Held = dict[str, list[Grant]]
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
            for grant in held.get(namespace, ()):
                if grant.rights.allow(target, spelled):
                    return grant.decision
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
            grants = [*held.get("", ()), *(held.get(namespace, ()) if namespace else ())]
            found = [orjson.dumps(rule) for grant in grants for rule in grant.rights.rules]
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
                held.setdefault(namespace, []).append(Grant(rights, decision))
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
