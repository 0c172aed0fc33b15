"""Whose rights the chart of a virtual cluster has: those of whoever stands for its template."""

import pytest

from fairlead.core.objects import Object
from fairlead.registry.write_options import server_write_options
from tests.controllers.instances.helm_fixture import (
    CHART,
    RELEASE,
    VC,
    FakeHelm,
    from_template,
    helm,
    reach,
    ready,
    virtual_cluster,
    working,
)
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import TRUSTED, FakeAccess, condition_message, condition_status, create_cluster

__all__ = ["helm", "reach", "working"]


@pytest.mark.parametrize(("mark", "confined"), [("true", ""), ("false", "service:deployer:demo-v-one")])
async def test_the_chart_of_a_template_has_its_writers_rights(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm, mark: str, confined: str
) -> None:
    await create_cluster(working)
    described = {"annotations": {"service.sh/trusted": mark}}
    await working.create("VirtualClusterTemplate", "t", metadata=described, spec={"template": RELEASE})
    await virtual_cluster(working, templateRef={"name": "t"})
    await ready(working, reach)
    assert helm.installed[0].impersonate_user == confined


async def test_a_release_that_was_confined_once_stays_confined(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    """Its owner may have written what helm has noted about it, and helm deletes what that names."""
    await create_cluster(working)
    described = {"annotations": {"service.sh/trusted": "false"}}
    await working.create("VirtualClusterTemplate", "t", metadata=described, spec={"template": RELEASE})
    await virtual_cluster(working, templateRef={"name": "t", "version": "x.x.x"})
    await ready(working, reach)
    changed = {"helmRelease": {"chart": CHART, "values": "c: d"}}

    def vouch(each: Object) -> None:
        each["metadata"].update(TRUSTED)
        each["spec"]["template"] = changed

    await working.patch("VirtualClusterTemplate", "t", vouch)
    await eventually(lambda: len(helm.installed) == 2)
    assert helm.installed[1].impersonate_user == "service:deployer:demo-v-one"


async def test_a_release_stays_confined_whose_chart_could_not_be_deployed(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    """The objects of its template are there all the same, and a Secret among them may pass for a release of helm."""
    await create_cluster(working)
    described = {"annotations": {"service.sh/trusted": "false"}}
    elsewhere = {"helmRelease": {"chart": {**CHART, "repo": "https://elsewhere.example"}}}
    await working.create("VirtualClusterTemplate", "mine", metadata=described, spec={"template": elsewhere})
    await working.create("VirtualClusterTemplate", "theirs", metadata=TRUSTED, spec={"template": RELEASE})
    await virtual_cluster(working, templateRef={"name": "mine"})
    await eventually(
        lambda: condition_status(working, VC, "VirtualClusterDeployed") == ("False", "RepositoryNotAllowed")
    )
    await working.patch(VC, "one", lambda each: each["spec"].update(templateRef={"name": "theirs"}))
    await eventually(lambda: len(helm.installed) == 1)
    assert helm.installed[0].impersonate_user == "service:deployer:demo-v-one"


async def test_a_chart_of_nobody_in_force_is_not_deployed(working: RegistryFixture, helm: FakeHelm) -> None:
    await create_cluster(working)
    await virtual_cluster(working, owner={"user": "gone"}, template=RELEASE)
    await eventually(lambda: condition_status(working, VC, "VirtualClusterDeployed") == ("False", "OwnerNotFound"))
    assert helm.installed == []


async def test_a_template_without_a_mark_deploys_nothing_new(working: RegistryFixture, helm: FakeHelm) -> None:
    await create_cluster(working)
    await working.create("VirtualClusterTemplate", "t", spec={"template": RELEASE})
    await virtual_cluster(working, templateRef={"name": "t"})
    await eventually(lambda: condition_status(working, VC, "SpaceSynced") == ("False", "TemplateNotTrusted"))
    assert helm.installed == []


async def test_what_was_deployed_before_there_were_marks_goes_on(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(working)
    await from_template(working)
    await ready(working, reach)

    def forget(each: Object) -> None:
        for field in ("templateTrust", "templateApplied"):
            each["status"].pop(field)

    await working.patch(VC, "one", forget, server_write_options("status"))
    await working.patch("VirtualClusterTemplate", "t", lambda each: each["metadata"].pop("annotations"))
    await eventually(
        lambda: "kubectl annotate virtualclustertemplate t" in condition_message(working, VC, "SpaceSynced")
    )
    await ready(working, reach)
    assert len(helm.installed) == 1
    changed = {"helmRelease": {"chart": CHART, "values": "c: d"}}
    await working.patch("VirtualClusterTemplate", "t", lambda each: each["spec"].update(template=changed))
    await working.patch(VC, "one", lambda each: each["spec"]["templateRef"].update(syncOnce=True))
    await eventually(lambda: condition_status(working, VC, "VirtualClusterDeployed") == ("False", "TemplateNotTrusted"))
    assert len(helm.installed) == 1
