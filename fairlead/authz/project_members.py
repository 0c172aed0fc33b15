"""The authorizer for members of projects: their role applies in the project's namespace.

    admin    everything in the namespace; the owner of the project is an admin
    user     creates instances, uses project secrets, reads events; manages instances as their owner, or if shared
    viewer   reads what is shared with them (`ownership.py`)

Any other role is the ClusterRole of that name, applied in the namespace. All members may read the project itself.
"""

from collections.abc import Callable

from fairlead.authz.name_index import matching_names, owns
from fairlead.core.call import NAMESPACE_RESOURCE, Decision, RequestInfo
from fairlead.core.objects import Object, get_path
from fairlead.core.user import User
from fairlead.kinds import INSTANCES
from fairlead.kinds.projects.project import MIGRATE_SUBRESOURCE
from fairlead.registry.informer import Informer
from fairlead.storage.view.view import Entry

PROJECTS = "projects"
PROJECT_SECRETS = frozenset({"projectsecrets"})
READ_VERBS = frozenset({"get", "list", "watch"})
EVENT_GROUPS = ("", "events.k8s.io")

RoleAllows = Callable[[str, RequestInfo], bool]
"""Whether the ClusterRole of that name allows a request."""


class ProjectMemberAuthorizer:
    """The authorizer for project members."""

    def __init__(self, projects: Informer, api_group: str, prefix: str, role_allows: RoleAllows) -> None:
        self._projects = projects
        self._group = api_group
        self._prefix = prefix
        self._role_allows = role_allows
        self._members_by_project: dict[str, tuple[Object, _MemberIndex]] = {}

    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        project = self._project_of(target)
        if project is None:
            return None
        for role in self._roles(project, user):
            if self._role_allows_request(role, target):
                return Decision(True, f'role "{role}" in project "{project["metadata"]["name"]}"')
        return None

    def authorize_object(self, user: User, target: RequestInfo, entry: Entry) -> Decision | None:
        return self(user, target)

    def may_see_some(self, user: User, target: RequestInfo) -> bool:
        """Members may list instances and namespaces of their projects. All users may list projects."""
        if (target.group, target.resource) == (self._group, PROJECTS):
            return True
        if (target.group, target.resource) != NAMESPACE_RESOURCE and not (
            target.group == self._group and target.resource in INSTANCES
        ):
            return False
        self._projects.refresh()
        if target.namespace:
            return self.is_member(user, target.namespace)
        return any(self._roles(project, user) for project in self._projects.objects.values())

    def is_member(self, user: User, namespace: str) -> bool:
        """Whether the user has a role in the project of the namespace."""
        project = self._project_of(RequestInfo("get", namespace=namespace))
        return project is not None and bool(self._roles(project, user))

    def _roles(self, project: Object, user: User) -> list[str]:
        name = project["metadata"]["name"]
        known = self._members_by_project.get(name)
        if known is None or known[0] is not project:
            if len(self._members_by_project) > 2 * len(self._projects.objects):
                self._members_by_project.clear()  # most of the cached projects were deleted
            known = self._members_by_project[name] = project, _MemberIndex(project)
        return known[1].roles_of(user)

    def _project_of(self, target: RequestInfo) -> Object | None:
        self._projects.refresh()
        if (target.group, target.resource) == (self._group, PROJECTS):
            return self._projects.objects.get(("", target.name))
        if not target.namespace.startswith(self._prefix):
            return None
        return self._projects.objects.get(("", target.namespace.removeprefix(self._prefix)))

    def _role_allows_request(self, role: str, target: RequestInfo) -> bool:
        if (target.resource, target.subresource, target.verb) == (PROJECTS, MIGRATE_SUBRESOURCE, "create"):
            return role in ("admin", "user")  # the migration itself authorizes more, in both projects
        if target.resource in (PROJECTS, "namespaces") and target.group in (self._group, ""):
            return target.verb == "get"
        if role == "admin":
            return True
        if role == "user":
            return self._user_role_allows(target)
        return role != "viewer" and self._role_allows(role, target)

    def _user_role_allows(self, target: RequestInfo) -> bool:
        if target.resource == "events" and target.group in EVENT_GROUPS:
            return target.verb in READ_VERBS
        if target.group != self._group or target.subresource:
            return False
        if target.resource in PROJECT_SECRETS:
            return target.verb in READ_VERBS or target.verb == "use"
        return target.resource in INSTANCES and target.verb == "create"


class _MemberIndex:
    """The members of one project, indexed by name: there may be thousands, and filtered lists look up each object."""

    __slots__ = ("_owner", "_teams", "_users")

    def __init__(self, project: Object) -> None:
        owner = get_path(project, "spec.owner") or {}
        self._owner = owner.get("user"), owner.get("team")
        self._users: dict[str, dict[str, int]] = {}
        self._teams: dict[str, dict[str, int]] = {}
        for position, member in enumerate(get_path(project, "spec.members") or ()):
            index = self._users if member.get("kind") == "User" else self._teams
            roles = index.setdefault(member.get("name", ""), {})
            roles.setdefault(member.get("clusterRole") or "viewer", position)

    def roles_of(self, user: User) -> list[str]:
        """The roles of a user, in the order of `spec.members`; admin comes first for the owner."""
        users, teams = matching_names(user)
        found = [self._users[name] for name in users if name in self._users]
        found += [self._teams[name] for name in teams if name in self._teams]
        owned = ["admin"] if owns(user, *self._owner) else []
        if not found:
            return owned
        ranked = sorted((position, role) for roles in found for role, position in roles.items())
        return [*owned, *(role for _, role in ranked)]
