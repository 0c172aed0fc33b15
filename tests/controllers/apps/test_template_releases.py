"""The charts and apps of the templates of spaces and virtual clusters, with a fake helm."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.helm.chart import Release
from fairlead.controllers.helm.deploy import ReleaseRunner
from fairlead.controllers.helm.slots import HelmSlots
from fairlead.controllers.instances import spaces
from fairlead.controllers.instances.remote_errors import ERROR, InstanceError
from fairlead.controllers.instances.spaces import RESYNC_SECONDS
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.upstream.access import ClusterEndpoint
from tests.controllers.apps.app_fixture import ReleaseHelm, access, app_spec, helm
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_space_controller, build_virtual_cluster_controller
from tests.harness.registry import RegistryFixture
from tests.harness.remote import (
    INSTANCE_CONFIG,
    TRUSTED,
    FakeAccess,
    condition_message,
    condition_status,
    create_cluster,
)

__all__ = ["access", "helm"]
SPACE = "SpaceInstance"
CHART = {"name": "redis", "repoURL": "https://charts.example", "version": "1.0.0", "values": "a: 1\n"}
APPS_SYNCED = "AppsSynced"


@pytest.fixture
async def server(api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm) -> AsyncIterator[RegistryFixture]:
    controllers = InstanceTemplateController(api.registry, INSTANCE_CONFIG), build_space_controller(api, access, helm)
    async with running_controllers(api, *controllers):
        await create_cluster(api)
        await api.create("App", "web", spec=app_spec(access=[{"users": ["ada"], "verbs": ["use"]}]))
        yield api


async def create_space(api: RegistryFixture, template: Object, *, trusted: bool = True) -> None:
    meta = TRUSTED if trusted else {"annotations": {"service.sh/trusted": "false"}}
    await api.create("SpaceTemplate", "t", metadata=meta, spec={"template": template})
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "templateRef": {"name": "t", "version": "x.x.x"}}
    await api.create(SPACE, "one", spec=spec)


async def change_template(api: RegistryFixture, template: Object) -> None:
    await api.patch("SpaceTemplate", "t", lambda each: each["spec"].update(template=template))


async def wait_for_condition(api: RegistryFixture, status: str, reason: str) -> str:
    await eventually(lambda: condition_status(api, SPACE, APPS_SYNCED) == (status, reason))
    return condition_message(api, SPACE, APPS_SYNCED)


def states(api: RegistryFixture, part: str) -> list[tuple[Any, Any]]:
    found = get_path(api.get(SPACE, "one"), f"status.spaceObjects.{part}") or ()
    return [(each["release"], each["status"]) for each in found]


async def test_charts_and_apps_are_deployed_upgraded_and_uninstalled(
    server: RegistryFixture, helm: ReleaseHelm
) -> None:
    app = {"name": "web", "parameters": "size: 5\n", "releaseName": "shop"}
    await create_space(server, {"charts": [CHART], "apps": [app]})
    await wait_for_condition(server, "True", "Synced")
    assert [(each.name, each.namespace, each.values) for each in helm.installed] == [
        ("redis", "demo-one", "a: 1\n"),
        ("shop", "demo-one", "size: 5\ntoken: null\n"),
    ]
    assert (states(server, "charts"), states(server, "apps")) == ([("redis", "Deployed")], [("shop", "Deployed")])
    await eventually(lambda: get_path(server.get(SPACE, "one"), "status.phase") == "Ready")
    await change_template(server, {"charts": [{**CHART, "values": "a: 2\n"}]})
    await eventually(lambda: [each.values for each in helm.installed[2:]] == ["a: 2\n"])
    await eventually(lambda: [each.name for each in helm.uninstalled] == ["shop"])
    await eventually(lambda: states(server, "apps") == [])


async def test_releases_in_a_space_have_permissions_in_its_namespace_only(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await create_space(server, {"charts": [CHART]})
    await wait_for_condition(server, "True", "Synced")
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/demo-one/rolebindings/service.sh:charts"
    assert access.kube.objects[path]["subjects"][0]["name"] == helm.installed[0].impersonate_user
    assert helm.installed[0].impersonate_user == "service:deployer:demo-one:apps"


async def test_each_entry_that_fails_is_named_and_the_others_are_deployed(
    server: RegistryFixture, helm: ReleaseHelm
) -> None:
    helm.failures.add("broken")
    apps = [{"name": "missing"}, {"name": "web", "namespace": "elsewhere"}]
    await create_space(server, {"charts": [{**CHART, "releaseName": "broken"}, CHART], "apps": apps})
    message = await wait_for_condition(server, "False", "AppNotFound")
    assert 'chart "redis": a: 1 is not good' in message
    assert 'app "missing": there is no app "missing"' in message
    assert 'app "web": it can only be deployed to namespace "demo-one"' in message
    assert states(server, "charts") == [("broken", "Failed"), ("redis", "Deployed")]
    await eventually(lambda: get_path(server.get(SPACE, "one"), "status.phase") == "Failed")
    helm.failures.clear()
    await change_template(server, {"charts": [{**CHART, "releaseName": "broken"}, CHART]})
    await wait_for_condition(server, "True", "Synced")
    await eventually(lambda: get_path(server.get(SPACE, "one"), "status.phase") == "Ready")


async def test_an_untrusted_template_deploys_only_what_its_owner_may_use(
    server: RegistryFixture, helm: ReleaseHelm
) -> None:
    await server.create("App", "secret", spec=app_spec())
    elsewhere = {**CHART, "repoURL": "https://elsewhere.example"}
    template = {"charts": [elsewhere], "apps": [{"name": "web"}, {"name": "secret"}]}
    await create_space(server, template, trusted=False)
    message = await wait_for_condition(server, "False", "RepositoryNotAllowed")
    assert 'app "secret": the owner of this may not use the app' in message
    assert [(each.name, each.impersonate_user) for each in helm.installed] == [("web", "service:deployer:demo-one")]


async def test_a_space_is_not_ready_before_its_charts_are_deployed(server: RegistryFixture, helm: ReleaseHelm) -> None:
    phases: list[Any] = []

    async def record_phase(release: Release, endpoint: ClusterEndpoint, *, forces_conflicts: bool = False) -> None:
        phases.append(get_path(server.get(SPACE, "one"), "status.phase"))
        await install(release, endpoint)

    install = helm.install
    helm.install = record_phase  # type: ignore[method-assign]
    await create_space(server, {"charts": [CHART]})
    await wait_for_condition(server, "True", "Synced")
    assert phases == ["Pending"]


async def test_a_deleted_namespace_gets_its_charts_again(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    limits = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "limits"}}
    await create_space(server, {"charts": [CHART], "apps": [{"name": "web"}], "objects": json.dumps(limits)})
    await wait_for_condition(server, "True", "Synced")
    assert [each.name for each in helm.installed] == ["redis", "web"]
    # The first try after the creation of the namespace fails before anything is deployed.
    access.kube.failing_paths["/configmaps/limits"] = 422
    access.kube.handle_request("DELETE", "/api/v1/namespaces/demo-one")
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced")[0] == "False")
    assert "/api/v1/namespaces/demo-one" in access.kube.objects
    assert states(server, "charts") == states(server, "apps") == []
    access.kube.failing_paths.clear()
    await eventually(lambda: [each.name for each in helm.installed[2:]] == ["redis", "web"])
    await wait_for_condition(server, "True", "Synced")
    assert (states(server, "charts"), states(server, "apps")) == ([("redis", "Deployed")], [("web", "Deployed")])


async def test_an_upgrade_that_waits_for_a_slot_keeps_the_record_of_what_is_deployed(
    server: RegistryFixture, helm: ReleaseHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_space(server, {"charts": [CHART]})
    await wait_for_condition(server, "True", "Synced")
    with monkeypatch.context() as patched:
        patched.setattr(HelmSlots, "_may_run", lambda slots, project: False)
        await change_template(server, {"charts": [{**CHART, "values": "a: 2\n"}, {**CHART, "releaseName": "new"}]})
        await wait_for_condition(server, "False", "WaitingForHelmSlot")
        assert states(server, "charts") == [("redis", "Deployed")]
        # Back to what is deployed: there is nothing to do.
        await change_template(server, {"charts": [CHART]})
        await wait_for_condition(server, "True", "Synced")
    assert len(helm.installed) == 1


async def test_charts_that_may_not_be_deployed_are_retried_after_a_minute(
    server: RegistryFixture, helm: ReleaseHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise InstanceError("OwnerNotFound", "there is no such user", ERROR)

    with monkeypatch.context() as patched:
        patched.setattr(spaces, "check_owner", refuse)
        await create_space(server, {"charts": [CHART]}, trusted=False)
        await wait_for_condition(server, "False", "OwnerNotFound")
    await asyncio.sleep(RESYNC_SECONDS * 1.5)
    assert [each.name for each in helm.installed] == ["redis"]


async def test_failed_runs_are_forgotten_with_the_space(
    server: RegistryFixture, helm: ReleaseHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[str] = []
    forget = ReleaseRunner.forget

    def record_uid(runner: ReleaseRunner, uid: str) -> None:
        forgotten.append(uid)
        forget(runner, uid)

    monkeypatch.setattr(ReleaseRunner, "forget", record_uid)
    helm.failures.add("redis")
    await create_space(server, {"charts": [CHART]})
    await wait_for_condition(server, "False", "HelmFailed")
    uid = get_path(server.get(SPACE, "one"), "metadata.uid")
    assert forgotten == []
    await server.delete(SPACE, "one")
    await eventually(lambda: server.get(SPACE, "one") is None)
    await eventually(lambda: forgotten == [uid])


async def test_a_change_of_an_app_is_deployed(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await create_space(server, {"apps": [{"name": "web"}]})
    await wait_for_condition(server, "True", "Synced")
    await server.patch("App", "web", lambda each: each["spec"]["config"].update(values="new: 1\n"))
    await eventually(lambda: helm.installed[-1].values == "new: 1\n", seconds=10 * RESYNC_SECONDS)


VC = "VirtualClusterInstance"


async def test_charts_and_apps_of_a_virtual_cluster_are_deployed_inside_and_beside_it(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    templates = InstanceTemplateController(api.registry, INSTANCE_CONFIG)
    async with running_controllers(api, templates, build_virtual_cluster_controller(api, access, helm)):
        await create_cluster(api)
        access.virtual_down = None
        await api.create("App", "web", spec=app_spec(defaultNamespace="shops"))
        template = {
            "helmRelease": {"chart": {"name": "vc", "repo": "https://charts.example"}},
            "charts": [CHART],
            "apps": [{"name": "web"}, {"name": "missing"}],
            "spaceTemplate": {"charts": [{**CHART, "releaseName": "beside"}]},
        }
        await api.create("VirtualClusterTemplate", "t", metadata=TRUSTED, spec={"template": template})
        spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "templateRef": {"name": "t"}}
        await api.create(VC, "one", spec=spec)
        inner = "VirtualClusterAppsAndObjectsSynced"
        await eventually(lambda: condition_status(api, VC, inner) == ("False", "AppNotFound"))
        assert condition_status(api, VC, APPS_SYNCED) == ("True", "Synced")
        assert [(each.name, each.namespace) for each in helm.installed] == [
            *(("one", "demo-v-one"), ("beside", "demo-v-one")),
            *(("redis", "default"), ("web", "shops")),
        ]
        assert "/api/v1/namespaces/shops" in access.virtual.objects
        assert any("v1.redis.v1" in path for path in access.virtual.objects)
        recorded = get_path(api.get(VC, "one"), "status.virtualClusterObjects")
        assert [each["release"] for each in (*recorded["charts"], *recorded["apps"])] == ["redis", "web"]
        helm.installed.clear()
        access.kube.handle_request("DELETE", "/api/v1/namespaces/demo-v-one")
        await eventually(lambda: [each.name for each in helm.installed] == ["one", "beside", "redis", "web"])
        await api.delete(VC, "one")
        await eventually(lambda: api.get(VC, "one") is None)
        assert [each.name for each in helm.uninstalled] == ["beside", "one"]
