"""Which workspaces are prebuilds, and when they are repeated."""

import pytest

from fairlead.admission.prebuilds import check_prebuilds
from fairlead.core.errors import Invalid
from fairlead.core.objects import Object
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.registry import RegistryFixture, write_options

NAMESPACE, KIND = "service-p-demo", "DevPodWorkspaceInstance"
PREBUILD, SCHEDULE = "service.sh/prebuild", "service.sh/prebuild-schedule"


async def create(api: RegistryFixture, **annotations: str) -> RegistryFixture:
    checked = api.with_rules(check_prebuilds(MANAGEMENT_GROUP))
    await checked.create(KIND, "w", NAMESPACE, spec={}, metadata={"annotations": annotations})
    return checked


async def annotate(api: RegistryFixture, **annotations: str) -> None:
    def edit(old: Object) -> Object:
        return {**old, "metadata": {**old["metadata"], "annotations": annotations}}

    await api.resource(KIND).modify(NAMESPACE, "w", edit, write_options())


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({PREBUILD: "yes"}, "must be true"),
        ({PREBUILD: "true", SCHEDULE: "often"}, "five fields"),
        ({SCHEDULE: "0 4 * * *"}, "is for workspaces with the annotation"),
    ],
)
async def test_annotations_without_a_meaning_are_refused(
    api: RegistryFixture, annotations: dict[str, str], problem: str
) -> None:
    with pytest.raises(Invalid, match=problem):
        await create(api, **annotations)


async def test_a_workspace_never_becomes_a_prebuild_nor_the_reverse(api: RegistryFixture) -> None:
    checked = await create(api)
    with pytest.raises(Invalid, match="deletes the files"):
        await annotate(checked, **{PREBUILD: "true"})
    await annotate(checked, other="x")


async def test_the_schedule_of_a_prebuild_can_be_changed_and_it_stays_a_prebuild(api: RegistryFixture) -> None:
    checked = await create(api, **{PREBUILD: "true", SCHEDULE: "0 4 * * *"})
    await annotate(checked, **{PREBUILD: "true", SCHEDULE: "0 5 * * *"})
    await annotate(checked, **{PREBUILD: "true"})
    with pytest.raises(Invalid, match="cannot be changed"):
        await annotate(checked)
