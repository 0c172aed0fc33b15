"""The subresources of projects: members, clusters, runners and templates, without credentials, and usage."""

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
from fairlead.registry.quota.enforcement import StorageLimits
from fairlead.registry.quota.usage import StoredUsage
from fairlead.registry.validate import Validator
from fairlead.registry.write_options import WriteOptions
from fairlead.server.api.actions import ActionRequest
from fairlead.subresources.projects import project_handlers, usage_handlers
from tests.harness.calls import call
from tests.harness.registry import ADA, RegistryFixture, open_registry
from tests.harness.virtual_time import virtual_time_only as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]

CANARY = "canary-4f1c"
BOB = User("bob")


class ProjectApi:
    def __init__(self, fixture: RegistryFixture) -> None:
        self.fixture = fixture
        self.readable: set[tuple[str, str]] = set()
        principals = PrincipalDirectory(Informer(fixture.view, GROUP, USERS), Informer(fixture.view, GROUP, TEAMS))
        self._handlers = project_handlers(GROUP, fixture.registry, principals, self.authorize)
        self._handlers |= usage_handlers(GROUP, fixture.registry, "service-p-")

    def authorize(self, user: User, target: RequestInfo) -> Decision:
        return Decision(target.verb == "get" and (target.resource, target.name) in self.readable)

    async def get(self, subresource: str, name: str = "p") -> Object:
        kinds = {each.name: each.kind for each in self.fixture.resource("Project").kind.actions}
        kind = kinds[subresource]
        assert kind is not None
        reply = await self._handlers[GROUP, "projects", subresource](
            ActionRequest(BOB, kind, "get", "", name, {}, False, call())
        )
        assert isinstance(reply, dict)
        body: Object = orjson.loads(orjson.dumps(reply))
        findings = Validator(kind.schema()).validate(orjson.loads(orjson.dumps(reply)))
        assert (findings.unknown_fields, findings.problems) == ([], [])
        assert (body["kind"], body["apiVersion"]) == (kind.name, kind.api_version)
        return body

    async def names(self, subresource: str, field: str) -> list[str]:
        return [each["metadata"]["name"] for each in (await self.get(subresource))[field]]


@pytest.fixture
async def api() -> AsyncIterator[ProjectApi]:
    async with open_registry() as fixture:
        yield ProjectApi(fixture)


async def create_project(api: ProjectApi, **spec: Any) -> None:
    await api.fixture.create("Project", "p", spec=spec)


async def create_principals(api: ProjectApi) -> None:
    for name, spec in {"ada": {"displayName": "Ada", "email": "ada@example.com"}, "bob": {}, "cleo": {}}.items():
        await api.fixture.create("User", name, spec=spec)
    await api.fixture.create("User", "root", spec={"groups": ["system:masters"]})
    await api.fixture.create("Team", "core", spec={"displayName": "Core", "users": ["cleo"]})
    await api.fixture.create("Team", "ops", spec={"users": ["bob"]})


def info_names(reply: Object, field: str) -> list[str]:
    return [each["info"]["name"] for each in reply[field]]


async def test_members_include_team_members_and_the_owner_but_no_administrators(api: ProjectApi) -> None:
    await create_principals(api)
    members = [{"kind": "User", "name": "ada"}, {"kind": "Team", "name": "core"}, {"kind": "User", "name": "gone"}]
    await create_project(api, members=members, owner={"user": "bob"})
    reply = await api.get("members")
    assert (info_names(reply, "users"), info_names(reply, "teams")) == (["ada", "bob", "cleo"], ["core"])
    ada = {"name": "ada", "username": "ada", "subject": "ada", "displayName": "Ada", "email": "ada@example.com"}
    assert reply["users"][0] == {"info": ada}
    assert reply["teams"][0]["info"]["subject"] == "service:team:core"


async def test_members_include_the_owning_team_and_its_members(api: ProjectApi) -> None:
    await create_principals(api)
    await create_project(api, owner={"team": "ops"})
    reply = await api.get("members")
    assert (info_names(reply, "users"), info_names(reply, "teams")) == (["bob"], ["ops"])


async def test_a_wildcard_member_is_every_user(api: ProjectApi) -> None:
    await create_principals(api)
    await create_project(api, members=[{"kind": "User", "name": "*"}])
    reply = await api.get("members")
    assert (info_names(reply, "users"), info_names(reply, "teams")) == (["ada", "bob", "cleo", "root"], [])


async def test_the_lists_have_the_allowed_objects_that_exist(api: ProjectApi) -> None:
    for name in ("berlin", "oslo"):
        await api.fixture.create("Cluster", name, spec={"config": {"secretName": "s", "secretNamespace": "demo"}})
        await api.fixture.create("Runner", f"in-{name}", spec={})
    await create_project(api, allowedClusters=[{"name": "oslo"}, {"name": "gone"}], allowedRunners=[{"name": "*"}])
    assert await api.names("clusters", "clusters") == ["oslo"]
    assert await api.names("clusters", "runners") == ["in-berlin", "in-oslo"]
    assert await api.names("runners", "runners") == ["in-berlin", "in-oslo"]


async def test_without_an_allow_list_only_readable_objects_are_listed(api: ProjectApi) -> None:
    for name in ("berlin", "oslo"):
        await api.fixture.create("Cluster", name, spec={"config": {"secretName": "s", "secretNamespace": "demo"}})
    await create_project(api)
    assert await api.names("clusters", "clusters") == []
    api.readable.add(("clusters", "berlin"))
    assert await api.names("clusters", "clusters") == ["berlin"]


async def test_templates_are_listed_by_kind_with_their_default(api: ProjectApi) -> None:
    for name in ("one", "two"):
        await api.fixture.create("SpaceTemplate", name, spec={"template": {}})
        await api.fixture.create("VirtualClusterTemplate", name, spec={"template": {}})
        await api.fixture.create("DevPodEnvironmentTemplate", name, spec={"template": {"inline": "{}"}})
    allowed = [
        {"kind": "SpaceTemplate", "name": "two", "isDefault": True},
        {"kind": "VirtualClusterTemplate", "name": "*"},
        {"kind": "DevPodWorkspaceTemplate", "name": "gone", "isDefault": True},
        {"kind": "DevPodEnvironmentTemplate", "name": "one", "isDefault": True},
    ]
    await create_project(api, allowedTemplates=allowed)
    reply = await api.get("templates")
    assert reply["defaultSpaceTemplate"] == "two"
    assert [each["metadata"]["name"] for each in reply["spaceTemplates"]] == ["two"]
    assert [each["metadata"]["name"] for each in reply["virtualClusterTemplates"]] == ["one", "two"]
    assert "defaultVirtualClusterTemplate" not in reply
    assert reply["defaultDevPodEnvironmentTemplate"] == "one"
    assert [each["metadata"]["name"] for each in reply["devPodEnvironmentTemplates"]] == ["one"]
    assert (reply["devPodWorkspaceTemplates"], "defaultDevPodWorkspaceTemplate" in reply) == ([], False)


async def test_t3_no_subresource_returns_a_credential(api: ProjectApi) -> None:
    chart = {"chart": {"name": "c", "repo": "https://charts.example.com", "username": "u", "password": CANARY}}
    await api.fixture.create("VirtualClusterTemplate", "t", spec={"template": {"helmRelease": chart}})
    await create_project(
        api, allowedTemplates=[{"name": "*"}], allowedClusters=[{"name": "*"}], allowedRunners=[{"name": "*"}]
    )
    assert await api.names("templates", "virtualClusterTemplates") == ["t"]
    for subresource in ("members", "clusters", "runners", "templates"):
        assert CANARY not in str(await api.get(subresource))


@pytest.mark.parametrize("subresource", ["members", "clusters", "runners", "templates"])
async def test_the_subresources_of_a_missing_project_are_not_found(api: ProjectApi, subresource: str) -> None:
    with pytest.raises(NotFound):
        await api.get(subresource, "missing")


async def test_usage_shows_quotas_and_what_is_stored_by_whom_with_the_limits(api: ProjectApi) -> None:
    limits = StorageLimits(StoredUsage(10, 10_000), StoredUsage(5, 5_000))
    limited = api.fixture.with_quota(limits)
    await create_project(api)
    await api.fixture.create("Namespace", "elsewhere")
    for number, (user, namespace) in enumerate(((BOB, "service-p-p"), (BOB, "elsewhere"), (ADA, "service-p-p"))):
        body = limited.build_object("ConfigMap", f"c{number}", namespace, data={"text": "x" * 100 * number})
        await limited.submit("ConfigMap", body, WriteOptions(user, "tests"))
    usage = await ProjectApi(limited).get("usage")
    storage = usage["storage"]
    assert storage["limit"] == {"objects": 10, "bytes": 10_000}
    assert [(each["user"], each["objects"]) for each in storage["users"]] == [("ada", 1), ("bob", 1)]
    assert storage["used"] == {"objects": 2, "bytes": sum(each["bytes"] for each in storage["users"])}
    assert usage["requester"]["user"] == "bob"
    assert usage["requester"]["limit"] == {"objects": 5, "bytes": 5_000}
    assert usage["requester"]["used"]["objects"] == 2
