"""What instances give to their templates, where the template is there to say what may be given."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission.templates import check_parameters
from fairlead.core.errors import Invalid
from fairlead.core.objects import Object
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.admission.templated_kinds import TEMPLATES, every_kind
from tests.harness.registry import RegistryFixture, as_ada, open_registry

DEFINITIONS = [{"variable": "size", "type": "number", "max": 3}, {"variable": "image.tag", "required": True}]


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(check_parameters(GROUP),)) as made:
        for kind in TEMPLATES.values():
            versions = [{"version": "1.0.0", "parameters": []}]
            spec = {"template": {"instanceTemplate": {"metadata": {}}}, "parameters": DEFINITIONS, "versions": versions}
            await made.create(kind, "t", spec=spec)
        yield made


async def make(api: RegistryFixture, kind: str, parameters: str, **spec: Any) -> Object:
    return await api.create(kind, "one", spec={"templateRef": {"name": "t"}, "parameters": parameters, **spec})


@every_kind
async def test_values_that_fit_are_taken(api: RegistryFixture, kind: str) -> None:
    made = await make(api, kind, "size: 2\nimage: {tag: a}\n")
    assert made["spec"]["parameters"] == "size: 2\nimage: {tag: a}\n"


@every_kind
async def test_values_that_do_not_fit_are_refused_by_the_names_of_their_variables(
    api: RegistryFixture, kind: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await make(api, kind, "size: 4")
    assert [each.field for each in caught.value.details.problems] == [
        "spec.parameters[size]",
        "spec.parameters[image.tag]",
    ]


async def test_the_version_counts(api: RegistryFixture) -> None:
    await make(api, "SpaceInstance", "", templateRef={"name": "t", "version": "1.x.x"})


@pytest.mark.parametrize(
    "ref", [{"name": "missing"}, {"name": "t", "version": "9.x.x"}, {"name": "t", "version": "new"}, {}]
)
async def test_what_is_not_there_yet_refuses_nothing(api: RegistryFixture, ref: Object) -> None:
    await make(api, "SpaceInstance", "size: enormous", templateRef=ref)


async def test_a_misspelt_parameter_is_told(api: RegistryFixture) -> None:
    writing = as_ada()
    body = api.body("SpaceInstance", "one", spec={"templateRef": {"name": "t"}, "parameters": "image.tag: a\nsiez: 1"})
    await api.submit("SpaceInstance", body, writing)
    assert writing.warnings == ["spec.parameters[siez] is not a parameter of the template and has no effect"]


async def test_a_template_that_became_stricter_blocks_no_other_change(api: RegistryFixture) -> None:
    await make(api, "SpaceInstance", "size: 2\nimage.tag: a")
    await api.patch(
        "SpaceTemplate", "t", lambda obj: obj["spec"].update(parameters=[{"variable": "b", "required": True}])
    )
    await api.patch("SpaceInstance", "one", lambda obj: obj["spec"].update(displayName="x"))
    with pytest.raises(Invalid, match=r"spec\.parameters\[b\]"):
        await api.patch("SpaceInstance", "one", lambda obj: obj["spec"]["templateRef"].update(syncOnce=True))


async def test_what_is_written_in_place_must_still_be_readable(api: RegistryFixture) -> None:
    with pytest.raises(Invalid, match=r"spec\.parameters"):
        await make(api, "SpaceInstance", "a: [", templateRef={}, template={"objects": "x"})


@pytest.mark.parametrize(
    "spec", [{"parameters": ["a"]}, {"templateRef": {"name": 1}}, {"templateRef": "t"}, {"templateRef": {"version": 1}}]
)
async def test_wrong_types_are_left_to_the_schema(api: RegistryFixture, spec: Object) -> None:
    with pytest.raises(Invalid):
        await api.create("SpaceInstance", "one", spec={"parameters": "size: 4", **spec})


@pytest.mark.parametrize("spec", [1.5, "text", ["list"], True])
async def test_a_spec_that_is_no_object_is_left_to_the_schema_also_in_an_update(
    api: RegistryFixture, spec: Any
) -> None:
    with pytest.raises(Invalid):
        await api.create("SpaceInstance", "two", spec=spec)
    await make(api, "SpaceInstance", "size: 2\nimage: {tag: a}\n")
    await api.create("SpaceInstance", "plain", spec={})
    for name in ("one", "plain"):
        with pytest.raises(Invalid):
            await api.patch("SpaceInstance", name, lambda each: each.update(spec=spec))
