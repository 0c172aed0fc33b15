"""What members read of a project: people, clusters, runners and templates, and never a credential."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from fairlead.authn.principals import TEAMS, USERS, PrincipalDirectory
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.informer import Informer
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.validate import Validator
from fairlead.server.api.actions import ActionRequest
from fairlead.subresources.projects import project_handlers
from tests.harness.calls import call
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.virtual_time import virtual_time_only as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]

CANARY = "canary-4f1c"
BOB = User("bob")


class Api:
    def __init__(self, fixture: RegistryFixture) -> None:
        self.fixture = fixture
        self.readable: set[tuple[str, str]] = set()
        people = PrincipalDirectory(Informer(fixture.view, GROUP, USERS), Informer(fixture.view, GROUP, TEAMS))
        self._handlers = project_handlers(GROUP, fixture.registry, people, self._may)

    def _may(self, user: User, target: RequestInfo) -> Decision:
        return Decision(target.verb == "get" and (target.resource, target.name) in self.readable)

    async def get(self, part: str, name: str = "p") -> Object:
        declared = {each.name: each.kind for each in self.fixture.of("Project").kind.actions}
        kind = declared[part]
        assert kind is not None
        answer = await self._handlers[GROUP, "projects", part](
            ActionRequest(BOB, kind, "get", "", name, {}, False, call())
        )
        assert isinstance(answer, dict)
        told: Object = orjson.loads(orjson.dumps(answer))
        findings = Validator(kind.schema()).validate(orjson.loads(orjson.dumps(answer)))
        assert (findings.unknown_fields, findings.problems) == ([], [])
        assert (told["kind"], told["apiVersion"]) == (kind.name, kind.api_version)
        return told

    async def names(self, part: str, field: str) -> list[str]:
        return [each["metadata"]["name"] for each in (await self.get(part))[field]]


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with open_registry() as fixture:
        yield Api(fixture)


async def project(api: Api, **spec: Any) -> None:
    await api.fixture.create("Project", "p", spec=spec)


async def people(api: Api) -> None:
    for name, spec in {"ada": {"displayName": "Ada", "email": "ada@example.com"}, "bob": {}, "cleo": {}}.items():
        await api.fixture.create("User", name, spec=spec)
    await api.fixture.create("User", "root", spec={"groups": ["system:masters"]})
    await api.fixture.create("Team", "core", spec={"displayName": "Core", "users": ["cleo"]})
    await api.fixture.create("Team", "ops", spec={"users": ["bob"]})


def infos(answer: Object, field: str) -> list[str]:
    return [each["info"]["name"] for each in answer[field]]


async def test_members_are_named_with_their_teams_members_and_the_owner_and_no_administrators(api: Api) -> None:
    await people(api)
    members = [{"kind": "User", "name": "ada"}, {"kind": "Team", "name": "core"}, {"kind": "User", "name": "gone"}]
    await project(api, members=members, owner={"user": "bob"})
    answer = await api.get("members")
    assert (infos(answer, "users"), infos(answer, "teams")) == (["ada", "bob", "cleo"], ["core"])
    ada = {"name": "ada", "username": "ada", "subject": "ada", "displayName": "Ada", "email": "ada@example.com"}
    assert answer["users"][0] == {"info": ada}
    assert answer["teams"][0]["info"]["subject"] == "service:team:core"


async def test_an_owning_team_is_in_with_its_members(api: Api) -> None:
    await people(api)
    await project(api, owner={"team": "ops"})
    answer = await api.get("members")
    assert (infos(answer, "users"), infos(answer, "teams")) == (["bob"], ["ops"])


async def test_a_star_is_everybody(api: Api) -> None:
    await people(api)
    await project(api, members=[{"kind": "User", "name": "*"}])
    answer = await api.get("members")
    assert (infos(answer, "users"), infos(answer, "teams")) == (["ada", "bob", "cleo", "root"], [])


async def test_the_lists_of_a_project_show_what_is_allowed_and_exists(api: Api) -> None:
    for name in ("berlin", "oslo"):
        await api.fixture.create("Cluster", name, spec={"config": {"secretName": "s", "secretNamespace": "demo"}})
        await api.fixture.create("Runner", f"in-{name}", spec={})
    await project(api, allowedClusters=[{"name": "oslo"}, {"name": "gone"}], allowedRunners=[{"name": "*"}])
    assert await api.names("clusters", "clusters") == ["oslo"]
    assert await api.names("clusters", "runners") == ["in-berlin", "in-oslo"]
    assert await api.names("runners", "runners") == ["in-berlin", "in-oslo"]


async def test_without_a_list_everybody_sees_what_they_could_get_anyway(api: Api) -> None:
    for name in ("berlin", "oslo"):
        await api.fixture.create("Cluster", name, spec={"config": {"secretName": "s", "secretNamespace": "demo"}})
    await project(api)
    assert await api.names("clusters", "clusters") == []
    api.readable.add(("clusters", "berlin"))
    assert await api.names("clusters", "clusters") == ["berlin"]


async def test_templates_come_by_kind_with_their_default(api: Api) -> None:
    for name in ("one", "two"):
        await api.fixture.create("SpaceTemplate", name, spec={"template": {}})
        await api.fixture.create("VirtualClusterTemplate", name, spec={"template": {}})
    allowed = [
        {"kind": "SpaceTemplate", "name": "two", "isDefault": True},
        {"kind": "VirtualClusterTemplate", "name": "*"},
        {"kind": "DevPodWorkspaceTemplate", "name": "gone", "isDefault": True},
    ]
    await project(api, allowedTemplates=allowed)
    answer = await api.get("templates")
    assert answer["defaultSpaceTemplate"] == "two"
    assert [each["metadata"]["name"] for each in answer["spaceTemplates"]] == ["two"]
    assert [each["metadata"]["name"] for each in answer["virtualClusterTemplates"]] == ["one", "two"]
    assert "defaultVirtualClusterTemplate" not in answer
    assert (answer["devPodWorkspaceTemplates"], "defaultDevPodWorkspaceTemplate" in answer) == ([], False)


async def test_t3_no_part_of_a_project_shows_a_credential(api: Api) -> None:
    chart = {"chart": {"name": "c", "repo": "https://charts.example.com", "username": "u", "password": CANARY}}
    await api.fixture.create("VirtualClusterTemplate", "t", spec={"template": {"helmRelease": chart}})
    await project(
        api, allowedTemplates=[{"name": "*"}], allowedClusters=[{"name": "*"}], allowedRunners=[{"name": "*"}]
    )
    assert await api.names("templates", "virtualClusterTemplates") == ["t"]
    for part in ("members", "clusters", "runners", "templates"):
        assert CANARY not in str(await api.get(part))


@pytest.mark.parametrize("part", ["members", "clusters", "runners", "templates"])
async def test_a_project_that_is_not_there_has_no_parts(api: Api, part: str) -> None:
    with pytest.raises(NotFound):
        await api.get(part, "missing")
