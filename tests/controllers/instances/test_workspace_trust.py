"""What runners get of a template: permissions and placement only while administrators trust it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.registry.conditions import find_condition
from fairlead.registry.write_options import server_write_options
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG, PROJECT, condition_status

WORKSPACE, TEMPLATE = "DevPodWorkspaceInstance", "DevPodWorkspaceTemplate"
POWERFUL: Object = {"provider": {"name": "kubernetes", "options": {"namespace": {"value": "kube-system"}}}}
HARMLESS: Object = {"provider": {"name": "kubernetes", "options": {"memory": {"value": "1Gi"}}}}
REFUSED, RESOLVED = ("False", "TemplateNotTrusted"), ("True", "Resolved")


@pytest.fixture
async def server(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    """Without admission: as if all objects had been stored before it rejected some."""
    await api.create("Project", PROJECT, spec={})
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        yield api


async def create_template(api: RegistryFixture, trusted: str = "true", **spec: Any) -> None:
    annotations = {"service.sh/trusted": trusted} if trusted else {}
    await api.create(TEMPLATE, "t", spec=spec, metadata={"annotations": annotations})


async def mark_template(api: RegistryFixture, trusted: str, **spec: Any) -> None:
    def edit(each: Object) -> None:
        each["metadata"]["annotations"] = {"service.sh/trusted": trusted}
        each["spec"].update(spec)

    await api.patch(TEMPLATE, "t", edit)


async def create_workspace(api: RegistryFixture, **spec: Any) -> None:
    await api.create(WORKSPACE, "one", spec=spec)


async def update_workspace(api: RegistryFixture, **spec: Any) -> None:
    def edit(each: Object) -> None:
        each["spec"] = {**each["spec"], **spec}
        for name in [name for name, value in each["spec"].items() if value is None]:
            del each["spec"][name]

    await api.patch(WORKSPACE, "one", edit)


def get_status(api: RegistryFixture) -> Object:
    return (api.get(WORKSPACE, "one") or {}).get("status") or {}


async def expect(api: RegistryFixture, resolved: tuple[str, str], trust: str | None, namespace: str | None) -> None:
    def is_so() -> bool:
        status = get_status(api)
        found = get_path(status, "instance.provider.options.namespace.value")
        is_resolved = condition_status(api, WORKSPACE, "TemplateResolved") == resolved
        return is_resolved and (status.get("templateTrust"), found) == (trust, namespace)

    await eventually(is_so)
    assert (get_status(api).get("instance") is None) == (resolved == REFUSED)


async def test_a_trusted_template_reaches_the_runner_with_its_trust(server: RegistryFixture) -> None:
    await create_template(server, template=POWERFUL)
    await create_workspace(server, templateRef={"name": "t"})
    await expect(server, RESOLVED, "Trusted", "kube-system")


@pytest.mark.parametrize("mark", ["false", ""])
async def test_a_powerful_template_without_trust_does_not_reach_the_runner(server: RegistryFixture, mark: str) -> None:
    await create_template(server, mark, template=POWERFUL)
    await create_workspace(server, templateRef={"name": "t"})
    await expect(server, REFUSED, None, None)
    message = (find_condition(get_status(server), "TemplateResolved") or {})["message"]
    assert "provider.options[namespace] counts only in a template that administrators trust" in message
    assert 'have an administrator correct the template "t"' in message
    await mark_template(server, "true")
    await expect(server, RESOLVED, "Trusted", "kube-system")


async def test_an_inline_definition_that_is_powerful_does_not_reach_the_runner(server: RegistryFixture) -> None:
    await create_workspace(server, template=POWERFUL)
    await expect(server, REFUSED, None, None)
    await update_workspace(server, template=HARMLESS)
    await expect(server, RESOLVED, "Confined", None)


async def test_a_value_that_becomes_powerful_with_a_parameter_does_not_reach_the_runner(
    server: RegistryFixture,
) -> None:
    inline = {"provider": {"name": "x", "options": {"namespace": {"value": "{{ parameters.ns }}"}}}}
    await create_workspace(server, template=inline, parameters="ns: ''")
    await expect(server, REFUSED, None, None)
    await update_workspace(server, parameters="ns: kube-system")
    await expect(server, REFUSED, None, None)


async def test_what_was_rendered_before_trust_was_recorded_is_taken_from_the_runner(api: RegistryFixture) -> None:
    await api.create("Project", PROJECT, spec={})
    await create_template(api, "", template=HARMLESS)
    await create_workspace(api, templateRef={"name": "t"})
    resolved = {"type": "TemplateResolved", "status": "True", "reason": "Resolved"}
    stored = {
        "instance": POWERFUL,
        "templateHash": "of-an-older-content",
        "conditions": [{**resolved, "lastTransitionTime": "2026-01-02T03:04:05Z"}],
    }

    def edit(current: Object) -> Object:
        return {**current, "status": stored}

    await api.resource(WORKSPACE).modify(NAMESPACE, "one", edit, server_write_options("status"))
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        await expect(api, RESOLVED, "Unmarked", None)  # the content of today, which is harmless


async def test_a_template_that_loses_its_trust_loses_its_power(server: RegistryFixture) -> None:
    await create_template(server, template=POWERFUL)
    await create_workspace(server, templateRef={"name": "t"})
    await expect(server, RESOLVED, "Trusted", "kube-system")
    await mark_template(server, "false")
    await expect(server, REFUSED, None, None)


async def test_an_edit_of_a_version_by_another_user_reaches_no_runner(server: RegistryFixture) -> None:
    await create_template(server, versions=[{"version": "1.0.0", "template": HARMLESS}])
    await create_workspace(server, templateRef={"name": "t", "version": "1.x.x"})
    await expect(server, RESOLVED, "Trusted", None)
    await mark_template(server, "false", versions=[{"version": "1.1.0", "template": POWERFUL}])
    await expect(server, REFUSED, None, None)


async def test_an_unversioned_template_that_another_user_edits_stays_as_it_was_applied(server: RegistryFixture) -> None:
    await create_template(server, template=POWERFUL)
    await create_workspace(server, templateRef={"name": "t"})
    await expect(server, RESOLVED, "Trusted", "kube-system")
    other = {"provider": {"name": "kubernetes", "options": {"namespace": {"value": "other"}}}}
    await mark_template(server, "false", template=other)
    await eventually(
        lambda: condition_status(server, WORKSPACE, "TemplateSynced") == ("False", "TemplateChangesAvailable")
    )
    await expect(server, RESOLVED, "Trusted", "kube-system")
    await update_workspace(server, templateRef={"name": "t", "syncOnce": True})
    await expect(server, REFUSED, None, None)


async def test_a_workspace_that_changes_from_a_trusted_template_to_an_own_definition_loses_the_trust(
    server: RegistryFixture,
) -> None:
    await create_template(server, template=POWERFUL)
    await create_workspace(server, templateRef={"name": "t"})
    await expect(server, RESOLVED, "Trusted", "kube-system")
    await update_workspace(server, templateRef=None, template=POWERFUL)
    await expect(server, REFUSED, None, None)
    await update_workspace(server, template=HARMLESS)
    await expect(server, RESOLVED, "Confined", None)


async def test_a_free_parameter_of_a_trusted_template_does_not_place_a_workspace(server: RegistryFixture) -> None:
    definition = {"provider": {"name": "x", "options": {"namespace": {"value": "{{ parameters.ns }}"}}}}
    await create_template(server, template=definition, parameters=[{"variable": "ns"}])
    await create_workspace(server, templateRef={"name": "t"}, parameters="ns: kube-system")
    await expect(server, REFUSED, None, None)
    await mark_template(server, "true", parameters=[{"variable": "ns", "options": ["kube-system"]}])
    await expect(server, RESOLVED, "Trusted", "kube-system")


async def test_a_secret_does_not_decide_about_permissions(server: RegistryFixture) -> None:
    reference = {"valueFrom": {"projectSecretRef": {"name": "s", "key": "k"}}}
    await create_template(server, template={"provider": {"name": "x", "options": {"allow": reference}}})
    await create_workspace(server, templateRef={"name": "t"})
    await expect(server, REFUSED, None, None)
