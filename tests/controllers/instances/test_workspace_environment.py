"""What runners get of an environment, and what the conditions of the workspace say about it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.instances.prerequisites import MISSING_GRACE_SECONDS
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object
from fairlead.registry.conditions import find_condition
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG, PROJECT, condition_status

WORKSPACE, TEMPLATE, ENVIRONMENT = "DevPodWorkspaceInstance", "DevPodWorkspaceTemplate", "DevPodEnvironmentTemplate"
ONE, TWO = '{"image": "one"}', '{"image": "two"}'
RESOLVED, SYNCED = ("True", "Resolved"), ("True", "Synced")
CHANGED, NEWER = ("False", "TemplateChangesAvailable"), ("False", "NewTemplateVersionAvailable")


@pytest.fixture
async def server(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    await api.create("Project", PROJECT, spec={})
    await api.create(TEMPLATE, "t", spec={"template": {"provider": {"name": "devcontainer"}}})
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        yield api


async def create_environment(api: RegistryFixture, text: str = "", **versions: str) -> None:
    spec: Object = {"versions": [entry(version, each) for version, each in versions.items()]} if versions else {}
    await api.create(ENVIRONMENT, "e", spec={**spec, "template": {"inline": text}} if text else spec)


def entry(version: str, text: str) -> Object:
    return {"version": version.removeprefix("v").replace("_", "."), "template": {"inline": text}}


async def create_workspace(api: RegistryFixture, **spec: Any) -> None:
    await api.create(WORKSPACE, "one", spec={"templateRef": {"name": "t"}, "environmentRef": {"name": "e"}, **spec})


async def update(api: RegistryFixture, kind: str, name: str, **spec: Any) -> None:
    await api.patch(kind, name, lambda each: each["spec"].update(spec))


def get_status(api: RegistryFixture) -> Object:
    return (api.get(WORKSPACE, "one") or {}).get("status") or {}


async def expect(
    api: RegistryFixture,
    environment: Object | None,
    resolved: tuple[str, str] = RESOLVED,
    synced: tuple[str, str] | None = SYNCED,
) -> None:
    def is_so() -> bool:
        conditions = [condition_status(api, WORKSPACE, type) for type in ("TemplateResolved", "TemplateSynced")]
        is_as_wanted = conditions[0] == resolved and (synced is None or conditions[1] == synced)
        return is_as_wanted and get_status(api).get("environment") == environment

    await eventually(is_so)


def applied(text: str, version: str = "") -> Object:
    return {"name": "e", "version": version, "inline": text}


async def test_an_environment_reaches_the_runner_and_stays_as_it_was_applied(server: RegistryFixture) -> None:
    await create_environment(server, ONE)
    await create_workspace(server)
    await expect(server, applied(ONE))
    await update(server, ENVIRONMENT, "e", template={"inline": TWO})
    await expect(server, applied(ONE), synced=CHANGED)
    message = (find_condition(get_status(server), "TemplateSynced") or {})["message"]
    assert "the environment template has changed" in message and "spec.templateRef.syncOnce" in message
    await update(server, WORKSPACE, "one", templateRef={"name": "t", "syncOnce": True})
    await expect(server, applied(TWO))
    await eventually(lambda: (server.get(WORKSPACE, "one") or {})["spec"]["templateRef"]["syncOnce"] is False)


async def test_a_version_is_followed_within_its_pattern(server: RegistryFixture) -> None:
    await create_environment(server, v1_0_0=ONE)
    await create_workspace(server, environmentRef={"name": "e", "version": "1.x.x"})
    await expect(server, applied(ONE, "1.0.0"))
    await update(server, ENVIRONMENT, "e", versions=[entry("1.0.0", ONE), entry("1.1.0", TWO)])
    await expect(server, applied(TWO, "1.1.0"))
    await update(server, ENVIRONMENT, "e", versions=[entry("1.1.0", TWO), entry("2.0.0", ONE)])
    await expect(server, applied(TWO, "1.1.0"), synced=NEWER)
    message = (find_condition(get_status(server), "TemplateSynced") or {})["message"]
    assert "version 1.1.0 of the environment template is in use, and 2.0.0 is available" in message


async def test_another_environment_is_applied_at_once_and_none_is_removed(server: RegistryFixture) -> None:
    await create_environment(server, ONE)
    await create_workspace(server)
    await expect(server, applied(ONE))
    await server.create(ENVIRONMENT, "other", spec={"template": {"inline": TWO}})
    await update(server, WORKSPACE, "one", environmentRef={"name": "other"})
    await expect(server, {"name": "other", "version": "", "inline": TWO})
    await server.patch(WORKSPACE, "one", lambda each: each["spec"].pop("environmentRef"))
    await expect(server, None)


@pytest.mark.parametrize(
    ("reference", "reason", "message"),
    [
        (
            {"name": "gone"},
            "EnvironmentNotFound",
            'there is no environment template "gone"; create it, or name another',
        ),
        ({"name": "e", "version": "1"}, "VersionError", "fix spec.environmentRef.version"),
        ({"name": "e", "version": "2.x.x"}, "VersionNotFound", 'environment template "e" has no version 2.x.x'),
        ({"name": "e"}, "VersionNotFound", "set spec.environmentRef.version to x.x.x or 1.0.0"),
    ],
)
async def test_an_environment_that_cannot_be_resolved_is_reported_and_reaches_no_runner(
    server: RegistryFixture, reference: Object, reason: str, message: str
) -> None:
    await create_environment(server, v1_0_0=ONE)
    await create_workspace(server, environmentRef={"name": "e", "version": "1.0.0"})
    await expect(server, applied(ONE, "1.0.0"))
    await update(server, WORKSPACE, "one", environmentRef=reference)
    await expect(server, None, ("False", reason), ("Unknown", reason))
    assert message in (find_condition(get_status(server), "TemplateResolved") or {})["message"]
    assert get_status(server)["instance"] == {"provider": {"name": "devcontainer"}}


async def test_a_missing_environment_of_a_new_workspace_is_reported_after_the_grace_period(
    server: RegistryFixture,
) -> None:
    await create_workspace(server)
    await asyncio.sleep(MISSING_GRACE_SECONDS - 1.5)
    assert get_status(server) == {}
    await expect(server, None, ("False", "EnvironmentNotFound"), None)
    await create_environment(server, ONE)
    await expect(server, applied(ONE))


@pytest.mark.parametrize("spec", [{"templateRef": {}}, {"templateRef": {}, "template": {"workspaceEnv": {}}}])
async def test_a_workspace_without_a_stored_template_follows_its_environment(
    server: RegistryFixture, spec: Object
) -> None:
    await create_environment(server, ONE)
    await create_workspace(server, **spec)
    await expect(server, applied(ONE))
    await update(server, ENVIRONMENT, "e", template={"inline": TWO})
    await expect(server, applied(TWO))


async def test_a_template_that_cannot_be_resolved_is_reported_first(server: RegistryFixture) -> None:
    await create_workspace(server, templateRef={"name": "gone"})
    await expect(server, None, ("False", "TemplateNotFound"), None)
    await update(server, WORKSPACE, "one", templateRef={"name": "t"})
    await expect(server, None, ("False", "EnvironmentNotFound"), None)
