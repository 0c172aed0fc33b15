"""What members read of a project: `projects/<name>/members`, `clusters`, `runners` and `templates`.

`server/api/actions.py` calls these. Members of a project seldom may list clusters, runners or templates, so a project shows those
that its own lists name. Where it has no such list, everybody is shown what they could get anyway: leaving out a list
must not open all of them to all members. No credential is ever among it.
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
"""The kinds of templates, in the order of the answer; the fields are named after them."""

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
    """The handlers. `may` says what somebody could do with a request of their own."""

    def __init__(self, api_group: str, registry: Registry, people: People, may: May) -> None:
        self._group = api_group
        self._registry = registry
        self._people = people
        self._may = may
        self._kinds = {kind.name: kind for kind in registry.catalog.kinds if kind.group == api_group and kind.stored}

    async def members(self, asked: Asked) -> Object:
        """The members and the owner, with everybody in their teams. Administrators are not members by being that."""
        project = await self._project(asked)
        teams = sorted(set(self._named(project, "Team", TEAMS)))
        users = set(self._named(project, "User", USERS))
        users.update(name for name, of in self._people.memberships().items() if not set(of).isdisjoint(teams))
        told = {
            "users": [{"info": each} for each in self._infos(USERS, sorted(users))],
            "teams": [{"info": each} for each in self._infos(TEAMS, teams)],
        }
        return _answer(asked, told)

    async def clusters(self, asked: Asked) -> Object:
        project = await self._project(asked)
        clusters = self._shown(asked.user, "Cluster", allowed_names(project, CLUSTERS))
        return _answer(asked, {"clusters": clusters, "runners": self._allowed_runners(asked.user, project)})

    async def runners(self, asked: Asked) -> Object:
        return _answer(asked, {"runners": self._allowed_runners(asked.user, await self._project(asked))})

    async def templates(self, asked: Asked) -> Object:
        project = await self._project(asked)
        told: Object = {}
        for kind in TEMPLATE_FIELDS:
            listed = self._shown(asked.user, kind, allowed_names(project, TEMPLATES, kind, self._group))
            default = default_template(project, kind, self._group)
            if default is not None and default in map(name_of, listed):
                told[f"default{kind}"] = default
            told[f"{kind[0].lower()}{kind[1:]}s"] = listed
        return _answer(asked, told)

    async def _project(self, asked: Asked) -> Object:
        return decode(await self._registry.resource(self._group, PROJECTS).get("", asked.name))

    def _allowed_runners(self, user: User, project: Object) -> list[Object]:
        return self._shown(user, "Runner", allowed_names(project, RUNNERS))

    def _shown(self, user: User, name: str, names: list[str] | None) -> list[Object]:
        """Those objects of a kind that are allowed and exist."""
        kind = self._kinds.get(name)
        if kind is None:
            return []
        found = (decode(entry) for entry in self._registry.view.entries(kind.group, kind.plural))
        return [_public(each, kind) for each in found if self._is_shown(user, kind, name_of(each), names)]

    def _is_shown(self, user: User, kind: Kind, name: str, names: list[str] | None) -> bool:
        if names is not None:
            return is_allowed(names, name)
        target = Target("get", "", "", kind.group, kind.version, kind.plural, "", "", name)
        return self._may(user, target).allowed

    def _named(self, project: Object, kind: str, plural: str) -> Iterator[str]:
        """Members of one sort, and the owner if it is of that sort; `*` is all there are."""
        everybody = [entry.key[3] for entry in self._registry.view.entries(self._group, plural)]
        for member in dig(project, "spec.members") or ():
            if member.get("kind") == kind:
                yield from everybody if member["name"] == ANY else (member["name"],)
        owner = dig(project, f"spec.owner.{kind.lower()}")
        if owner:
            yield owner

    def _infos(self, plural: str, names: Iterable[str]) -> Iterator[Object]:
        """Those who exist, as people know them."""
        resource = self._registry.resource(self._group, plural)
        for name in names:
            entry = resource.peek("", name)
            if entry is not None:
                yield _info(plural, name, decode(entry))


def _info(plural: str, name: str, obj: Object) -> Object:
    spec = obj.get("spec") or {}
    told = {field: spec.get(field) for field in ("displayName", "icon", "username", "email", "subject")}
    subject = name if plural == USERS else f"{TEAM_GROUP}{name}"
    known = {field: value for field, value in told.items() if value}
    return {"name": name, "username": name, "subject": subject, **known}


def _public(obj: Object, kind: Kind) -> Object:
    """An object as those see it who were not allowed to read it by itself: without any credential."""
    metadata(obj).pop("managedFields", None)
    return redact(without_hidden(obj, kind), kind.secret)


def _answer(asked: Asked, fields: Object) -> Object:
    kind = asked.kind
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": {"name": asked.name}, **fields}
