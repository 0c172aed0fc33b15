"""Tests of confined charts: the chart of a virtual cluster has the rights of the author of its template."""

import pytest

from fairlead.core.objects import Object
from fairlead.registry.write_options import server_write_options
from tests.controllers.instances.helm_fixture import (
    CHART,
    RELEASE,
    VC,
    FakeHelm,
    access,
    create_from_template,
    create_virtual_cluster,
    helm,
    server,
    wait_until_ready,
)
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import TRUSTED, FakeAccess, condition_message, condition_status, create_cluster

__all__ = ["access", "helm", "server"]


@pytest.mark.parametrize(("trusted", "expected_user"), [("true", ""), ("false", "service:deployer:demo-v-one")])
async def test_the_chart_of_a_template_has_the_rights_of_its_author(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm, trusted: str, expected_user: str
) -> None:
    await create_cluster(server)
    metadata = {"annotations": {"service.sh/trusted": trusted}}
    await server.create("VirtualClusterTemplate", "t", metadata=metadata, spec={"template": RELEASE})
    await create_virtual_cluster(server, templateRef={"name": "t"})
    await wait_until_ready(server, access)
    assert helm.installed[0].impersonate_user == expected_user


async def test_a_confined_release_stays_confined(server: RegistryFixture, access: FakeAccess, helm: FakeHelm) -> None:
    """Its owner may have written the Secrets of helm for it, and helm deletes the objects that they name."""
    await create_cluster(server)
    metadata = {"annotations": {"service.sh/trusted": "false"}}
    await server.create("VirtualClusterTemplate", "t", metadata=metadata, spec={"template": RELEASE})
    await create_virtual_cluster(server, templateRef={"name": "t", "version": "x.x.x"})
    await wait_until_ready(server, access)
    changed_template = {"helmRelease": {"chart": CHART, "values": "c: d"}}

    def trust_and_change(obj: Object) -> None:
        obj["metadata"].update(TRUSTED)
        obj["spec"]["template"] = changed_template

    await server.patch("VirtualClusterTemplate", "t", trust_and_change)
    await eventually(lambda: len(helm.installed) == 2)
    assert helm.installed[1].impersonate_user == "service:deployer:demo-v-one"


async def test_a_release_stays_confined_if_its_chart_could_not_be_deployed(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    """The objects of its template exist anyway, and a Secret among them may look like a release of helm."""
    await create_cluster(server)
    metadata = {"annotations": {"service.sh/trusted": "false"}}
    foreign_template = {"helmRelease": {"chart": {**CHART, "repo": "https://elsewhere.example"}}}
    await server.create("VirtualClusterTemplate", "mine", metadata=metadata, spec={"template": foreign_template})
    await server.create("VirtualClusterTemplate", "theirs", metadata=TRUSTED, spec={"template": RELEASE})
    await create_virtual_cluster(server, templateRef={"name": "mine"})
    await eventually(
        lambda: condition_status(server, VC, "VirtualClusterDeployed") == ("False", "RepositoryNotAllowed")
    )
    await server.patch(VC, "one", lambda obj: obj["spec"].update(templateRef={"name": "theirs"}))
    await eventually(lambda: len(helm.installed) == 1)
    assert helm.installed[0].impersonate_user == "service:deployer:demo-v-one"


async def test_a_chart_of_a_missing_owner_is_not_deployed(server: RegistryFixture, helm: FakeHelm) -> None:
    await create_cluster(server)
    await create_virtual_cluster(server, owner={"user": "gone"}, template=RELEASE)
    await eventually(lambda: condition_status(server, VC, "VirtualClusterDeployed") == ("False", "OwnerNotFound"))
    assert helm.installed == []


async def test_a_template_without_a_trust_annotation_deploys_nothing_new(
    server: RegistryFixture, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await server.create("VirtualClusterTemplate", "t", spec={"template": RELEASE})
    await create_virtual_cluster(server, templateRef={"name": "t"})
    await eventually(lambda: condition_status(server, VC, "SpaceSynced") == ("False", "TemplateNotTrusted"))
    assert helm.installed == []


async def test_an_existing_release_of_a_template_without_a_trust_annotation_is_kept(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await create_from_template(server)
    await wait_until_ready(server, access)

    def remove_trust_from_status(obj: Object) -> None:
        for field in ("templateTrust", "templateApplied"):
            obj["status"].pop(field)

    await server.patch(VC, "one", remove_trust_from_status, server_write_options("status"))
    await server.patch("VirtualClusterTemplate", "t", lambda obj: obj["metadata"].pop("annotations"))
    await eventually(
        lambda: "kubectl annotate virtualclustertemplate t" in condition_message(server, VC, "SpaceSynced")
    )
    await wait_until_ready(server, access)
    assert len(helm.installed) == 1
    changed_template = {"helmRelease": {"chart": CHART, "values": "c: d"}}
    await server.patch("VirtualClusterTemplate", "t", lambda obj: obj["spec"].update(template=changed_template))
    await server.patch(VC, "one", lambda obj: obj["spec"]["templateRef"].update(syncOnce=True))
    await eventually(lambda: condition_status(server, VC, "VirtualClusterDeployed") == ("False", "TemplateNotTrusted"))
    assert len(helm.installed) == 1
