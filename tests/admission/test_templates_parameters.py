"""Parameters of instances are validated against the definitions in their template."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission.parameters import check_parameters
from fairlead.core.errors import Invalid
from fairlead.core.objects import Object
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.admission.templated_kinds import TEMPLATES, every_kind
from tests.harness.registry import RegistryFixture, open_registry, write_options

DEFINITIONS = [{"variable": "size", "type": "number", "max": 3}, {"variable": "image.tag", "required": True}]


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(check_parameters(GROUP),)) as fixture:
        for kind in TEMPLATES.values():
            versions = [{"version": "1.0.0", "parameters": []}]
            spec = {"template": {"instanceTemplate": {"metadata": {}}}, "parameters": DEFINITIONS, "versions": versions}
            await fixture.create(kind, "t", spec=spec)
        yield fixture


async def create_instance(api: RegistryFixture, kind: str, parameters: str, **spec: Any) -> Object:
    return await api.create(kind, "one", spec={"templateRef": {"name": "t"}, "parameters": parameters, **spec})


@every_kind
async def test_valid_values_are_accepted(api: RegistryFixture, kind: str) -> None:
    created = await create_instance(api, kind, "size: 2\nimage: {tag: a}\n")
    assert created["spec"]["parameters"] == "size: 2\nimage: {tag: a}\n"


@every_kind
async def test_invalid_values_are_reported_by_the_names_of_their_variables(api: RegistryFixture, kind: str) -> None:
    with pytest.raises(Invalid) as error:
        await create_instance(api, kind, "size: 4")
    assert [each.field for each in error.value.details.problems] == [
        "spec.parameters[size]",
        "spec.parameters[image.tag]",
    ]


async def test_the_definitions_of_the_referenced_version_apply(api: RegistryFixture) -> None:
    await create_instance(api, "SpaceInstance", "", templateRef={"name": "t", "version": "1.x.x"})


@pytest.mark.parametrize(
    "reference", [{"name": "missing"}, {"name": "t", "version": "9.x.x"}, {"name": "t", "version": "new"}, {}]
)
async def test_a_missing_template_or_version_validates_nothing(api: RegistryFixture, reference: Object) -> None:
    await create_instance(api, "SpaceInstance", "size: enormous", templateRef=reference)


async def test_an_unknown_parameter_warns(api: RegistryFixture) -> None:
    options = write_options()
    body = api.build_object(
        "SpaceInstance", "one", spec={"templateRef": {"name": "t"}, "parameters": "image.tag: a\nsiez: 1"}
    )
    await api.submit("SpaceInstance", body, options)
    assert options.warnings == ["spec.parameters[siez] is not a parameter of the template and has no effect"]


async def test_a_stricter_template_does_not_block_unrelated_changes(api: RegistryFixture) -> None:
    await create_instance(api, "SpaceInstance", "size: 2\nimage.tag: a")
    await api.patch(
        "SpaceTemplate", "t", lambda obj: obj["spec"].update(parameters=[{"variable": "b", "required": True}])
    )
    await api.patch("SpaceInstance", "one", lambda obj: obj["spec"].update(displayName="x"))
    with pytest.raises(Invalid, match=r"spec\.parameters\[b\]"):
        await api.patch("SpaceInstance", "one", lambda obj: obj["spec"]["templateRef"].update(syncOnce=True))


async def test_parameters_of_an_inline_template_must_be_valid_yaml(api: RegistryFixture) -> None:
    with pytest.raises(Invalid, match=r"spec\.parameters"):
        await create_instance(api, "SpaceInstance", "a: [", templateRef={}, template={"objects": "x"})


@pytest.mark.parametrize(
    "spec", [{"parameters": ["a"]}, {"templateRef": {"name": 1}}, {"templateRef": "t"}, {"templateRef": {"version": 1}}]
)
async def test_wrong_types_are_left_to_the_schema(api: RegistryFixture, spec: Object) -> None:
    with pytest.raises(Invalid):
        await api.create("SpaceInstance", "one", spec={"parameters": "size: 4", **spec})


@pytest.mark.parametrize("spec", [1.5, "text", ["list"], True])
async def test_a_spec_that_is_not_an_object_is_left_to_the_schema(api: RegistryFixture, spec: Any) -> None:
    with pytest.raises(Invalid):
        await api.create("SpaceInstance", "two", spec=spec)
    await create_instance(api, "SpaceInstance", "size: 2\nimage: {tag: a}\n")
    await api.create("SpaceInstance", "plain", spec={})
    for name in ("one", "plain"):
        with pytest.raises(Invalid):
            await api.patch("SpaceInstance", name, lambda each: each.update(spec=spec))
