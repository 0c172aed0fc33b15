"""The authorizer for members of projects: their role applies in the project's namespace.

    admin    everything in the namespace; the owner of the project is an admin
    user     creates instances, uses project secrets, reads events; manages instances as their owner, or if shared
    viewer   reads what is shared with them (`ownership.py`)

Any other role is the ClusterRole of that name, applied in the namespace. All members may read the project itself.
"""

from collections.abc import Callable

from fairlead.authz import Decision
from fairlead.authz.name_index import own_names, owns
from fairlead.core.call import NAMESPACES, Target
from fairlead.core.objects import Object, dig
from fairlead.core.user import User
from fairlead.kinds.projects.migration import MIGRATE
from fairlead.registry.informer import Following
from fairlead.storage.view.view import Entry

PROJECTS = "projects"
INSTANCES = frozenset({"devpodworkspaceinstances", "spaceinstances", "virtualclusterinstances"})
SECRETS = frozenset({"projectsecrets"})
READ = frozenset({"get", "list", "watch"})
EVENT_GROUPS = ("", "events.k8s.io")

RoleAllows = Callable[[str, Target], bool]
"""Whether the ClusterRole of that name allows a request."""


class Members:
    """The authorizer for project members."""

    def __init__(self, projects: Following, api_group: str, prefix: str, role_allows: RoleAllows) -> None:
        self._projects = projects
        self._group = api_group
        self._prefix = prefix
        self._role_allows = role_allows
        self._members: dict[str, tuple[Object, _Members]] = {}

    def __call__(self, user: User, target: Target) -> Decision | None:
        project = self._project(target)
        if project is None:
            return None
        for role in self._roles(project, user):
            if self._allows(role, target):
                return Decision(True, f'role "{role}" in project "{project["metadata"]["name"]}"')
        return None

    def of(self, user: User, target: Target, entry: Entry) -> Decision | None:
        return self(user, target)

    def stands(self, user: User, target: Target) -> bool:
        """Members may list instances and namespaces of their projects. All users may list projects."""
        if (target.group, target.resource) == (self._group, PROJECTS):
            return True
        if (target.group, target.resource) != NAMESPACES and not (
            target.group == self._group and target.resource in INSTANCES
        ):
            return False
        self._projects.refresh()
        if target.namespace:
            return self.is_member(user, target.namespace)
        return any(self._roles(project, user) for project in self._projects.objects.values())

    def is_member(self, user: User, namespace: str) -> bool:
        """Whether the user has a role in the project of the namespace."""
        project = self._project(Target("get", "", namespace=namespace))
        return project is not None and bool(self._roles(project, user))

    def _roles(self, project: Object, user: User) -> list[str]:
        name = project["metadata"]["name"]
        known = self._members.get(name)
        if known is None or known[0] is not project:
            if len(self._members) > 2 * len(self._projects.objects):
                self._members.clear()  # most of the cached projects were deleted
            known = self._members[name] = project, _Members(project)
        return known[1].roles_of(user)

    def _project(self, target: Target) -> Object | None:
        self._projects.refresh()
        if (target.group, target.resource) == (self._group, PROJECTS):
            return self._projects.objects.get(("", target.name))
        if not target.namespace.startswith(self._prefix):
            return None
        return self._projects.objects.get(("", target.namespace.removeprefix(self._prefix)))

    def _allows(self, role: str, target: Target) -> bool:
        if (target.resource, target.subresource, target.verb) == (PROJECTS, MIGRATE, "create"):
            return role in ("admin", "user")  # the migration itself authorizes more, in both projects
        if target.resource in (PROJECTS, "namespaces") and target.group in (self._group, ""):
            return target.verb == "get"
        if role == "admin":
            return True
        if role == "user":
            return self._user_may(target)
        return role != "viewer" and self._role_allows(role, target)

    def _user_may(self, target: Target) -> bool:
        if target.resource == "events" and target.group in EVENT_GROUPS:
            return target.verb in READ
        if target.group != self._group or target.subresource:
            return False
        if target.resource in SECRETS:
            return target.verb in READ or target.verb == "use"
        return target.resource in INSTANCES and target.verb == "create"


class _Members:
    """The members of one project, indexed by name: there may be thousands, and filtered lists look up each object."""

    __slots__ = ("_owner", "_teams", "_users")

    def __init__(self, project: Object) -> None:
        owner = dig(project, "spec.owner") or {}
        self._owner = owner.get("user"), owner.get("team")
        self._users: dict[str, dict[str, int]] = {}
        self._teams: dict[str, dict[str, int]] = {}
        for place, member in enumerate(dig(project, "spec.members") or ()):
            index = self._users if member.get("kind") == "User" else self._teams
            roles = index.setdefault(member.get("name", ""), {})
            roles.setdefault(member.get("clusterRole") or "viewer", place)

    def roles_of(self, user: User) -> list[str]:
        """The roles of a user, in the order of `spec.members`; admin comes first for the owner."""
        users, teams = own_names(user)
        found = [self._users[name] for name in users if name in self._users]
        found += [self._teams[name] for name in teams if name in self._teams]
        owned = ["admin"] if owns(user, *self._owner) else []
        if not found:
            return owned
        places = sorted((place, role) for roles in found for role, place in roles.items())
        return [*owned, *(role for _, role in places)]
