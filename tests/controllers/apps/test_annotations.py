"""Annotations of an App on the objects that it deploys, with a fake helm and a fake cluster."""

import asyncio
from typing import Any

import pytest

from fairlead.controllers.helm import deployments
from fairlead.controllers.helm.chart import Chart, Release
from fairlead.controllers.helm.deployments import COMPARE_SECONDS
from fairlead.controllers.helm.release_annotations import apply_annotations
from fairlead.controllers.helm.release_objects import RELEASE_NAME, RELEASE_NAMESPACE
from fairlead.controllers.helm.release_records import ReleaseRecord
from fairlead.controllers.instances.remote_errors import InstanceError
from fairlead.core.errors import Invalid
from fairlead.core.objects import Object, get_path
from fairlead.domain.release_annotations import find_annotation_problems
from fairlead.upstream.kube_client import RemoteApiError
from tests.controllers.apps.app_fixture import (
    APP,
    EXTRA,
    SETTINGS,
    ReleaseHelm,
    access,
    app_spec,
    helm,
    install_app,
    server,
    wait_for_reason,
)
from tests.fake_cluster.kube import FakeKube, InMemoryClusterApi
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import FakeAccess

__all__ = ["access", "helm", "server"]
NAMESPACE = "demo-dev"
DEPLOYER = f"service:deployer:{NAMESPACE}:apps"
SETTINGS_PATH, EXTRA_PATH = SETTINGS.format(NAMESPACE, "one"), EXTRA.format(NAMESPACE, "one")
TEAM, COST = "example.com/team", "cost-center"


def annotated_spec(**annotations: str) -> Object:
    spec = app_spec()
    spec["config"]["values"] += "extra: more\n"
    spec["config"]["annotations"] = annotations
    return spec


async def set_annotations(api: RegistryFixture, **annotations: str) -> None:
    await api.patch("App", "web", lambda each: each.update(spec=annotated_spec(**annotations)))


def annotations_of(access: FakeAccess, path: str) -> Object:
    """Those that do not come from Helm."""
    found = access.kube.objects[path]["metadata"].get("annotations") or {}
    return {key: value for key, value in found.items() if not key.startswith("meta.helm.sh/")}


async def test_all_objects_get_the_annotations_with_the_permissions_of_helm(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await set_annotations(server, **{TEAM: "{{ parameters.size }} people", COST: "7"})
    await install_app(server, parameters="size: 3\n")
    await wait_for_reason(server, "Deployed")
    expected = {TEAM: "3 people", COST: "7"}
    assert (annotations_of(access, SETTINGS_PATH), annotations_of(access, EXTRA_PATH)) == (expected, expected)
    assert get_path(access.kube.objects[EXTRA_PATH], "data.values") == helm.installed[0].values
    applied = [user for user, method, path in access.kube.impersonated_requests if (method, path) == PATCH_SETTINGS]
    assert applied == [DEPLOYER]


PATCH_SETTINGS = ("PATCH", SETTINGS_PATH)


async def test_changed_and_removed_annotations_of_the_app_change_the_objects(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await set_annotations(server, **{TEAM: "a", COST: "7"})
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    await set_annotations(server, **{TEAM: "b"})
    await eventually(lambda: annotations_of(access, EXTRA_PATH) == {TEAM: "b"})
    await set_annotations(server)
    await eventually(lambda: len(helm.installed) == 3)
    await eventually(lambda: get_path(server.get(APP, "one"), "status.lastAttempt.outcome") == "Succeeded")
    assert "annotated" not in get_path(server.get(APP, "one"), "status.lastAttempt")
    assert access.kube.request_log.count(("PATCH", SETTINGS_PATH)) == 3
    assert annotations_of(access, SETTINGS_PATH) == annotations_of(access, EXTRA_PATH) == {}


async def test_annotations_that_could_not_be_removed_are_removed_later(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    """The objects of the fake helm are new after each run, so what is checked is that they are applied again."""
    await set_annotations(server, **{TEAM: "a"})
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    access.kube.apply_failures[EXTRA_PATH] = (500, "InternalError", "it is broken")
    await set_annotations(server)
    await eventually(lambda: get_path(server.get(APP, "one"), "status.lastAttempt.outcome") == "Failed")
    assert get_path(server.get(APP, "one"), "status.lastAttempt.annotated") is True
    access.kube.apply_failures.clear()
    before = access.kube.request_log.count(("PATCH", EXTRA_PATH))
    await wait_for_reason(server, "Deployed")
    assert access.kube.request_log.count(("PATCH", EXTRA_PATH)) == before + 1


async def test_a_cluster_that_answers_too_slowly_for_all_objects_does_not_hold_a_run_of_helm(
    server: RegistryFixture, access: FakeAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_annotations(server, **{TEAM: "a"})
    monkeypatch.setattr(deployments, "OBJECTS_TIMEOUT", 0.05)
    real_apply = InMemoryClusterApi.apply

    async def apply(self: InMemoryClusterApi, path: str, body: Object) -> Object:
        if path == SETTINGS_PATH:
            await asyncio.Event().wait()
        return await real_apply(self, path, body)

    monkeypatch.setattr(InMemoryClusterApi, "apply", apply)
    await install_app(server)
    instance = await wait_for_reason(server, "TimedOut")
    assert "takes too long to annotate the objects of the release" in instance["status"]["message"]


async def test_an_annotation_that_others_remove_is_set_again(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await set_annotations(server, **{TEAM: "a"})
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    access.kube.edit_object(EXTRA_PATH, lambda each: each["metadata"]["annotations"].pop(TEAM))
    await eventually(lambda: len(helm.installed) == 2, seconds=2 * COMPARE_SECONDS)
    await eventually(lambda: annotations_of(access, EXTRA_PATH) == {TEAM: "a"})
    drift = get_path(server.get(APP, "one"), "status.drift")
    assert drift["reason"] == "ObjectsChanged" and 'ConfigMap "one-extra"' in drift["message"]


async def test_an_app_without_annotations_applies_nothing(server: RegistryFixture, access: FakeAccess) -> None:
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    assert PATCH_SETTINGS not in access.kube.request_log


RELEASE = Release("one", NAMESPACE, Chart("web", "https://charts.example"), "", annotations=((TEAM, "a"), ("x", "y")))


def test_annotations_are_a_part_of_the_hash() -> None:
    plain = Release("one", NAMESPACE, Chart("web", "https://charts.example"), "")
    assert len({RELEASE.hash, plain.hash}) == 2


def test_an_annotation_of_the_chart_itself_stays() -> None:
    assert RELEASE.added_annotations({"metadata": {"annotations": {TEAM: "the chart's"}}}) == {"x": "y"}


def build_record(**changes: Any) -> ReleaseRecord:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one-settings}\n"
    return ReleaseRecord(1, "deployed", **{"manifest": manifest, **changes})


MARKS = {RELEASE_NAME: "one", RELEASE_NAMESPACE: NAMESPACE}


async def test_a_missing_object_is_reported_and_not_created() -> None:
    kube = FakeKube()
    with pytest.raises(InstanceError, match=r'ConfigMap "one-settings" of the release is not in the cluster') as caught:
        await apply_annotations(InMemoryClusterApi(kube), RELEASE, build_record())
    assert (caught.value.reason, kube.objects) == ("AnnotationsNotSet", {})


@pytest.mark.parametrize("marks", [{}, {**MARKS, RELEASE_NAME: "two"}, {**MARKS, RELEASE_NAMESPACE: "elsewhere"}])
async def test_an_object_that_is_not_of_the_release_gets_nothing(marks: dict[str, str]) -> None:
    """Who may write Secrets in the namespace can change the record of the release, but not objects elsewhere."""
    kube = FakeKube()
    kube.add_object("/api/v1/namespaces/kube-system", metadata={"annotations": dict(marks)})
    manifest = "apiVersion: v1\nkind: Namespace\nmetadata: {name: kube-system}\n"
    with pytest.raises(InstanceError, match="is not marked as an object of the release"):
        await apply_annotations(InMemoryClusterApi(kube), RELEASE, build_record(manifest=manifest))
    assert kube.objects["/api/v1/namespaces/kube-system"]["metadata"]["annotations"] == marks


async def test_an_object_that_is_deleted_meanwhile_is_not_created() -> None:
    kube = FakeKube()
    kube.add_object(SETTINGS_PATH, metadata={"annotations": dict(MARKS)})

    class Racing(InMemoryClusterApi):
        async def apply(self, path: str, body: Object) -> Object:
            del kube.objects[path]
            return await super().apply(path, body)

    with pytest.raises(RemoteApiError, match="uid mismatch"):
        await apply_annotations(Racing(kube), RELEASE, build_record())
    assert kube.objects == {}


async def test_a_manifest_that_cannot_be_read_is_no_success() -> None:
    with pytest.raises(InstanceError):
        await apply_annotations(InMemoryClusterApi(FakeKube()), RELEASE, build_record(manifest="a: [\n"))


@pytest.mark.parametrize(
    "key", ["service.sh/x", "sleepmode.service.sh/x", "helm.sh/hook", "meta.helm.sh/release-name", "", "a b", "a/b/c"]
)
async def test_keys_that_others_act_on_and_invalid_keys_are_rejected(api: RegistryFixture, key: str) -> None:
    with pytest.raises(Invalid, match=r"spec.config.annotations"):
        await api.create("App", "web", spec=annotated_spec(**{key: "x"}))
    version = {"version": "1.0.0", "manifests": "a: b", "annotations": {key: "x"}}
    with pytest.raises(Invalid, match=r"spec.versions\[0\].annotations"):
        await api.create("App", "web", spec={"versions": [version]})


@pytest.mark.parametrize("key", [TEAM, COST, "myservice.sh/x", "helm.shop/x"])
def test_other_keys_are_accepted(key: str) -> None:
    assert list(find_annotation_problems({key: "x"})) == []


async def test_annotations_that_no_object_could_have_are_rejected(api: RegistryFixture) -> None:
    with pytest.raises(Invalid, match=r"spec.config.annotations: Too long"):
        await api.create("App", "web", spec=annotated_spec(a="x" * 140_000, b="x" * 140_000))
