"""Tests of `fairlead.controllers.apps.app_instances`, with a fake helm and a fake cluster."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fairlead.controllers.helm.chart import Chart, Release
from fairlead.controllers.helm.deployments import CHECK_SECONDS
from fairlead.core.errors import Forbidden
from fairlead.core.objects import get_path
from fairlead.registry.codec import decode
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.errors import Unreachable
from tests.controllers.apps.app_fixture import (
    APP,
    ReleaseHelm,
    access,
    app_spec,
    create_space,
    create_virtual_cluster,
    helm,
    install_app,
    server,
    wait_for_reason,
)
from tests.fake_cluster.helm_releases import SECRETS, store_release
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import FakeAccess, condition_message, condition_status

__all__ = ["access", "helm", "server"]
NAMESPACE = "demo-dev"
BINDING = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings/service.sh:app:one"
DEPLOYER = f"service:deployer:{NAMESPACE}:apps"
CLUSTER_TARGET = {"cluster": {"name": "c", "namespace": "tools"}}


def abandoned_messages(api: RegistryFixture) -> list[str]:
    """The messages of the Events about releases that were left behind."""
    events = [decode(entry) for entry in api.view.entries("", "events", "demo")]
    about_apps = [event for event in events if event["involvedObject"]["kind"] == APP]
    return [event["message"] for event in about_apps if event["reason"] == "Abandoned"]


async def test_an_app_is_deployed_into_a_space_with_permissions_there_only(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await install_app(server, parameters="size: 3\n")
    instance = await wait_for_reason(server, "Deployed")
    (release,) = helm.installed
    chart = Chart("web", "https://charts.example", "1.2.3")
    assert release == Release("one", NAMESPACE, chart, "size: 3\ntoken: null\n", DEPLOYER)
    binding = access.kube.objects[BINDING]
    assert (binding["roleRef"]["name"], binding["subjects"][0]["name"]) == ("admin", DEPLOYER)
    status = instance["status"]
    found = {name: status["release"][name] for name in ("name", "cluster", "namespace", "revision", "chart", "version")}
    expected = {
        "name": "one",
        "cluster": "c",
        "namespace": NAMESPACE,
        "revision": 1,
        "chart": "web",
        "version": "1.2.3",
    }
    assert found == expected
    assert (status["phase"], status["observedGeneration"]) == ("Ready", 1)
    assert [each["type"] for each in status["conditions"] if each["status"] == "True"] == [
        *("Ready", "AppResolved", "TargetReady", "Deployed", "Synced")
    ]


async def test_requests_are_retried_until_a_new_binding_is_effective(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    """The authorizer of a real cluster takes a moment to see a new binding."""
    access.kube.stale_rbac_requests = 5
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    events = [server.get("Event", name) or {} for name in server.list_names("Event")]
    assert {event["type"] for event in events} <= {"Normal"}


async def test_a_role_that_does_not_permit_to_read_secrets_is_reported(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    access.kube.stale_rbac_requests = 1000
    await install_app(server)
    instance = await wait_for_reason(server, "RoleInsufficient")
    assert (instance["status"]["phase"], helm.installed) == ("Failed", [])
    assert 'the role "admin"' in instance["status"]["message"]
    assert "chart_role" in instance["status"]["message"]
    access.kube.stale_rbac_requests = 0
    await wait_for_reason(server, "Deployed")


async def test_the_binding_survives_the_resync_of_the_space(server: RegistryFixture, access: FakeAccess) -> None:
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    await server.patch("SpaceInstance", "dev", lambda each: each["spec"].update(description="changed"))
    await asyncio.sleep(400)
    assert BINDING in access.kube.objects


async def test_a_change_of_parameters_or_of_the_app_is_deployed(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    await server.patch(APP, "one", lambda each: each["spec"].update(parameters="size: 2\n"))
    await eventually(lambda: len(helm.installed) == 2)
    await server.patch("App", "web", lambda each: each["spec"]["config"].update(values="other: 1\n"))
    await eventually(lambda: [each.values for each in helm.installed[1:]] == ["size: 2\ntoken: null\n", "other: 1\n"])
    await eventually(lambda: get_path(server.get(APP, "one"), "status.release.revision") == 3)
    history = get_path(server.get(APP, "one"), "status.history")
    assert [(each["revision"], each["parameters"]) for each in history] == [
        *((3, "size: 2\n"), (2, "size: 2\n"), (1, ""))
    ]


async def test_a_new_version_that_matches_is_deployed(server: RegistryFixture, helm: ReleaseHelm) -> None:
    versions = [{"version": "1.0.0", **app_spec()["config"], "values": "v: 1.0.0\n"}]
    await server.patch("App", "web", lambda each: each["spec"].update(versions=versions))
    await install_app(server, appRef={"name": "web", "version": "1.x.x"})
    await wait_for_reason(server, "Deployed")
    newer = {**versions[0], "version": "1.1.0", "values": "v: 1.1.0\n"}
    await server.patch("App", "web", lambda each: each["spec"].update(versions=[*versions, newer]))
    await eventually(lambda: [each.values for each in helm.installed] == ["v: 1.0.0\n", "v: 1.1.0\n"])
    await eventually(lambda: get_path(server.get(APP, "one"), "status.history")[0]["appVersion"] == "1.1.0")


async def test_the_history_is_bounded(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await install_app(server)
    for number in range(12):
        await eventually(lambda: len(helm.installed) == number + 1)  # noqa: B023
        await eventually(lambda: get_path(server.get(APP, "one"), "status.release.revision") == number + 1)  # noqa: B023
        await server.patch(APP, "one", lambda each: each["spec"].update(parameters=f"size: {number}\n"))  # noqa: B023
    await eventually(lambda: get_path(server.get(APP, "one"), "status.release.revision") == 13)
    assert [each["revision"] for each in get_path(server.get(APP, "one"), "status.history")] == [*range(13, 3, -1)]


async def test_a_password_is_shown_nowhere(server: RegistryFixture, helm: ReleaseHelm) -> None:
    helm.failures.add("two")
    for name in ("one", "two"):
        await install_app(server, name, parameters="token: <hidden>\n", parameterSecrets={"token": "very-secret"})
    await wait_for_reason(server, "Deployed")
    await wait_for_reason(server, "HelmFailed", "two")
    assert "very-secret" in helm.installed[0].values
    for name in ("one", "two"):
        shown = await server.resource(APP).get("demo", name)
        assert b"very-secret" not in shown.body
    assert "<hidden>" in get_path(server.get(APP, "one"), "status.notes")
    events = [each.body for each in server.view.entries("", "events")]
    assert events and not any(b"very-secret" in each for each in events)


async def test_a_plain_password_is_hidden_once_the_app_exists(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await install_app(server, appRef={"name": "late"}, parameters="token: very-secret\n")
    await wait_for_reason(server, "AppNotFound")
    await server.create("App", "late", spec=app_spec())
    await wait_for_reason(server, "Deployed")
    assert get_path(server.get(APP, "one"), "spec.parameters") == "token: <hidden>\n"
    assert "very-secret" in helm.installed[0].values


@pytest.mark.parametrize("change", [{"config": {"size": 99}}, {"chart": {"metadata": {"name": "evil"}}}])
async def test_a_release_that_others_changed_is_deployed_again(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm, change: dict[str, Any]
) -> None:
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    store_release(access.kube, helm.installed[0], **change)
    await eventually(lambda: len(helm.installed) == 2, seconds=2 * CHECK_SECONDS)
    await eventually(lambda: get_path(server.get(APP, "one"), "status.release.revision") == 3)
    assert get_path(server.get(APP, "one"), "status.drift.reason") == "ReleaseChanged"
    assert get_path(server.get(APP, "one"), "status.drift.count") == 1
    assert condition_status(server, APP, "Synced") == ("True", "Synced")
    await asyncio.sleep(5 * CHECK_SECONDS)
    assert len(helm.installed) == 2


async def test_a_release_that_others_removed_is_deployed_again(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    access.kube.objects = {path: obj for path, obj in access.kube.objects.items() if "sh.helm" not in path}
    await eventually(lambda: len(helm.installed) == 2, seconds=2 * CHECK_SECONDS)
    await eventually(lambda: get_path(server.get(APP, "one"), "status.drift.reason") == "ReleaseMissing")


async def test_a_release_of_others_is_not_taken_over(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    store_release(access.kube, Release("one", NAMESPACE, Chart("web", ""), "a: b"))
    await install_app(server)
    instance = await wait_for_reason(server, "ReleaseConflict")
    assert (instance["status"]["phase"], helm.installed) == ("Failed", [])
    await server.delete(APP, "one")
    await eventually(lambda: server.get(APP, "one") is None)
    assert helm.uninstalled == []


async def test_two_instances_never_share_a_release(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    await asyncio.sleep(2)
    await install_app(server, "two", releaseName="one")
    await wait_for_reason(server, "ReleaseConflict", "two")
    assert '"demo/one"' in condition_message(server, APP, "Deployed", "two")
    assert len(helm.installed) == 1


async def test_an_app_of_an_administrator_is_deployed_into_a_cluster_with_its_credential(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await install_app(server, target=CLUSTER_TARGET)
    await wait_for_reason(server, "Deployed")
    assert (helm.installed[0].namespace, helm.installed[0].impersonate_user) == ("tools", "")
    await server.delete(APP, "one")
    await eventually(lambda: server.get(APP, "one") is None)
    assert [each.name for each in helm.uninstalled] == ["one"]
    assert "/api/v1/namespaces/tools" in access.kube.objects


async def test_an_app_of_another_user_is_confined_in_a_cluster_and_stays_so(
    server: RegistryFixture, helm: ReleaseHelm
) -> None:
    mark = {"annotations": {"service.sh/trusted": "false"}}
    await server.create("App", "theirs", metadata=mark, spec=app_spec())
    await install_app(server, appRef={"name": "theirs"}, target=CLUSTER_TARGET)
    await wait_for_reason(server, "Deployed")
    await server.patch("App", "theirs", lambda each: each["metadata"].pop("annotations"))
    await server.patch(APP, "one", lambda each: each["spec"].update(parameters="size: 2\n"))
    await eventually(lambda: len(helm.installed) == 2)
    assert {each.impersonate_user for each in helm.installed} == {"service:deployer:tools:apps"}


async def test_an_untrusted_app_needs_an_allowed_repository(server: RegistryFixture, helm: ReleaseHelm) -> None:
    spec = app_spec(config={"chart": {"name": "web", "repoURL": "https://elsewhere.example"}})
    await server.create("App", "theirs", metadata={"annotations": {"service.sh/trusted": "false"}}, spec=spec)
    await install_app(server, appRef={"name": "theirs"})
    await wait_for_reason(server, "RepositoryNotAllowed")
    assert helm.installed == []


async def test_a_namespace_of_a_space_is_no_target_in_a_cluster(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await install_app(server, target={"cluster": {"name": "c", "namespace": NAMESPACE}})
    await wait_for_reason(server, "NamespaceManaged")
    assert helm.installed == []


async def test_an_app_is_deployed_into_a_virtual_cluster(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    access.virtual_down = None
    await create_virtual_cluster(server)
    await install_app(server, target={"virtualClusterInstance": {"name": "v", "namespace": "inner"}})
    await wait_for_reason(server, "Deployed")
    assert "/api/v1/namespaces/inner" in access.virtual.objects
    assert not any(path.startswith(SECRETS.format("inner")) for path in access.kube.objects)
    assert helm.installed[0].impersonate_user == ""


@pytest.mark.parametrize(
    ("app", "reason"),
    [
        ({"clusters": ["other"]}, "ClusterNotAllowed"),
        ({"config": {}}, "UnsupportedApp"),
        ({"config": {"chart": {"name": "web", "repoURL": "file:///etc"}}}, "InvalidChart"),
        ({"config": {"chart": {"name": "-x", "repoURL": "https://charts.example"}}}, "InvalidChart"),
        ({"parameters": [{"variable": "size", "required": True}]}, "ErrorSyncingParameters"),
    ],
)
async def test_an_app_that_cannot_be_deployed_is_reported(
    server: RegistryFixture, helm: ReleaseHelm, app: dict[str, Any], reason: str
) -> None:
    await server.create("App", "bad", spec=app_spec(**app))
    await install_app(server, appRef={"name": "bad"})
    instance = await wait_for_reason(server, reason)
    assert (instance["status"]["phase"], helm.installed) == ("Failed", [])


async def test_manifests_are_deployed_as_they_are(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await server.create("App", "raw", spec={"config": {"manifests": "kind: ConfigMap\n"}})
    await install_app(server, appRef={"name": "raw"})
    await wait_for_reason(server, "Deployed")
    assert helm.installed[0].chart.manifests == "kind: ConfigMap\n"


async def test_a_missing_target_is_reported_and_found_later(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await install_app(server, target={"spaceInstance": {"name": "later"}})
    await wait_for_reason(server, "TargetNotFound")
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "templateRef": {"name": "plain"}}
    await server.create("SpaceInstance", "later", spec=spec)
    await wait_for_reason(server, "Deployed")


async def test_a_new_space_of_the_same_name_is_not_used(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    await server.delete("SpaceInstance", "dev")
    await eventually(lambda: server.get("SpaceInstance", "dev") is None)
    await create_space(server)
    await wait_for_reason(server, "TargetReplaced")
    assert len(helm.installed) == 1
    await server.delete(APP, "one")
    await eventually(lambda: server.get(APP, "one") is None)
    assert helm.uninstalled == []


async def test_a_failed_run_is_retried(server: RegistryFixture, helm: ReleaseHelm) -> None:
    helm.failures.add("one")
    await install_app(server)
    await wait_for_reason(server, "HelmFailed")
    assert get_path(server.get(APP, "one"), "status.phase") == "Pending"
    helm.failures.clear()
    await wait_for_reason(server, "Deployed")


async def test_without_helm_nothing_is_created(server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm) -> None:
    helm.is_missing = True
    await install_app(server)
    await wait_for_reason(server, "HelmNotFound")
    assert BINDING not in access.kube.objects


async def test_a_deployed_app_stays_deployed_without_helm(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    helm.is_missing = True
    await asyncio.sleep(3 * CHECK_SECONDS)
    assert condition_status(server, APP, "Deployed") == ("True", "Deployed")
    assert "Helm is missing on the server" in condition_message(server, APP, "Deployed")
    await server.patch(APP, "one", lambda each: each["spec"].update(parameters="size: 2\n"))
    await wait_for_reason(server, "HelmNotFound")


async def test_numbers_of_the_history_stay_unique_after_a_foreign_uninstall(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await install_app(server, parameters="size: 1\n")
    await wait_for_reason(server, "Deployed")
    await server.patch(APP, "one", lambda each: each["spec"].update(parameters="size: 2\n"))
    await eventually(lambda: get_path(server.get(APP, "one"), "status.release.revision") == 2)
    access.kube.objects = {path: obj for path, obj in access.kube.objects.items() if "sh.helm" not in path}
    await eventually(lambda: get_path(server.get(APP, "one"), "status.release.revision") == 1, seconds=300)
    history = get_path(server.get(APP, "one"), "status.history")
    assert [(each["revision"], each["helmRevision"]) for each in history] == [(3, 1), (2, 2), (1, 1)]


async def test_a_failure_of_an_older_generation_does_not_count_for_a_new_one(
    server: RegistryFixture, helm: ReleaseHelm
) -> None:
    phases: list[Any] = []
    await install_app(server, appRef={"name": "web"}, releaseName="one")
    await wait_for_reason(server, "Deployed")
    helm.is_missing = True
    await server.patch(APP, "one", lambda each: each["spec"].update(parameters="size: 2\n"))
    await wait_for_reason(server, "HelmNotFound")
    install = helm.install

    async def record_phase(release: Release, endpoint: Any, *, forces_conflicts: bool = False) -> None:
        phases.append(get_path(server.get(APP, "one"), "status.phase"))
        await install(release, endpoint)

    helm.install = record_phase  # type: ignore[method-assign]
    helm.is_missing = False
    await server.patch(APP, "one", lambda each: each["spec"].update(parameters="size: 3\n"))
    await wait_for_reason(server, "Deployed")
    assert phases == ["Pending"]


async def test_twelve_apps_are_deployed_without_waiting_between_runs(
    server: RegistryFixture, helm: ReleaseHelm
) -> None:
    """Each run takes a second, and two of a project run at once: waiters are woken when a slot becomes free."""
    install = helm.install

    async def install_slowly(release: Release, endpoint: Any, *, forces_conflicts: bool = False) -> None:
        await asyncio.sleep(1)
        await install(release, endpoint)

    helm.install = install_slowly  # type: ignore[method-assign]
    started = server.clock.monotonic()
    for number in range(12):
        await install_app(server, f"app-{number}")
    await eventually(lambda: len(helm.installed) == 12, seconds=300)
    assert server.clock.monotonic() - started < 12 / 2 + 2


async def test_an_instance_is_uninstalled_before_it_is_gone(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    access.down = Unreachable("gone")
    await server.delete(APP, "one")
    await eventually(lambda: condition_status(server, APP, "Deployed") == ("False", "Unreachable"))
    assert "service.sh/abandon=true" in condition_message(server, APP, "Deployed")
    access.down = None
    await eventually(lambda: server.get(APP, "one") is None)
    assert [replace(each, impersonate_user="") for each in helm.uninstalled] == [
        Release("one", NAMESPACE, Chart("", ""), "")
    ]
    assert BINDING not in access.kube.objects


async def test_an_instance_in_a_space_that_is_being_deleted_is_deleted_after_it(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    access.kube.delays_deletion = True
    await server.delete("SpaceInstance", "dev")
    await server.delete(APP, "one")
    await eventually(lambda: condition_status(server, APP, "Deployed") == ("False", "TargetDeleting"))
    assert "service.sh/abandon=true" in condition_message(server, APP, "Deployed")
    access.kube.delays_deletion = False
    del access.kube.objects[f"/api/v1/namespaces/{NAMESPACE}"]
    await eventually(lambda: server.get(APP, "one") is None)
    assert server.get("SpaceInstance", "dev") is None
    assert helm.uninstalled == [] and abandoned_messages(server) == []


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        ("all", 'but its namespace "demo-dev" in cluster "c" still exists'),
        ("terminating", 'but its namespace "demo-dev" in cluster "c" is still being deleted'),
        ("unreachable", 'and its namespace "demo-dev" in cluster "c" cannot be checked: cluster "c": gone'),
        ("no cluster", 'and so was the cluster "c", so that its namespace cannot be checked'),
        ("no label", 'and its namespace "demo-dev" in cluster "c" exists, but has lost its label service.sh/uid'),
        ("nothing", ""),
        ("of another", ""),
    ],
)
async def test_what_is_left_of_a_space_that_is_gone_is_reported(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm, left: str, reason: str
) -> None:
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    await delete_abandoned_space(server)
    await wait_for_reason(server, "TargetNotFound")
    namespace = access.kube.objects[f"/api/v1/namespaces/{NAMESPACE}"]
    if left == "terminating":
        namespace["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    elif left == "unreachable":
        access.down = Unreachable("gone")
    elif left == "no cluster":
        await server.delete("Cluster", "c")
    elif left == "no label":
        del namespace["metadata"]["labels"]
    elif left == "nothing":
        del access.kube.objects[f"/api/v1/namespaces/{NAMESPACE}"]
    elif left == "of another":
        namespace["metadata"]["labels"]["service.sh/uid"] = "other"
    hold = {"finalizers": ["service.sh/app-release", "example.com/held"]}
    await server.patch(APP, "one", lambda each: each["metadata"].update(hold), server_write_options())
    await server.delete(APP, "one")
    await eventually(lambda: (server.get(APP, "one") or {})["metadata"]["finalizers"] == ["example.com/held"])
    if reason:
        message = (
            f'release "one" in namespace "demo-dev" of space "dev" was not uninstalled: the space "dev" was removed, '
            f"{reason}; if it still exists, uninstall it yourself with helm"
        )
        assert abandoned_messages(server) == [message]
        assert condition_status(server, APP, "Deployed") == ("False", "Abandoned")
        assert condition_message(server, APP, "Deployed") == message
    else:
        assert abandoned_messages(server) == []
        assert condition_status(server, APP, "Deployed")[1] != "Abandoned"


async def delete_abandoned_space(server: RegistryFixture) -> None:
    """Deletes the space, but leaves its namespace."""
    abandon = {"annotations": {"service.sh/abandon": "true"}}
    await server.patch("SpaceInstance", "dev", lambda each: each["metadata"].update(abandon), server_write_options())
    await server.delete("SpaceInstance", "dev")
    await eventually(lambda: server.get("SpaceInstance", "dev") is None)


async def test_what_is_left_in_an_imported_virtual_cluster_is_reported(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    access.virtual_down = None
    await create_virtual_cluster(server)
    await install_app(server, target={"virtualClusterInstance": {"name": "v", "namespace": "inner"}})
    await wait_for_reason(server, "Deployed")
    await server.delete("VirtualClusterInstance", "v")
    await server.delete(APP, "one")
    await eventually(lambda: server.get(APP, "one") is None)
    assert abandoned_messages(server) == [
        'release "one" in namespace "inner" of virtual cluster "v" was not uninstalled: the virtual cluster "v" was '
        "removed; if it still exists, uninstall it yourself with helm"
    ]


async def test_an_event_that_cannot_be_recorded_does_not_delay_the_deletion(
    server: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install_app(server, target=CLUSTER_TARGET)
    await wait_for_reason(server, "Deployed")
    await server.delete("Cluster", "c")

    async def refuse(*_: Any, **__: Any) -> None:
        raise Forbidden("the namespace is terminating")

    monkeypatch.setattr("fairlead.controllers.instances.instance_reconciler.record_event", refuse)
    await server.delete(APP, "one")
    await eventually(lambda: server.get(APP, "one") is None)


@pytest.mark.parametrize("is_connected_again", [False, True])
async def test_a_release_in_a_cluster_that_was_disconnected_is_reported(
    server: RegistryFixture, helm: ReleaseHelm, is_connected_again: bool
) -> None:
    await install_app(server, target=CLUSTER_TARGET)
    await wait_for_reason(server, "Deployed")
    await server.delete("Cluster", "c")
    if is_connected_again:
        config = {"secretName": "kubeconfig", "secretNamespace": "vault"}
        await server.create("Cluster", "c", spec={"config": config})
        found = await wait_for_reason(server, "TargetReplaced")
        assert 'release "one" in namespace "tools", uninstall that with helm' in found["status"]["message"]
    await server.delete(APP, "one")
    await eventually(lambda: server.get(APP, "one") is None)
    assert helm.uninstalled == []
    assert abandoned_messages(server) == [
        'release "one" in namespace "tools" of cluster "c" was not uninstalled: the cluster "c" was removed; if it '
        "still exists, uninstall it yourself with helm"
    ]


async def test_an_instance_in_a_cluster_that_is_being_deleted_is_uninstalled(
    server: RegistryFixture, helm: ReleaseHelm
) -> None:
    await install_app(server, target=CLUSTER_TARGET)
    await wait_for_reason(server, "Deployed")
    await server.patch(
        "Cluster", "c", lambda each: each["metadata"].update(finalizers=["example.com/held"]), server_write_options()
    )
    await server.delete("Cluster", "c")
    await server.delete(APP, "one")
    await eventually(lambda: server.get(APP, "one") is None)
    assert [each.name for each in helm.uninstalled] == ["one"]
    assert abandoned_messages(server) == []


async def test_an_abandoned_release_is_left_behind(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    access.down = Unreachable("gone")
    abandon = {"annotations": {"service.sh/abandon": "true"}}
    await server.patch(APP, "one", lambda each: each["metadata"].update(abandon), server_write_options())
    await server.delete(APP, "one")
    await eventually(lambda: server.get(APP, "one") is None)
    assert helm.uninstalled == []


async def test_an_app_in_a_space_that_sleeps_stays_as_it_is(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    note = {"sleepmode.service.sh/sleep-type": "forcedSleep", "sleepmode.service.sh/force": "true"}
    await server.patch("SpaceInstance", "dev", lambda each: each["metadata"].update(annotations=note))
    await eventually(lambda: get_path(server.get("SpaceInstance", "dev"), "status.phase") == "Sleeping")
    await asyncio.sleep(3 * CHECK_SECONDS)
    assert condition_status(server, APP, "Ready") == ("True", "Deployed")
    await server.patch("SpaceInstance", "dev", lambda each: each["metadata"].update(annotations={}))
    await eventually(lambda: get_path(server.get("SpaceInstance", "dev"), "status.phase") == "Ready")
    assert len(helm.installed) == 1
    await server.patch(APP, "one", lambda each: each["spec"].update(parameters="size: 2\n"))
    await eventually(lambda: len(helm.installed) == 2)
