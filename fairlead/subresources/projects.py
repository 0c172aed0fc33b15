"""The subresources that project members read: `projects/<name>/members`, `clusters`, `runners` and `templates`.

Project members can rarely list clusters, runners or templates, so a project returns those on its allow lists. Without
an allow list, users only get the objects that they may get anyway: a missing list must not expose all objects to all
members. Responses never contain credentials.
"""

from collections.abc import Callable, Iterable, Iterator

from fairlead.admission.allow_lists import CLUSTERS, RUNNERS, TEMPLATES, allowed_names, default_template, is_allowed
from fairlead.authn.principals import TEAMS, USERS, People
from fairlead.authz.name_index import ANY
from fairlead.core.call import Target, Verdict
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import TEAM_GROUP, User
from fairlead.registry.codec import decode
from fairlead.registry.kind import Kind
from fairlead.registry.registry import Registry
from fairlead.registry.secret_fields import redact, without_hidden
from fairlead.server.api.actions import Asked, Handler, Place

PROJECTS = "projects"
TEMPLATE_FIELDS = ("VirtualClusterTemplate", "SpaceTemplate", "DevPodWorkspaceTemplate")
"""The template kinds in the order of the response; its fields are named after them."""

May = Callable[[User, Target], Verdict]


def project_handlers(api_group: str, registry: Registry, people: People, may: May) -> dict[Place, Handler]:
    parts = ProjectParts(api_group, registry, people, may)
    answers = {
        "members": parts.members,
        "clusters": parts.clusters,
        "runners": parts.runners,
        "templates": parts.templates,
    }
    return {(api_group, PROJECTS, name): handler for name, handler in answers.items()}


class ProjectParts:
    """The handlers. `authorize` decides about a request of the user's own."""

    def __init__(self, api_group: str, registry: Registry, people: People, may: May) -> None:
        self._group = api_group
        self._registry = registry
        self._people = people
        self._may = may
        self._kinds = {kind.name: kind for kind in registry.catalog.kinds if kind.group == api_group and kind.stored}

    async def members(self, asked: Asked) -> Object:
        """The members and the owner, including the members of their teams. Administrators are not included as such."""
        project = await self._project(asked)
        teams = sorted(set(self._named(project, "Team", TEAMS)))
        users = set(self._named(project, "User", USERS))
        users.update(name for name, of in self._people.memberships().items() if not set(of).isdisjoint(teams))
        fields = {
            "users": [{"info": each} for each in self._infos(USERS, sorted(users))],
            "teams": [{"info": each} for each in self._infos(TEAMS, teams)],
        }
        return _answer(asked, fields)

    async def clusters(self, asked: Asked) -> Object:
        project = await self._project(asked)
        clusters = self._shown(asked.user, "Cluster", allowed_names(project, CLUSTERS))
        return _answer(asked, {"clusters": clusters, "runners": self._allowed_runners(asked.user, project)})

    async def runners(self, asked: Asked) -> Object:
        return _answer(asked, {"runners": self._allowed_runners(asked.user, await self._project(asked))})

    async def templates(self, asked: Asked) -> Object:
        project = await self._project(asked)
        fields: Object = {}
        for kind in TEMPLATE_FIELDS:
            listed = self._shown(asked.user, kind, allowed_names(project, TEMPLATES, kind, self._group))
            default = default_template(project, kind, self._group)
            if default is not None and default in map(name_of, listed):
                fields[f"default{kind}"] = default
            fields[f"{kind[0].lower()}{kind[1:]}s"] = listed
        return _answer(asked, fields)

    async def _project(self, asked: Asked) -> Object:
        return decode(await self._registry.resource(self._group, PROJECTS).get("", asked.name))

    def _allowed_runners(self, user: User, project: Object) -> list[Object]:
        return self._shown(user, "Runner", allowed_names(project, RUNNERS))

    def _shown(self, user: User, name: str, names: list[str] | None) -> list[Object]:
        """The existing objects of a kind that are on the allow list or that the user may get."""
        kind = self._kinds.get(name)
        if kind is None:
            return []
        objects = (decode(entry) for entry in self._registry.view.entries(kind.group, kind.plural))
        return [_public(each, kind) for each in objects if self._is_shown(user, kind, name_of(each), names)]

    def _is_shown(self, user: User, kind: Kind, name: str, names: list[str] | None) -> bool:
        if names is not None:
            return is_allowed(names, name)
        target = Target("get", "", "", kind.group, kind.version, kind.plural, "", "", name)
        return self._may(user, target).allowed

    def _named(self, project: Object, kind: str, plural: str) -> Iterator[str]:
        """The members of one kind, and the owner if it is of that kind; `*` means all."""
        all_names = [entry.key[3] for entry in self._registry.view.entries(self._group, plural)]
        for member in dig(project, "spec.members") or ():
            if member.get("kind") == kind:
                yield from all_names if member["name"] == ANY else (member["name"],)
        owner = dig(project, f"spec.owner.{kind.lower()}")
        if owner:
            yield owner

    def _infos(self, plural: str, names: Iterable[str]) -> Iterator[Object]:
        """Name and display fields of the users or teams that exist."""
        resource = self._registry.resource(self._group, plural)
        for name in names:
            entry = resource.peek("", name)
            if entry is not None:
                yield _info(plural, name, decode(entry))


def _info(plural: str, name: str, obj: Object) -> Object:
    spec = obj.get("spec") or {}
    fields = {field: spec.get(field) for field in ("displayName", "icon", "username", "email", "subject")}
    subject = name if plural == USERS else f"{TEAM_GROUP}{name}"
    non_empty = {field: value for field, value in fields.items() if value}
    return {"name": name, "username": name, "subject": subject, **non_empty}


def _public(obj: Object, kind: Kind) -> Object:
    """The object without credentials, for users who may not be allowed to get it directly."""
    metadata(obj).pop("managedFields", None)
    return redact(without_hidden(obj, kind), kind.secret)


def _answer(asked: Asked, fields: Object) -> Object:
    kind = asked.kind
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": {"name": asked.name}, **fields}
