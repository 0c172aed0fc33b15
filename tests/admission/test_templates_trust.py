"""Which templates are an administrator's: those that one of them has made or marked, as long as nobody else changes
what they make."""

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
MARK = "service.sh/trusted"
KINDS = ("SpaceTemplate", "VirtualClusterTemplate")


@pytest.fixture
async def ruled() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(mark_trusted_templates(GROUP),)) as api:
        yield api


async def make(api: RegistryFixture, by: User, kind: str = "SpaceTemplate", **annotations: str) -> Object:
    body = api.body(kind, "t", spec={"template": {}}, metadata={"annotations": annotations} if annotations else {})
    return await api.submit(kind, body, WriteOptions(by))


async def edit(api: RegistryFixture, by: User, **spec: Any) -> Object:
    return await api.patch("SpaceTemplate", "t", lambda each: each["spec"].update(spec), WriteOptions(by))


async def mark(api: RegistryFixture, by: User, value: str | None) -> Object:
    def put(each: Object) -> None:
        each["metadata"]["annotations"] = {} if value is None else {MARK: value}

    return await api.patch("SpaceTemplate", "t", put, WriteOptions(by))


def found(template: Object) -> str | None:
    value: str | None = (template["metadata"].get("annotations") or {}).get(MARK)
    return value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("by", "expected"), [(ROOT, "true"), (ADA, "false"), (SCOPED, "false")])
async def test_who_makes_a_template_decides(ruled: RegistryFixture, kind: str, by: User, expected: str) -> None:
    assert found(await make(ruled, by, kind)) == expected


@pytest.mark.parametrize("by", [ADA, SCOPED])
async def test_nobody_else_gives_the_mark(ruled: RegistryFixture, by: User) -> None:
    assert found(await make(ruled, by, **{MARK: "true"})) == "false"
    assert found(await mark(ruled, by, "true")) == "false"
    assert found(await mark(ruled, by, None)) == "false"


@pytest.mark.parametrize("by", [ADA, SCOPED])
@pytest.mark.parametrize(
    "change",
    [
        {"template": {"objects": "x"}},
        {"parameters": [{"variable": "x"}]},
        {"versions": [{"version": "1.0.0", "template": {}}]},
    ],
)
async def test_whoever_else_changes_a_definition_takes_the_mark_off(
    ruled: RegistryFixture, by: User, change: Object
) -> None:
    await make(ruled, ROOT)
    assert found(await edit(ruled, by, displayName="another")) == "true"
    assert found(await edit(ruled, by, **change)) == "false"
    assert found(await edit(ruled, by, template={}, parameters=[], versions=[])) == "false"


async def test_others_are_warned(ruled: RegistryFixture) -> None:
    await make(ruled, ROOT)
    warnings: list[str] = []
    writing = WriteOptions(ADA, warnings=warnings)
    await ruled.patch("SpaceTemplate", "t", lambda each: each["spec"].update(template={"objects": "x"}), writing)
    assert any("is no longer trusted" in each for each in warnings)


async def test_an_administrator_who_changes_a_template_does_not_vouch_for_the_rest(ruled: RegistryFixture) -> None:
    await make(ruled, ADA)
    assert found(await edit(ruled, ROOT, template={"metadata": {"labels": {"a": "b"}}})) == "false"
    assert found(await mark(ruled, ROOT, "true")) == "true"
    assert found(await edit(ruled, ROOT, template={})) == "true"
    assert found(await mark(ruled, ROOT, None)) == "true"
    assert found(await mark(ruled, ROOT, "false")) == "false"


async def test_a_template_from_before_there_were_marks_stays_without(ruled: RegistryFixture) -> None:
    await ruled.submit("SpaceTemplate", ruled.body("SpaceTemplate", "t", spec={"template": {}}), server_write_options())
    assert found(await edit(ruled, ROOT, displayName="x")) is None
    assert found(await edit(ruled, ADA, displayName="y")) is None
    assert found(await edit(ruled, ADA, template={"objects": "x"})) == "false"
