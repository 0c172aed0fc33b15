"""Members of projects: what their role lets them do in the project's namespace, and that they see the project.

admin    everything in the namespace; whoever owns the project counts as one
user     makes instances and manages those that are theirs or shared with them, uses project secrets, reads events
viewer   sees what is shared with them
Any other role is the ClusterRole of that name, bound in the namespace. All of them may read the project itself.
"""

from collections.abc import Callable, Iterator

from fairlead.authz.chain import Decision
from fairlead.authz.people import in_team, is_user, owns
from fairlead.core.call import NAMESPACES, Target
from fairlead.core.objects import Object, dig
from fairlead.core.user import User
from fairlead.kinds.migration import MIGRATE
from fairlead.registry.following import Following
from fairlead.storage.view import Entry

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

    def __call__(self, user: User, target: Target) -> Decision | None:
        project = self._project(target)
        if project is None:
            return None
        for role in _roles(project, user):
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
        return any(any(_roles(project, user)) for project in self._projects.objects.values())

    def is_member(self, user: User, namespace: str) -> bool:
        """Whether the user has a role in the project that the namespace belongs to."""
        project = self._project(Target("get", "", namespace=namespace))
        return project is not None and any(_roles(project, user))

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


def _roles(project: Object, user: User) -> Iterator[str]:
    owner = dig(project, "spec.owner") or {}
    if owns(user, owner.get("user"), owner.get("team")):
        yield "admin"
    for member in dig(project, "spec.members") or ():
        names = (member.get("name", ""),)
        if is_user(user, names) if member.get("kind") == "User" else in_team(user, names):
            yield member.get("clusterRole") or "viewer"
