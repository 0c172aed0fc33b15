"""The subresources that project members read: `projects/<name>/members`, `clusters`, `runners`, `templates`, `usage`.

Project members can rarely list clusters, runners or templates, so a project returns those on its allow lists. Without
an allow list, users only get the objects that they may get anyway: a missing list must not expose all objects to all
members. Responses never contain credentials.
"""

from collections.abc import Iterable, Iterator

from fairlead.admission.allow_lists import CLUSTERS, RUNNERS, TEMPLATES, allowed_names, default_template, is_allowed
from fairlead.authn.principals import TEAMS, USERS, PrincipalDirectory
from fairlead.authz.name_index import ANY
from fairlead.core.call import Authorize
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import User
from fairlead.kinds.projects.project import PROJECT
from fairlead.registry.codec import decode
from fairlead.registry.kind import Kind
from fairlead.registry.quota.enforcement import storage_user
from fairlead.registry.registry import Registry
from fairlead.registry.secret_fields import redact, strip_write_only
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest
from fairlead.subresources.whoami import principal_info

TEMPLATE_FIELDS = (
    "VirtualClusterTemplate",
    "SpaceTemplate",
    "DevPodWorkspaceTemplate",
    "DevPodEnvironmentTemplate",
    "DevPodWorkspacePreset",
)
"""The kinds of templates and presets in the order of the response; its fields are named after them."""


def project_handlers(
    api_group: str, registry: Registry, directory: PrincipalDirectory, authorize: Authorize
) -> dict[ActionPath, ActionHandler]:
    parts = ProjectSubresources(api_group, registry, directory, authorize)
    answers = {
        "members": parts.list_members,
        "clusters": parts.list_clusters,
        "runners": parts.list_runners,
        "templates": parts.list_templates,
    }
    return {(api_group, PROJECT.plural, name): handler for name, handler in answers.items()}


def usage_handlers(api_group: str, registry: Registry, namespace_prefix: str) -> dict[ActionPath, ActionHandler]:
    async def show_usage(request: ActionRequest) -> Object:
        """Quotas, what is stored in the namespace, and what the requester stores anywhere."""
        project = decode(await registry.resource(api_group, PROJECT.plural).get("", request.name))
        fields: Object = {"quotas": get_path(project, "status.quotas") or {}}
        if registry.quota is not None:
            usage, limits = registry.quota.usage, registry.quota.limits
            namespace, name = namespace_prefix + request.name, storage_user(request.user)
            fields["storage"] = {
                "limit": limits.namespace._asdict(),
                "used": usage.of_namespace(namespace)._asdict(),
                "users": [{"user": user, **each._asdict()} for user, each in usage.users_of_namespace(namespace)],
            }
            stored = usage.of_user(name)._asdict()
            fields["requester"] = {"user": name, "limit": limits.user._asdict(), "used": stored}
        return request.kind.build({"name": request.name}, **fields)

    return {(api_group, PROJECT.plural, "usage"): show_usage}


class ProjectSubresources:
    """The handlers. `authorize` decides about a request of the user's own."""

    def __init__(self, api_group: str, registry: Registry, directory: PrincipalDirectory, authorize: Authorize) -> None:
        self._group = api_group
        self._registry = registry
        self._directory = directory
        self._authorize = authorize
        self._kinds = {kind.name: kind for kind in registry.catalog.kinds if kind.group == api_group and kind.persisted}

    async def list_members(self, request: ActionRequest) -> Object:
        """The members and the owner, including the members of their teams. Administrators are not included as such."""
        project = await self._get_project(request)
        teams = sorted(set(self._member_names(project, "Team", TEAMS)))
        users = set(self._member_names(project, "User", USERS))
        users.update(name for name, of in self._directory.memberships().items() if not set(of).isdisjoint(teams))
        fields = {
            "users": [{"info": each} for each in self._list_infos(USERS, sorted(users))],
            "teams": [{"info": each} for each in self._list_infos(TEAMS, teams)],
        }
        return request.kind.build({"name": request.name}, **fields)

    async def list_clusters(self, request: ActionRequest) -> Object:
        project = await self._get_project(request)
        clusters = self._list_visible(request.user, "Cluster", allowed_names(project, CLUSTERS))
        return request.kind.build(
            {"name": request.name}, clusters=clusters, runners=self._allowed_runners(request.user, project)
        )

    async def list_runners(self, request: ActionRequest) -> Object:
        runners = self._allowed_runners(request.user, await self._get_project(request))
        return request.kind.build({"name": request.name}, runners=runners)

    async def list_templates(self, request: ActionRequest) -> Object:
        project = await self._get_project(request)
        fields: Object = {}
        for kind in TEMPLATE_FIELDS:
            listed = self._list_visible(request.user, kind, allowed_names(project, TEMPLATES, kind, self._group))
            default = default_template(project, kind, self._group)
            if default is not None and default in map(name_of, listed):
                fields[f"default{kind}"] = default
            fields[f"{kind[0].lower()}{kind[1:]}s"] = listed
        return request.kind.build({"name": request.name}, **fields)

    async def _get_project(self, request: ActionRequest) -> Object:
        return decode(await self._registry.resource(self._group, PROJECT.plural).get("", request.name))

    def _allowed_runners(self, user: User, project: Object) -> list[Object]:
        return self._list_visible(user, "Runner", allowed_names(project, RUNNERS))

    def _list_visible(self, user: User, name: str, names: list[str] | None) -> list[Object]:
        """The existing objects of a kind that are on the allow list or that the user may get."""
        kind = self._kinds.get(name)
        if kind is None:
            return []
        objects = (decode(entry) for entry in self._registry.view.entries(kind.group, kind.plural))
        return [_without_secrets(each, kind) for each in objects if self._is_visible(user, kind, name_of(each), names)]

    def _is_visible(self, user: User, kind: Kind, name: str, names: list[str] | None) -> bool:
        if names is not None:
            return is_allowed(names, name)
        return self._authorize(user, kind.request("get", name=name)).allowed

    def _member_names(self, project: Object, kind: str, plural: str) -> Iterator[str]:
        """The members of one kind, and the owner if it is of that kind; `*` means all."""
        all_names = [entry.key[3] for entry in self._registry.view.entries(self._group, plural)]
        for member in get_path(project, "spec.members") or ():
            if member.get("kind") == kind:
                yield from all_names if member["name"] == ANY else (member["name"],)
        owner = get_path(project, f"spec.owner.{kind.lower()}")
        if owner:
            yield owner

    def _list_infos(self, plural: str, names: Iterable[str]) -> Iterator[Object]:
        """Name and display fields of the users or teams that exist."""
        resource = self._registry.resource(self._group, plural)
        for name in names:
            entry = resource.get_cached("", name)
            if entry is not None:
                yield principal_info(plural, name, decode(entry))


def _without_secrets(obj: Object, kind: Kind) -> Object:
    """The object without credentials, for users who may not be allowed to get it directly."""
    metadata(obj).pop("managedFields", None)
    return redact(strip_write_only(obj, kind), kind.sensitive)
