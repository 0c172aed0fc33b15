"""Permissions and placement of workspaces come from templates that administrators trust."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission.templates import mark_trusted_templates
from fairlead.admission.workspace_templates import restrict_workspace_templates, warn_about_workspace_templates
from fairlead.core.errors import Invalid
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions, server_write_options
from tests.harness.registry import ADA, RegistryFixture, open_registry

ROOT = User("root", ("system:masters",))
WORKSPACE, TEMPLATE = "DevPodWorkspaceInstance", "DevPodWorkspaceTemplate"
POWERFUL: dict[str, Object] = {
    "allow": {"value": "privileged"},
    "cluster": {"value": "prod"},
    "namespace": {"value": "kube-system"},
    "cloneImage": {"value": "evil"},
    "imagePullPolicy": {"value": "Never"},
    "imagePullSecret": {"value": "registry"},
    "storageClass": {"value": "fast"},
    "accessMode": {"value": "ReadWriteMany"},
    "runtimeClass": {"value": "none"},
    "nodeSelector": {"value": "node-role.kubernetes.io/control-plane="},
    "networkPolicy": {"value": "false"},
    "SOME_OTHER": {"value": "x"},
    "image": {"valueFrom": {"projectSecretRef": {"name": "s", "key": "k"}}},
    "memory": {"valueFrom": {"sharedSecretRef": {"namespace": "n", "name": "s", "key": "k"}}},
}
HARMLESS: Object = {
    "image": {"value": "debian:12"},
    "memory": {"value": "1Gi"},
    "cpus": {"value": "{{ parameters.cpus }}"},
    "storage": {"value": "1Gi"},
    "user": {"value": "1000"},
    "allow": {"value": ""},
    "namespace": {},
}


def define(**options: Any) -> Object:
    return {"provider": {"name": "kubernetes", "options": options}}


@pytest.fixture
async def api_with_rules() -> AsyncIterator[RegistryFixture]:
    rules = (restrict_workspace_templates(GROUP), mark_trusted_templates(GROUP), warn_about_workspace_templates(GROUP))
    async with open_registry(rules=rules) as api:
        yield api


async def create_workspace(api: RegistryFixture, user: User = ADA, **spec: Any) -> Object:
    return await api.submit(WORKSPACE, api.build_object(WORKSPACE, "w", spec=spec), WriteOptions(user))


async def create_template(api: RegistryFixture, user: User, warnings: list[str] | None = None, **spec: Any) -> Object:
    options = WriteOptions(user, warnings=[] if warnings is None else warnings)
    return await api.submit(TEMPLATE, api.build_object(TEMPLATE, "t", spec=spec), options)


@pytest.mark.parametrize("user", [ADA, ROOT], ids=["user", "administrator"])
@pytest.mark.parametrize("option", POWERFUL)
async def test_an_inline_definition_has_no_permissions_and_chooses_no_place(
    api_with_rules: RegistryFixture, user: User, option: str
) -> None:
    with pytest.raises(Invalid) as raised:
        await create_workspace(api_with_rules, user, template=define(**{option: POWERFUL[option]}))
    message = raised.value.message
    assert f"spec.template.provider.options[{option}]: Forbidden: counts only in a template that admin" in message
    assert "name a template of an administrator in spec.templateRef" in message


async def test_an_inline_definition_with_nothing_powerful_is_accepted(api_with_rules: RegistryFixture) -> None:
    await create_workspace(api_with_rules, template=define(**HARMLESS), parameters="cpus: 2")


async def test_all_powerful_options_are_named_at_once(api_with_rules: RegistryFixture) -> None:
    with pytest.raises(Invalid) as raised:
        await create_workspace(api_with_rules, template=define(**POWERFUL))
    assert all(f"provider.options[{option}]" in raised.value.message for option in POWERFUL)


async def test_a_definition_that_becomes_powerful_later_is_rejected(api_with_rules: RegistryFixture) -> None:
    await create_workspace(api_with_rules, template=define(**HARMLESS))
    for edit in (
        {"template": define(allow={"value": "privileged"})},
        {"template": define(allow={"value": "{{ parameters.x }}"}), "parameters": ""},
    ):
        with pytest.raises(Invalid, match="allow"):
            await api_with_rules.patch(WORKSPACE, "w", lambda each, e=edit: each["spec"].update(e), WriteOptions(ADA))  # type: ignore[misc]


async def test_a_stored_workspace_can_be_updated_but_not_its_powerful_definition(
    api_with_rules: RegistryFixture,
) -> None:
    body = api_with_rules.build_object(WORKSPACE, "w", spec={"template": define(allow={"value": "mounts"})})
    await api_with_rules.submit(WORKSPACE, body, server_write_options())
    await api_with_rules.patch(WORKSPACE, "w", lambda each: each["spec"].update(displayName="x"), WriteOptions(ADA))
    with pytest.raises(Invalid, match="cluster"):
        await api_with_rules.patch(
            WORKSPACE, "w", lambda each: each["spec"].update(template=define(cluster={"value": "x"})), WriteOptions(ADA)
        )
    await api_with_rules.patch(WORKSPACE, "w", lambda each: each["spec"].update(template={}), WriteOptions(ADA))


@pytest.mark.parametrize("version", ["", "1.0.0"])
@pytest.mark.parametrize("option", POWERFUL)
async def test_only_an_administrators_template_gives_power(
    api_with_rules: RegistryFixture, option: str, version: str
) -> None:
    definition = define(**{option: POWERFUL[option]})
    spec = {"versions": [{"version": version, "template": definition}]} if version else {"template": definition}
    warnings: list[str] = []
    await create_template(api_with_rules, ADA, warnings, **spec)
    assert any(f"provider.options[{option}] counts only" in each for each in warnings)
    reference = {"name": "t", "version": version}
    with pytest.raises(Invalid, match='have an administrator correct the template "t"'):
        await create_workspace(api_with_rules, templateRef=reference)
    await api_with_rules.patch(
        TEMPLATE,
        "t",
        lambda each: each["metadata"].update(annotations={"service.sh/trusted": "true"}),
        WriteOptions(ROOT),
    )
    if option == "memory":  # a limit that others write
        with pytest.raises(Invalid, match="must not come from a secret"):
            await create_workspace(api_with_rules, templateRef=reference)
    else:
        await create_workspace(api_with_rules, templateRef=reference)


async def test_a_template_from_before_the_annotation_gives_no_power(api_with_rules: RegistryFixture) -> None:
    body = api_with_rules.build_object(TEMPLATE, "t", spec={"template": define(allow={"value": "mounts"})})
    await api_with_rules.submit(TEMPLATE, body, server_write_options())
    with pytest.raises(Invalid, match=r"service\.sh/trusted=true"):
        await create_workspace(api_with_rules, templateRef={"name": "t"})


async def test_a_workspace_cannot_change_to_a_template_without_trust(api_with_rules: RegistryFixture) -> None:
    await create_template(api_with_rules, ADA, template=define(allow={"value": "mounts"}))
    await create_workspace(api_with_rules, template=define(**HARMLESS))

    def change(each: Object) -> None:
        del each["spec"]["template"]
        each["spec"]["templateRef"] = {"name": "t"}

    with pytest.raises(Invalid, match=r"spec\.templateRef\.name"):
        await api_with_rules.patch(WORKSPACE, "w", change, WriteOptions(ADA))


FREE: list[Object] = [
    {"variable": "x"},
    {"variable": "x", "validation": "^[a-z]+$"},
    {"variable": "x", "options": ["a"], "validation": ".*"},
    {"variable": "x", "options": ["a"], "invalidation": "b"},
    {"variable": "x", "options": ["1"], "type": "number"},
    {"variable": "x", "type": "password"},
]
FIXED: list[Object] = [{"variable": "x", "options": ["a", "b"]}, {"variable": "x", "type": "boolean"}]


@pytest.mark.parametrize("parameter", FREE, ids=str)
@pytest.mark.parametrize("option", ["allow", "namespace", "nodeSelector", "image"])
async def test_a_parameter_without_listed_values_decides_no_permissions_and_no_place(
    api_with_rules: RegistryFixture, option: str, parameter: Object
) -> None:
    definition, warnings = define(**{option: {"value": "a-{{ parameters.x }}"}}), list[str]()
    await create_template(api_with_rules, ROOT, warnings, template=definition, parameters=[parameter])
    assert any("give it `options`" in each for each in warnings)
    with pytest.raises(Invalid, match="uses the parameter x, whose values the template does not restrict"):
        await create_workspace(api_with_rules, templateRef={"name": "t"}, parameters="x: a")


@pytest.mark.parametrize("parameter", FIXED, ids=str)
async def test_a_parameter_with_listed_values_may_decide(api_with_rules: RegistryFixture, parameter: Object) -> None:
    warnings: list[str] = []
    definition = define(namespace={"value": "team-{{ parameters.x }}"})
    await create_template(api_with_rules, ROOT, warnings, template=definition, parameters=[parameter])
    await create_workspace(api_with_rules, templateRef={"name": "t"})
    assert warnings == []


async def test_a_parameter_does_not_choose_the_engine(api_with_rules: RegistryFixture) -> None:
    definition = {"provider": {"name": "{{ parameters.x }}"}}
    await create_template(api_with_rules, ROOT, template=definition, parameters=[{"variable": "x"}])
    with pytest.raises(Invalid, match=r"provider.name uses the parameter x"):
        await create_workspace(api_with_rules, templateRef={"name": "t"})


@pytest.mark.parametrize("clone_image", ["", "{{ parameters.choice }}"])
async def test_the_image_that_clones_is_not_a_free_parameter(api_with_rules: RegistryFixture, clone_image: str) -> None:
    parameters = [{"variable": "x"}, {"variable": "choice", "options": ["git"]}]
    definition = define(image={"value": "{{ parameters.x }}"}, cloneImage={"value": clone_image})
    await create_template(api_with_rules, ROOT, template=definition, parameters=parameters)
    with pytest.raises(Invalid, match=r"provider.options\[image\] uses the parameter x"):
        await create_workspace(api_with_rules, templateRef={"name": "t"})


async def test_an_image_that_clones_nothing_may_be_a_free_parameter(api_with_rules: RegistryFixture) -> None:
    parameters = [{"variable": "x"}]
    image = {"value": "{{ parameters.x }}"}
    versions = [
        {"version": "1.0.0", "template": define(image=image, cloneImage={"value": "git"}), "parameters": parameters},
        {
            "version": "2.0.0",
            "template": {"provider": {"name": "devcontainer", "options": {"image": image}}},
            "parameters": parameters,
        },
    ]
    await create_template(api_with_rules, ROOT, versions=versions)
    for version in ("1.0.0", "2.0.0"):
        await create_workspace(api_with_rules, templateRef={"name": "t", "version": version})
        await api_with_rules.delete(WORKSPACE, "w")


async def test_the_loss_of_trust_says_what_is_lost(api_with_rules: RegistryFixture) -> None:
    await create_template(api_with_rules, ROOT, template=define(allow={"value": "mounts"}))
    warnings: list[str] = []
    await api_with_rules.patch(
        TEMPLATE, "t", lambda each: each["spec"].update(template=define()), WriteOptions(ADA, warnings=warnings)
    )
    assert any("permissions and placement in it do not count any more" in each for each in warnings)
