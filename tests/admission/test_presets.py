"""Workspaces from presets: what is copied, what is checked, and what stays when a workspace is updated."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead.admission.objects_in_use import prevent_deletion_while_used
from fairlead.admission.presets import apply_presets, check_presets, require_presets
from fairlead.admission.projects import enforce_allow_lists
from fairlead.admission.templates import mark_trusted_templates
from fairlead.admission.workspace_templates import restrict_workspace_templates
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Conflict, Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, NAMESPACE, RegistryFixture, open_registry

WORKSPACE, PRESET, TEMPLATE = "DevPodWorkspaceInstance", "DevPodWorkspacePreset", "DevPodWorkspaceTemplate"
ENVIRONMENT = "DevPodEnvironmentTemplate"
PREFIX = NAMESPACE[:2]
ADMIN = User("root", ("system:masters",))
PROJECT = NAMESPACE.removeprefix(PREFIX)
SOURCE = "service.sh/workspace-source"
REPOSITORY = "https://example.com/shop.git@main"
SPEC: Object = {
    "source": {"git": REPOSITORY},
    "templateRef": {"name": "t", "version": "1.x.x"},
    "environmentRef": {"name": "e"},
    "parameters": "size: large\nzone: a",
}


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    rules = (
        apply_presets(GROUP, PREFIX),
        enforce_allow_lists(GROUP, PREFIX),
        check_presets(GROUP),
        restrict_workspace_templates(GROUP),
        mark_trusted_templates(GROUP),
        prevent_deletion_while_used(lambda user, target: Decision(True), GROUP),
    )
    async with open_registry(rules=rules) as fixture:
        yield fixture


async def create_preset(api: RegistryFixture, **spec: Any) -> None:
    await api.create(PRESET, "shop", spec={**SPEC, **spec})


async def create_workspace(
    api: RegistryFixture, annotations: Object | None = None, warnings: list[str] | None = None, **spec: Any
) -> Object:
    body = api.build_object(WORKSPACE, "w", spec={"presetRef": {"name": "shop"}, **spec})
    body["metadata"]["annotations"] = annotations or {}
    return await api.submit(WORKSPACE, body, WriteOptions(ADA, warnings=warnings if warnings is not None else []))


async def update_workspace(api: RegistryFixture, warnings: list[str] | None = None, **spec: Any) -> Object:
    """Replaces the spec, as a PUT does."""

    def edit(each: Object) -> None:
        each["spec"] = spec
        each["metadata"].pop("annotations", None)

    return await api.patch(WORKSPACE, "w", edit, WriteOptions(ADA, warnings=warnings if warnings is not None else []))


async def test_a_workspace_gets_what_it_leaves_out(api: RegistryFixture) -> None:
    await create_preset(api)
    workspace = await create_workspace(api)
    assert workspace["metadata"]["annotations"] == {SOURCE: f"git:{REPOSITORY}"}
    assert workspace["spec"] == {
        "presetRef": {"name": "shop"},
        "templateRef": {"name": "t", "version": "1.x.x"},
        "environmentRef": {"name": "e"},
        "parameters": "size: large\nzone: a",
    }


async def test_the_fields_of_the_workspace_take_precedence(api: RegistryFixture) -> None:
    await create_preset(api)
    workspace = await create_workspace(
        api, {SOURCE: "image:debian:12"}, environmentRef={"name": "own"}, parameters="size: small\nmore: 1"
    )
    assert workspace["metadata"]["annotations"] == {SOURCE: "image:debian:12"}
    assert workspace["spec"]["environmentRef"] == {"name": "own"}
    assert workspace["spec"]["parameters"] == "more: 1\nsize: small\nzone: a\n"


@pytest.mark.parametrize("own", [{"templateRef": {"name": "own"}}, {"template": {"workspaceEnv": {}}}])
async def test_the_parameters_of_a_preset_are_for_its_own_template(api: RegistryFixture, own: Object) -> None:
    await create_preset(api)
    workspace = await create_workspace(api, **own)
    assert workspace["spec"].get("templateRef") == own.get("templateRef")
    assert "parameters" not in workspace["spec"]


async def test_an_image_is_a_source(api: RegistryFixture) -> None:
    await create_preset(api, source={"image": "debian:12"})
    assert (await create_workspace(api))["metadata"]["annotations"] == {SOURCE: "image:debian:12"}


async def test_a_version_is_chosen_when_the_workspace_is_created(api: RegistryFixture) -> None:
    versions = [
        {"version": f"1.{minor}.0", "source": {"image": f"i:{minor}"}, "templateRef": {"name": f"t{minor}"}}
        for minor in range(2)
    ]
    await create_preset(api, versions=versions)
    workspace = await create_workspace(api, presetRef={"name": "shop", "version": "1.x.x"})
    assert workspace["metadata"]["annotations"] == {SOURCE: "image:i:1"}
    assert workspace["spec"] == {"presetRef": {"name": "shop", "version": "1.x.x"}, "templateRef": {"name": "t1"}}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"name": "shop", "version": "2.x.x"}, 'preset "shop" has no version 2.x.x: its newest is 1.0.0'),
        ({"name": "shop", "version": "2"}, "fix spec.presetRef.version"),
    ],
)
async def test_a_preset_that_cannot_be_used_is_an_error(api: RegistryFixture, reference: Object, message: str) -> None:
    await create_preset(api, versions=[{**SPEC, "version": "1.0.0"}])
    with pytest.raises(Invalid) as error:
        await create_workspace(api, presetRef=reference)
    assert message in error.value.message
    assert api.get(WORKSPACE, "w") is None


async def test_a_preset_with_versions_only_has_to_be_used_with_one(api: RegistryFixture) -> None:
    await api.create(PRESET, "shop", spec={"versions": [{**SPEC, "version": "1.0.0"}]})
    with pytest.raises(Invalid, match=r"has versions only; set spec\.presetRef\.version to x\.x\.x or 1\.0\.0"):
        await create_workspace(api)


@pytest.mark.parametrize("name", ["shop", "gone"])
async def test_a_project_that_does_not_allow_the_preset_says_nothing_else_about_it(
    api: RegistryFixture, name: str
) -> None:
    await create_preset(api)
    await api.create("Project", PROJECT, spec={"allowedTemplates": [{"kind": PRESET, "name": "other"}]})
    with pytest.raises(Forbidden, match=f'does not allow the preset "{name}"'):
        await create_workspace(api, presetRef={"name": name})


@pytest.mark.parametrize(
    ("missing", "message"), [(TEMPLATE, 'the template "t"'), (ENVIRONMENT, 'the environment template "e"')]
)
async def test_what_a_preset_uses_must_be_allowed_too(api: RegistryFixture, missing: str, message: str) -> None:
    await create_preset(api)
    allowed = [{"kind": kind, "name": "*"} for kind in (PRESET, TEMPLATE, ENVIRONMENT) if kind != missing]
    await api.create("Project", PROJECT, spec={"allowedTemplates": allowed})
    with pytest.raises(Forbidden, match=message):
        await create_workspace(api)


async def test_a_preset_gives_no_power_that_its_template_does_not_have(api: RegistryFixture) -> None:
    powerful = {"provider": {"name": "kubernetes", "options": {"allow": {"value": "privileged"}}}}
    body = api.build_object(TEMPLATE, "t", spec={"template": powerful})
    await api.submit(TEMPLATE, body, WriteOptions(ADA, warnings=[]))
    await create_preset(api, templateRef={"name": "t"})
    with pytest.raises(Invalid, match='have an administrator correct the template "t"'):
        await create_workspace(api)


async def test_an_update_with_the_manifest_keeps_what_was_copied(api: RegistryFixture) -> None:
    await create_preset(api)
    before = await create_workspace(api)
    await api.patch(PRESET, "shop", lambda each: each["spec"].update(templateRef={"name": "later"}))
    after = await update_workspace(api, presetRef={"name": "shop"}, displayName="Shop")
    assert after["spec"] == {**before["spec"], "displayName": "Shop"}
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    own = await update_workspace(api, presetRef={"name": "shop"}, template={"workspaceEnv": {}}, parameters="")
    assert ("templateRef" in own["spec"], own["spec"]["parameters"]) == (False, "")


async def test_a_preset_has_an_effect_at_creation_only_and_can_be_removed(api: RegistryFixture) -> None:
    await create_preset(api)
    await api.create(PRESET, "other", spec=SPEC)
    await create_workspace(api)
    for reference in ({"name": "other"}, {"name": "shop", "version": "1.x.x"}):
        warnings: list[str] = []
        await update_workspace(api, warnings, presetRef=reference)
        assert [each.partition(";")[0] for each in warnings] == [
            "spec.presetRef has no effect on a workspace that exists"
        ]
    assert (await update_workspace(api, templateRef={"name": "t"}))["spec"] == {"templateRef": {"name": "t"}}


async def test_a_preset_that_does_not_exist_has_no_effect_and_a_warning_says_so(api: RegistryFixture) -> None:
    warnings: list[str] = []
    workspace = await create_workspace(api, warnings=warnings, presetRef={"name": "gone"})
    assert workspace["spec"] == {"presetRef": {"name": "gone"}}
    assert [each.partition(";")[0] for each in warnings] == ['spec.presetRef has no effect: there is no preset "gone"']


async def test_fields_of_the_wrong_type_are_left_to_the_validation(api: RegistryFixture) -> None:
    await create_preset(api)
    wrong_specs: list[Object] = [
        {"presetRef": {"name": 1}},
        {"presetRef": "shop"},
        {"parameters": 1},
        {"templateRef": []},
    ]
    for wrong in wrong_specs:
        with pytest.raises(Invalid):
            await create_workspace(api, **wrong)


async def test_a_preset_in_use_is_not_deleted_and_neither_is_what_a_preset_uses(api: RegistryFixture) -> None:
    await api.create(TEMPLATE, "t", spec={})
    await api.create(ENVIRONMENT, "e", spec={"template": {"inline": "{}"}})
    await create_preset(api)
    await create_workspace(api, templateRef={"name": "own"}, environmentRef={"name": "own"})
    with pytest.raises(Conflict, match=r"demo/w is using it; delete it or remove spec\.presetRef of it first"):
        await api.delete(PRESET, "shop")
    for kind, name in ((TEMPLATE, "t"), (ENVIRONMENT, "e")):
        with pytest.raises(Conflict, match="the devpodworkspacepreset shop is using it; delete or change it first"):
            await api.delete(kind, name)
    await api.delete(WORKSPACE, "w")
    for kind, name in ((PRESET, "shop"), (TEMPLATE, "t"), (ENVIRONMENT, "e")):
        assert (await api.delete(kind, name)).is_removed


async def test_a_preset_with_a_password_is_refused(api: RegistryFixture) -> None:
    parameters = [{"variable": "token", "type": "password"}, {"variable": "size"}]
    await api.create(TEMPLATE, "t", spec={"versions": [{"version": "1.0.0", "parameters": parameters}]})
    with pytest.raises(Invalid) as error:
        await create_preset(api, parameters="token: secret\nsize: large")
    assert "spec.parameters[token]: Forbidden: it is a password" in error.value.message
    assert "secret" not in error.value.message.replace("secrets", "")
    await create_preset(api, parameters="size: large")


async def test_missing_templates_and_environments_are_warned_about(api: RegistryFixture) -> None:
    warnings: list[str] = []
    body = api.build_object(PRESET, "shop", spec={**SPEC, "versions": [{**SPEC, "version": "1.0.0"}]})
    await api.submit(PRESET, body, WriteOptions(ADA, warnings=warnings))
    assert [each.partition(";")[0] for each in warnings] == [
        'spec.templateRef.name: there is no workspace template "t"',
        'spec.environmentRef.name: there is no environment template "e"',
        'spec.versions[0].templateRef.name: there is no workspace template "t"',
        'spec.versions[0].environmentRef.name: there is no environment template "e"',
    ]
    warnings.clear()
    await api.patch(
        PRESET, "shop", lambda each: each["spec"].update(displayName="x"), WriteOptions(ADA, warnings=warnings)
    )
    assert warnings == []


# --- projects that require a preset ---


def allow_administrators(user: User, target: RequestInfo) -> Decision:
    assert (target.verb, target.resource, target.subresource) == ("create", "devpodworkspaceinstances", "restricted")
    assert (target.namespace, target.name) == (NAMESPACE, "")
    return Decision(user == ADMIN)


@asynccontextmanager
async def open_project(**spec: Any) -> AsyncIterator[RegistryFixture]:
    rules = (apply_presets(GROUP, PREFIX), require_presets(allow_administrators, GROUP, PREFIX))
    async with open_registry(rules=rules) as fixture:
        await fixture.create("Project", PROJECT, spec=spec)
        await create_preset(fixture)
        yield fixture


async def create_without_preset(api: RegistryFixture, user: User = ADA) -> Object:
    body = api.build_object(WORKSPACE, "w", spec={"templateRef": {"name": "t"}})
    return await api.submit(WORKSPACE, body, WriteOptions(user))


@pytest.mark.parametrize("required", [{}, {"disabled": False}])
async def test_a_project_that_requires_a_preset_refuses_workspaces_without_one(required: Object) -> None:
    async with open_project(requirePreset=required) as api:
        with pytest.raises(Forbidden) as error:
            await create_without_preset(api)
        assert error.value.message.endswith(
            f'project "{PROJECT}" requires a preset (spec.requirePreset), and the workspace names none; name one in '
            "spec.presetRef.name, as `fairlead workspace create --preset` does, or ask for the permission to create "
            "devpodworkspaceinstances/restricted in the project"
        )
        assert api.get(WORKSPACE, "w") is None
        await create_workspace(api)


@pytest.mark.parametrize("spec", [{}, {"requirePreset": {"disabled": True}}])
async def test_other_projects_take_workspaces_without_a_preset(spec: Object) -> None:
    async with open_project(**spec) as api:
        await create_without_preset(api)


async def test_administrators_may_create_a_workspace_without_the_required_preset() -> None:
    async with open_project(requirePreset={}) as api:
        await create_without_preset(api, ADMIN)
        await update_workspace(api, templateRef={"name": "other"})  # a member changes something else


async def test_a_required_preset_must_exist() -> None:
    async with open_project(requirePreset={}) as api:
        with pytest.raises(Forbidden, match='there is no preset "gone"'):
            await create_workspace(api, presetRef={"name": "gone"}, templateRef={"name": "t"})


async def test_a_required_preset_cannot_be_removed_later() -> None:
    async with open_project(requirePreset={}) as api:
        await create_workspace(api)
        with pytest.raises(Forbidden, match=r"the change removes spec\.presetRef"):
            await update_workspace(api, templateRef={"name": "t"})
        await update_workspace(api, presetRef={"name": "shop"}, displayName="still from the preset")


@pytest.mark.parametrize(
    ("allowed", "choice"), [(["shop", "bar"], "allowed here: shop, bar"), ([], "the project allows no preset at all")]
)
async def test_the_refusal_names_the_presets_that_the_project_allows(allowed: list[str], choice: str) -> None:
    templates = [{"kind": PRESET, "name": each} for each in allowed] + [{"kind": TEMPLATE, "name": "t"}]
    async with open_project(requirePreset={}, allowedTemplates=templates) as api:
        with pytest.raises(Forbidden, match=rf"name one \({choice}\) in spec\.presetRef\.name"):
            await create_without_preset(api)


async def test_a_preset_of_the_wrong_type_is_left_to_the_schema() -> None:
    async with open_project(requirePreset={}) as api:
        with pytest.raises(Invalid, match=r"spec\.presetRef"):
            await create_workspace(api, presetRef="shop")
