"""Allow lists of projects: which clusters, templates and runners their instances may use."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission.allow_lists import allowed_names, default_template, is_allowed
from fairlead.admission.projects import enforce_allow_lists
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.harness.registry import RegistryFixture, open_registry, write_options

KIND, PROJECT_NAMESPACE = "DevPodWorkspaceInstance", "service-p-p"
TEMPLATE = "DevPodWorkspaceTemplate"


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(enforce_allow_lists(GROUP, NAMESPACE_PREFIX),)) as fixture:
        yield fixture


async def create_workspace(api: RegistryFixture, name: str, **spec: Any) -> Object:
    return await api.create(KIND, name, PROJECT_NAMESPACE, spec=spec)


async def test_a_project_without_lists_restricts_nothing(api: RegistryFixture) -> None:
    await api.create("Project", "p", spec={})
    await create_workspace(
        api, "a", templateRef={"name": "any"}, runnerRef={"runner": "any"}, target={"cluster": {"name": "x"}}
    )


async def test_an_empty_list_allows_nothing_and_the_message_says_so(api: RegistryFixture) -> None:
    await api.create("Project", "p", spec={"allowedRunners": []})
    with pytest.raises(Forbidden, match=r'does not allow the runner "r" \(spec\.runnerRef\.runner\).*no runner at all'):
        await create_workspace(api, "a", runnerRef={"runner": "r"})
    await create_workspace(api, "b", runnerRef={}, templateRef={"name": "free"})


async def test_a_runner_must_be_in_the_list(api: RegistryFixture) -> None:
    await api.create("Project", "p", spec={"allowedRunners": [{"name": "one"}, {"name": "two"}]})
    await create_workspace(api, "a", runnerRef={"runner": "two"})
    with pytest.raises(Forbidden) as error:
        await create_workspace(api, "b", runnerRef={"runner": "three"})
    assert error.value.message == (
        f'devpodworkspaceinstances.{GROUP} "b" is forbidden: project "p" does not allow the runner "three" '
        "(spec.runnerRef.runner); allowed here: one, two; choose an allowed one, or have it added to "
        "spec.allowedRunners of the project"
    )


async def test_a_cluster_must_be_in_the_list(api: RegistryFixture) -> None:
    await api.create("Project", "p", spec={"allowedClusters": [{"name": "berlin"}]})
    await create_workspace(api, "a", target={"cluster": {"name": "berlin"}})
    with pytest.raises(Forbidden, match="allowed here: berlin"):
        await create_workspace(api, "b", target={"cluster": {"name": "oslo"}})


async def test_a_wildcard_allows_all(api: RegistryFixture) -> None:
    await api.create("Project", "p", spec={"allowedRunners": [{"name": "*"}]})
    await create_workspace(api, "a", runnerRef={"runner": "any"})


async def test_allowed_templates_match_by_kind_and_group(api: RegistryFixture) -> None:
    entries = [
        {"kind": "SpaceTemplate", "name": "spaces"},
        {"kind": TEMPLATE, "group": "example.com", "name": "theirs"},
        {"kind": TEMPLATE, "group": GROUP, "name": "ours"},
        {"name": "of-any-kind"},
    ]
    await api.create("Project", "p", spec={"allowedTemplates": entries})
    await create_workspace(api, "a", templateRef={"name": "ours"})
    await create_workspace(api, "b", templateRef={"name": "of-any-kind"})
    for name in ("spaces", "theirs", "else"):
        with pytest.raises(Forbidden, match="allowed here: ours, of-any-kind"):
            await create_workspace(api, "c", templateRef={"name": name})


async def test_only_changes_to_a_reference_that_is_not_allowed_are_rejected(api: RegistryFixture) -> None:
    await api.create("Project", "p", spec={})
    await create_workspace(api, "a", templateRef={"name": "old"})
    await api.patch(
        "Project", "p", lambda obj: obj["spec"].update(allowedTemplates=[{"kind": TEMPLATE, "name": "new"}])
    )

    async def update_spec(**spec: Any) -> None:
        def replace_spec(old: Object) -> Object:
            return {**old, "spec": {**old["spec"], **spec}}

        await api.resource(KIND).modify(PROJECT_NAMESPACE, "a", replace_spec, write_options())

    await update_spec(displayName="still created from the old template")
    with pytest.raises(Forbidden, match='the template "other"'):
        await update_spec(templateRef={"name": "other"})
    await update_spec(templateRef={"name": "new"})


async def test_instances_outside_of_projects_are_not_checked(api: RegistryFixture) -> None:
    await api.create(KIND, "a", "demo", spec={"templateRef": {"name": "any"}})


def test_a_missing_list_differs_from_an_empty_one() -> None:
    assert allowed_names({"spec": {}}, "allowedClusters") is None
    assert allowed_names({"spec": {"allowedClusters": []}}, "allowedClusters") == []
    assert is_allowed(None, "x")
    assert not is_allowed([], "x")
    assert is_allowed(["*"], "x")


def test_the_default_template_is_a_named_one() -> None:
    entries = [{"kind": TEMPLATE, "name": "*", "isDefault": True}, {"kind": TEMPLATE, "name": "t", "isDefault": True}]
    assert default_template({"spec": {"allowedTemplates": entries}}, TEMPLATE, GROUP) == "t"
    assert default_template({"spec": {"allowedTemplates": entries}}, "SpaceTemplate", GROUP) is None
    assert default_template({"spec": {}}, TEMPLATE, GROUP) is None
