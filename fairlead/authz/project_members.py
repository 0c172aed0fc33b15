"""Members of projects: what their role lets them do in the project's namespace, and that they see the project.

admin    everything in the namespace; whoever owns the project counts as one
user     makes instances and manages those that are theirs or shared with them, uses project secrets, reads events
viewer   sees what is shared with them
Any other role is the ClusterRole of that name, bound in the namespace. All of them may read the project itself.
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
"""Whether the ClusterRole of that name allows something."""


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
        """Members list instances and namespaces of their projects, and everybody lists projects."""
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
        """Whether the user has a role in the project that the namespace belongs to."""
        project = self._project(Target("get", "", namespace=namespace))
        return project is not None and bool(self._roles(project, user))

    def _roles(self, project: Object, user: User) -> list[str]:
        name = project["metadata"]["name"]
        known = self._members.get(name)
        if known is None or known[0] is not project:
            if len(self._members) > 2 * len(self._projects.objects):
                self._members.clear()  # most of them are gone
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
            return role in ("admin", "user")  # what moves is asked for at both ends
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
    """The members of one project by their names: there may be thousands, and each object of a list asks again."""

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
        """The roles that a user has, in the order of the members; the owner's comes first."""
        users, teams = own_names(user)
        found = [self._users[name] for name in users if name in self._users]
        found += [self._teams[name] for name in teams if name in self._teams]
        owned = ["admin"] if owns(user, *self._owner) else []
        if not found:
            return owned
        places = sorted((place, role) for roles in found for role, place in roles.items())
        return [*owned, *(role for _, role in places)]
