"""A failed or interrupted upgrade leaves a part of it in the cluster. What is said about it is what the cluster has,
after a retry, a rollback and any other change."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from fairlead.controllers.apps.app_instances import AppInstanceController
from fairlead.controllers.helm import attempts, deployments
from fairlead.controllers.helm.chart import Release
from fairlead.controllers.helm.deploy import ReleaseRunner
from fairlead.controllers.helm.deployments import CHECK_SECONDS, COMPARE_SECONDS
from fairlead.controllers.instances.instance_reconciler import InstanceReconciler
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.registry.write_options import server_write_options
from tests.controllers.apps.app_fixture import (
    APP,
    EXTRA,
    SETTINGS,
    ReleaseHelm,
    access,
    app_spec,
    create_space,
    helm,
    install_app,
    wait_for_reason,
)
from tests.fake_cluster.helm_releases import find_revisions, store_release
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


@pytest.fixture(autouse=True)
def helm_clock(api: RegistryFixture, helm: ReleaseHelm) -> None:
    """Helm runs on the machine of the server, and so has the same clock."""
    helm.now = lambda: api.clock.now().timestamp()


NAMESPACE = "demo-dev"
GOOD, BAD, OTHER = "size: 1\n", "size: 13\nextra: more\n", "size: 2\n"
VALUES = "size: {{ parameters.size }}\nextra: {{ parameters.extra }}\n"
PARAMETERS = [{"variable": "size"}, {"variable": "extra"}]


@asynccontextmanager
async def running_server(api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm) -> AsyncIterator[None]:
    """The controllers, as of a server that has just started: they remember nothing."""
    runner = ReleaseRunner(api.clock, helm)
    controllers = (
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        build_space_controller(api, access, helm),
        AppInstanceController(api.registry, INSTANCE_CONFIG, access, runner, ("https://charts.example",)),
    )
    async with running_controllers(api, *controllers):
        yield


async def deploy_first(api: RegistryFixture) -> None:
    await create_cluster(api)
    spec = app_spec(parameters=PARAMETERS)
    spec["config"]["values"] = VALUES
    await api.create("App", "web", spec=spec)
    await api.create("SpaceTemplate", "plain", metadata=TRUSTED, spec={"template": {}})
    await create_space(api)
    await install_app(api, parameters=GOOD)
    await wait_for_reason(api, "Deployed")


async def set_parameters(api: RegistryFixture, text: str) -> None:
    await api.patch(APP, "one", lambda each: each["spec"].update(parameters=text))


def objects_of(access: FakeAccess) -> dict[str, str]:
    """The values of the objects of the release in the cluster."""
    paths = {"settings": SETTINGS.format(NAMESPACE, "one"), "extra": EXTRA.format(NAMESPACE, "one")}
    found = {name: access.kube.objects.get(path) for name, path in paths.items()}
    return {name: each["data"]["values"] for name, each in found.items() if each is not None}


def newest_state(access: FakeAccess, release: Release) -> str:
    return str(access.kube.objects[find_revisions(access.kube, release)[-1]]["metadata"]["labels"]["status"])


async def refuse_second_object(api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm) -> None:
    """An upgrade whose second object the cluster refuses."""
    async with running_server(api, access, helm):
        await deploy_first(api)
        helm.refused_values = "size: 13"
        await set_parameters(api, BAD)
        await wait_for_reason(api, "HelmFailed")


async def kill_server(api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm) -> None:
    """An upgrade during which the server is killed, and Helm with it."""
    async with running_server(api, access, helm):
        await deploy_first(api)
        helm.hanging_values = "size: 13"
        await set_parameters(api, BAD)
        await eventually(lambda: newest_state(access, helm.installed[-1]) == "pending-upgrade")
        assert get_path(api.get(APP, "one"), "status.lastAttempt.outcome") == "Running"
    helm.hanging_values = ""


async def fail_outside(api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm) -> None:
    """An upgrade of another tool that fails."""
    async with running_server(api, access, helm):
        await deploy_first(api)
    broken = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one-settings"}, "data": {"values": "bad"}}
    access.kube.objects[SETTINGS.format(NAMESPACE, "one")]["data"] = {"values": "bad"}
    store_release(access.kube, helm.installed[-1], "failed", manifest=str(broken).replace("'", '"'))


FAILURES = (refuse_second_object, kill_server, fail_outside)


@pytest.mark.parametrize("fail", FAILURES)
@pytest.mark.parametrize("then", [GOOD, OTHER])
async def test_after_a_failure_the_cluster_has_what_is_said(
    api: RegistryFixture,
    access: FakeAccess,
    helm: ReleaseHelm,
    fail: Callable[[RegistryFixture, FakeAccess, ReleaseHelm], Awaitable[None]],
    then: str,
) -> None:
    """Back to what was deployed before, and to something else."""
    await fail(api, access, helm)
    runs = len(helm.installed)
    async with running_server(api, access, helm):
        await set_parameters(api, then)
        await eventually(lambda: newest_state(access, helm.installed[-1]) == "deployed", seconds=900)
        await wait_for_reason(api, "Deployed")
        wanted = helm.installed[-1].values
        await eventually(lambda: objects_of(access) == {"settings": wanted})
        assert then in wanted
        assert len(helm.installed) > runs
        assert condition_status(api, APP, "Synced") == ("True", "Synced")
        status = (api.get(APP, "one") or {})["status"]
        assert (status["lastAttempt"]["outcome"], status["phase"]) == ("Succeeded", "Ready")
        assert status["lastAttempt"]["hash"] == status["deployHash"] == helm.installed[-1].hash
        runs = len(helm.installed)
        await asyncio.sleep(3 * CHECK_SECONDS)
        assert len(helm.installed) == runs


async def test_a_failed_upgrade_is_retried_until_it_succeeds(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await refuse_second_object(api, access, helm)
    helm.refused_values = ""
    async with running_server(api, access, helm):
        await wait_for_reason(api, "Deployed")
        values = helm.installed[-1].values
        assert "size: 13" in values
        assert objects_of(access) == {"settings": values, "extra": values}


async def test_a_failed_attempt_is_recorded_with_its_reason(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await refuse_second_object(api, access, helm)
    status = (api.get(APP, "one") or {})["status"]
    attempt = status["lastAttempt"]
    assert (attempt["outcome"], attempt["reason"], attempt["generation"]) == ("Failed", "HelmFailed", 2)
    assert status["deployHash"] == ""


async def test_a_foreign_failed_upgrade_is_drift(api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm) -> None:
    async with running_server(api, access, helm):
        await deploy_first(api)
        store_release(access.kube, helm.installed[-1], "failed")
        await eventually(lambda: len(helm.installed) == 2, seconds=2 * CHECK_SECONDS)
        await eventually(lambda: get_path(api.get(APP, "one"), "status.drift.reason") == "ReleaseFailed")
        await wait_for_reason(api, "Deployed")


async def test_helm_does_not_run_if_the_attempt_cannot_be_written(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(reconciler: object, instance: object, **fields: object) -> None:
        raise OSError("the storage does not answer")

    async with running_server(api, access, helm):
        await deploy_first(api)
        with monkeypatch.context() as patched:
            patched.setattr(InstanceReconciler, "record", fail)
            await set_parameters(api, OTHER)
            await asyncio.sleep(60)
            assert len(helm.installed) == 1
        await eventually(lambda: len(helm.installed) == 2, seconds=900)


async def test_a_pending_revision_of_a_server_that_may_still_run_is_kept_until_its_deadline(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployments, "begin_attempt", _begin_elsewhere)
    await kill_server(api, access, helm)
    monkeypatch.undo()
    async with running_server(api, access, helm):
        await set_parameters(api, GOOD)
        await wait_for_reason(api, "ReleasePending")
        assert newest_state(access, helm.installed[-1]) == "pending-upgrade"


def _begin_elsewhere(*arguments: object) -> attempts.Attempt:
    return replace(attempts.begin_attempt(*arguments), holder="another-boot/1/1/1")  # type: ignore[arg-type]


async def test_an_object_that_others_changed_is_deployed_again_and_only_once(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    path = SETTINGS.format(NAMESPACE, "one")

    def change() -> None:
        access.kube.edit_object(path, lambda each: each.update(data={"values": "mine"}))

    async with running_server(api, access, helm):
        await deploy_first(api)
        change()
        await eventually(lambda: helm.forced == 1, seconds=2 * COMPARE_SECONDS)
        await wait_for_reason(api, "Deployed")
        assert objects_of(access) == {"settings": helm.installed[0].values}
        drift = get_path(api.get(APP, "one"), "status.drift")
        assert drift["reason"] == "ObjectsChanged"
        assert 'changed in the cluster: ConfigMap "one-settings"' in drift["message"]
        change()  # another program insists on it
        await asyncio.sleep(3 * COMPARE_SECONDS)
        assert len(helm.installed) == 2
        found = next(each for each in (api.get(APP, "one") or {})["status"]["conditions"] if each["type"] == "Synced")
        assert found["status"] == "True" and "they are left as is" in found["message"]


def refuse_dry_run(access: FakeAccess) -> None:
    """The only object of the release cannot be compared."""
    path = SETTINGS.format(NAMESPACE, "one")
    access.kube.apply_failures[path] = (400, "BadRequest", 'admission webhook "x" does not support dry run')


async def test_a_release_that_cannot_be_compared_after_a_failure_is_no_success(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await refuse_second_object(api, access, helm)
    refuse_dry_run(access)
    async with running_server(api, access, helm):
        await set_parameters(api, GOOD)
        await wait_for_reason(api, "NotCompared")
        assert condition_status(api, APP, "Synced") == ("Unknown", "NotCompared")
        assert "1 of 1 objects were not compared" in condition_message(api, APP, "Synced")
        assert get_path(api.get(APP, "one"), "status.phase") == "Pending"
        assert objects_of(access) == {"settings": helm.installed[-1].values}
    runs = len(helm.installed)
    async with running_server(api, access, helm):  # a new server does not take it for compared
        await asyncio.sleep(3 * CHECK_SECONDS)
        assert condition_status(api, APP, "Synced") == ("Unknown", "NotCompared")
        access.kube.apply_failures.clear()
        await eventually(
            lambda: condition_status(api, APP, "Synced") == ("True", "Synced"), seconds=2 * COMPARE_SECONDS
        )
        assert len(helm.installed) == runs


async def test_a_release_that_was_not_compared_can_be_deployed_anew(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await refuse_second_object(api, access, helm)
    refuse_dry_run(access)
    async with running_server(api, access, helm):
        await set_parameters(api, GOOD)
        await wait_for_reason(api, "NotCompared")
        await set_parameters(api, OTHER)
        await wait_for_reason(api, "Deployed")
        await asyncio.sleep(2 * COMPARE_SECONDS)
        assert condition_status(api, APP, "Synced") == ("True", "Synced")
        assert "1 of 1 objects were not compared" in condition_message(api, APP, "Synced")


async def test_a_release_is_not_repaired_while_the_cluster_cannot_compare_it(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await refuse_second_object(api, access, helm)
    path = SETTINGS.format(NAMESPACE, "one")
    access.kube.apply_failures[path] = (503, "ServiceUnavailable", "try again")
    async with running_server(api, access, helm):
        await set_parameters(api, GOOD)
        await wait_for_reason(api, "ClusterFailing")
        assert get_path(api.get(APP, "one"), "status.lastAttempt.outcome") == "Failed"
        access.kube.apply_failures.clear()
        await eventually(lambda: condition_status(api, APP, "Synced") == ("True", "Synced"), seconds=900)
        assert get_path(api.get(APP, "one"), "status.lastAttempt.outcome") == "Succeeded"


@pytest.mark.parametrize("step", ["find_differences", "delete_leftovers"])
async def test_a_repair_that_takes_too_long_is_an_error(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    await refuse_second_object(api, access, helm)
    async with running_server(api, access, helm):
        with monkeypatch.context() as patched:
            patched.setattr(deployments, step, hang)
            await set_parameters(api, GOOD)
            await eventually(lambda: get_path(api.get(APP, "one"), "status.reason") == "TimedOut", seconds=900)
            assert 'cluster "c" takes too long to' in get_path(api.get(APP, "one"), "status.message")
        await eventually(lambda: condition_status(api, APP, "Synced") == ("True", "Synced"), seconds=900)


async def test_a_comparison_that_fails_does_not_end_a_deployment(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    async with running_server(api, access, helm):
        await deploy_first(api)
        path = SETTINGS.format(NAMESPACE, "one")
        access.kube.apply_failures[path] = (503, "ServiceUnavailable", "try again")
        await asyncio.sleep(COMPARE_SECONDS + 2 * CHECK_SECONDS)
        assert condition_status(api, APP, "Ready") == ("True", "Deployed")
        assert "its objects could not be compared with it: cluster" in condition_message(api, APP, "Synced")
        access.kube.apply_failures.clear()
        await asyncio.sleep(3 * CHECK_SECONDS)
        assert condition_message(api, APP, "Synced") == "the release is as it was deployed"


async def test_a_release_of_former_versions_is_not_deployed_again(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    """Their status has no attempt."""

    def remove_attempt(instance: Object) -> None:
        del instance["status"]["lastAttempt"]

    async with running_server(api, access, helm):
        await deploy_first(api)
    await api.patch(APP, "one", remove_attempt, server_write_options("status"))
    async with running_server(api, access, helm):
        await asyncio.sleep(3 * CHECK_SECONDS)
        assert len(helm.installed) == 1
        assert condition_status(api, APP, "Deployed") == ("True", "Deployed")


CHART = {"name": "redis", "repoURL": "https://charts.example", "version": "1.0.0", "values": GOOD}
VC = "VirtualClusterInstance"


@pytest.mark.parametrize("interrupts", [False, True])
async def test_a_chart_of_a_template_goes_back_after_a_failed_upgrade(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm, interrupts: bool
) -> None:
    controllers = (InstanceTemplateController(api.registry, INSTANCE_CONFIG), build_space_controller(api, access, helm))
    path = SETTINGS.format(NAMESPACE, "redis")

    async def change(values: str) -> None:
        template = {"charts": [{**CHART, "values": values}]}
        await api.patch("SpaceTemplate", "t", lambda each: each["spec"].update(template=template))

    async with running_controllers(api, *controllers):
        await create_cluster(api)
        await api.create("SpaceTemplate", "t", metadata=TRUSTED, spec={"template": {"charts": [CHART]}})
        await create_space(api, template="t")
        if interrupts:
            helm.hanging_values = "size: 13"
        else:
            helm.refused_values = "size: 13"
        reference = {"name": "t", "version": "x.x.x"}
        await api.patch("SpaceInstance", "dev", lambda each: each["spec"].update(templateRef=reference))
        await change("size: 13\n")
        await eventually(lambda: access.kube.objects[path]["data"] == {"values": "size: 13\n"}, seconds=900)
        if not interrupts:
            await eventually(lambda: condition_status(api, "SpaceInstance", "AppsSynced", "dev")[1] == "HelmFailed")
            await asyncio.sleep(2)
            version = get_path(api.get("SpaceInstance", "dev"), "metadata.resourceVersion")
            await asyncio.sleep(30)  # a failed release is not written again and again
            assert get_path(api.get("SpaceInstance", "dev"), "metadata.resourceVersion") == version
    helm.hanging_values = ""
    controllers = (InstanceTemplateController(api.registry, INSTANCE_CONFIG), build_space_controller(api, access, helm))
    async with running_controllers(api, *controllers):
        await change(GOOD)
        await eventually(lambda: access.kube.objects[path]["data"] == {"values": GOOD}, seconds=900)
        await eventually(lambda: condition_status(api, "SpaceInstance", "AppsSynced", "dev")[0] == "True", seconds=900)
        (state,) = get_path(api.get("SpaceInstance", "dev"), "status.spaceObjects.charts")
        assert (state["status"], state["attempt"]["outcome"]) == ("Deployed", "Succeeded")


@pytest.mark.parametrize("interrupts", [False, True])
async def test_a_virtual_cluster_goes_back_after_a_failed_upgrade(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm, interrupts: bool
) -> None:
    path = SETTINGS.format("demo-v-one", "one")
    access.virtual_down = None

    def template(values: str) -> Object:
        return {"helmRelease": {"chart": {"name": "vc", "repo": "https://charts.example"}, "values": values}}

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        templates = InstanceTemplateController(api.registry, INSTANCE_CONFIG)
        async with running_controllers(api, templates, build_virtual_cluster_controller(api, access, helm)):
            yield

    async def change(values: str) -> None:
        await api.patch(VC, "one", lambda each: each["spec"].update(template=template(values)))

    async with running():
        await create_cluster(api)
        spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "template": template(GOOD)}
        await api.create(VC, "one", spec=spec)
        await eventually(lambda: get_path(api.get(VC, "one"), "status.phase") == "Ready")
        if interrupts:
            helm.hanging_values = "size: 13"
        else:
            helm.refused_values = "size: 13"
        await change("size: 13\n")
        await eventually(lambda: access.kube.objects[path]["data"] == {"values": "size: 13\n"})
        if not interrupts:
            await eventually(lambda: condition_status(api, VC, "VirtualClusterDeployed") == ("False", "HelmFailed"))
    helm.hanging_values = ""
    async with running():
        await change(GOOD)
        await eventually(lambda: access.kube.objects[path]["data"] == {"values": GOOD}, seconds=900)
        await eventually(lambda: condition_status(api, VC, "VirtualClusterDeployed") == ("True", "Deployed"))
        assert get_path(api.get(VC, "one"), "status.lastAttempt.outcome") == "Succeeded"
