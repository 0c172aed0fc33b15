"""Trusted templates: created or marked by an administrator, and not changed by others since."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission.templates import mark_trusted_templates
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions, server_write_options
from tests.harness.registry import ADA, RegistryFixture, open_registry

ROOT = User("root", ("system:masters",))
SCOPED = User("root", ("system:masters",), scope=Scope(projects=("*",)))
TRUSTED = "service.sh/trusted"
KINDS = ("SpaceTemplate", "VirtualClusterTemplate", "DevPodWorkspaceTemplate")


@pytest.fixture
async def api_with_rule() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(mark_trusted_templates(GROUP),)) as api:
        yield api


async def create_template(api: RegistryFixture, user: User, kind: str = "SpaceTemplate", **annotations: str) -> Object:
    template = {"provider": {"name": "docker"}} if kind == "DevPodWorkspaceTemplate" else {}
    body = api.build_object(
        kind, "t", spec={"template": template}, metadata={"annotations": annotations} if annotations else {}
    )
    return await api.submit(kind, body, WriteOptions(user))


async def update_template(api: RegistryFixture, user: User, **spec: Any) -> Object:
    return await api.patch("SpaceTemplate", "t", lambda each: each["spec"].update(spec), WriteOptions(user))


async def set_trusted(api: RegistryFixture, user: User, value: str | None) -> Object:
    def set_annotation(each: Object) -> None:
        each["metadata"]["annotations"] = {} if value is None else {TRUSTED: value}

    return await api.patch("SpaceTemplate", "t", set_annotation, WriteOptions(user))


def trusted_value(template: Object) -> str | None:
    value: str | None = (template["metadata"].get("annotations") or {}).get(TRUSTED)
    return value


async def test_a_template_of_workspaces_is_marked_once_it_has_a_provider(api_with_rule: RegistryFixture) -> None:
    kind = "DevPodWorkspaceTemplate"
    created = await api_with_rule.submit(kind, api_with_rule.build_object(kind, "t", spec={}), WriteOptions(ROOT))
    assert trusted_value(created) is None
    provider = {"template": {"provider": {"name": "docker"}}}
    changed = await api_with_rule.patch(kind, "t", lambda each: each["spec"].update(provider), WriteOptions(ROOT))
    assert trusted_value(changed) == "true"
    other = {"template": {"provider": {"name": "podman"}}}
    changed = await api_with_rule.patch(kind, "t", lambda each: each["spec"].update(other), WriteOptions(ADA))
    assert trusted_value(changed) != "true"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("user", "expected"), [(ROOT, "true"), (ADA, "false"), (SCOPED, "false")])
async def test_a_template_is_trusted_if_an_administrator_creates_it(
    api_with_rule: RegistryFixture, kind: str, user: User, expected: str
) -> None:
    assert trusted_value(await create_template(api_with_rule, user, kind)) == expected


@pytest.mark.parametrize("user", [ADA, SCOPED])
async def test_other_users_cannot_mark_a_template_as_trusted(api_with_rule: RegistryFixture, user: User) -> None:
    assert trusted_value(await create_template(api_with_rule, user, **{TRUSTED: "true"})) == "false"
    assert trusted_value(await set_trusted(api_with_rule, user, "true")) == "false"
    assert trusted_value(await set_trusted(api_with_rule, user, None)) == "false"


@pytest.mark.parametrize("user", [ADA, SCOPED])
@pytest.mark.parametrize(
    "change",
    [
        {"template": {"objects": "x"}},
        {"parameters": [{"variable": "x"}]},
        {"versions": [{"version": "1.0.0", "template": {}}]},
    ],
)
async def test_a_definition_change_by_another_user_removes_the_trust(
    api_with_rule: RegistryFixture, user: User, change: Object
) -> None:
    await create_template(api_with_rule, ROOT)
    assert trusted_value(await update_template(api_with_rule, user, displayName="another")) == "true"
    assert trusted_value(await update_template(api_with_rule, user, **change)) == "false"
    assert trusted_value(await update_template(api_with_rule, user, template={}, parameters=[], versions=[])) == "false"


async def test_a_change_that_removes_the_trust_warns(api_with_rule: RegistryFixture) -> None:
    await create_template(api_with_rule, ROOT)
    warnings: list[str] = []
    options = WriteOptions(ADA, warnings=warnings)
    await api_with_rule.patch(
        "SpaceTemplate", "t", lambda each: each["spec"].update(template={"objects": "x"}), options
    )
    assert any("is no longer trusted" in each for each in warnings)


async def test_a_change_by_an_administrator_does_not_make_a_template_trusted(api_with_rule: RegistryFixture) -> None:
    await create_template(api_with_rule, ADA)
    assert (
        trusted_value(await update_template(api_with_rule, ROOT, template={"metadata": {"labels": {"a": "b"}}}))
        == "false"
    )
    assert trusted_value(await set_trusted(api_with_rule, ROOT, "true")) == "true"
    assert trusted_value(await update_template(api_with_rule, ROOT, template={})) == "true"
    assert trusted_value(await set_trusted(api_with_rule, ROOT, None)) == "true"
    assert trusted_value(await set_trusted(api_with_rule, ROOT, "false")) == "false"


async def test_a_template_without_the_annotation_stays_without_it(api_with_rule: RegistryFixture) -> None:
    await api_with_rule.submit(
        "SpaceTemplate", api_with_rule.build_object("SpaceTemplate", "t", spec={"template": {}}), server_write_options()
    )
    assert trusted_value(await update_template(api_with_rule, ROOT, displayName="x")) is None
    assert trusted_value(await update_template(api_with_rule, ADA, displayName="y")) is None
    assert trusted_value(await update_template(api_with_rule, ADA, template={"objects": "x"})) == "false"
