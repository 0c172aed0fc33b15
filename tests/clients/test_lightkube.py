"""lightkube, a Python client without discovery: programs declare the kinds that they use.

lightkube parses an error as a Status only if the content type is exactly `application/json`.
"""

import copy
from collections.abc import Iterator
from threading import Timer
from typing import Any

import pytest
from lightkube import ALL_NS, ApiError, AsyncClient, Client, KubeConfig
from lightkube.codecs import load_all_yaml
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import CascadeType, PatchType, on_error_retry

from tests.clients.objects import Body, build_app, build_cluster, build_project, build_workspace, to_yaml
from tests.clients.server import GROUP, VERSION, Server

App: Any = create_global_resource(GROUP, "v1", "App", "apps")
Cluster: Any = create_global_resource(GROUP, "v1", "Cluster", "clusters")
Project: Any = create_global_resource(GROUP, "v1", "Project", "projects")
Workspace: Any = create_namespaced_resource(GROUP, "v1", "DevPodWorkspaceInstance", "devpodworkspaceinstances")


@pytest.fixture(scope="module")
def configuration(server: Server) -> Any:
    return KubeConfig.from_file(str(server.kubeconfig))


@pytest.fixture(scope="module")
def lightkube(configuration: Any) -> Iterator[Any]:
    with Client(configuration, field_manager="tests") as client:
        yield client


@pytest.fixture
def apps(lightkube: Any) -> Iterator[Any]:
    """The client; all apps are deleted after the test."""
    yield lightkube
    lightkube.deletecollection(App)


def get_names(objects: Any) -> list[str]:
    return [each.metadata.name for each in objects]


def test_it_creates_gets_replaces_and_deletes(apps: Any) -> None:
    created = apps.create(App(build_app("a", displayName="1")))
    assert (created.kind, created.metadata.generation) == ("App", 1)
    obj = apps.get(App, "a")
    assert (obj.spec, obj.metadata.uid) == ({"displayName": "1"}, created.metadata.uid)
    obj["spec"]["displayName"] = "2"
    assert apps.replace(obj).metadata.generation == 2
    assert apps.delete(App, "a") is None
    assert get_names(apps.list(App)) == []


def test_a_dry_run_creates_nothing(apps: Any) -> None:
    assert apps.create(App(build_app("dry", displayName="D")), dry_run=True).spec == {"displayName": "D"}
    assert get_names(apps.list(App)) == []


def test_it_lists_by_labels_and_fields_and_in_chunks(apps: Any) -> None:
    for number in range(5):
        apps.create(App(build_app(f"n{number}", {"odd": str(number % 2)}, owner={"user": f"u{number}"})))
    assert get_names(apps.list(App, labels={"odd": "1"})) == ["n1", "n3"]
    assert get_names(apps.list(App, labels={"odd": ("0", "1"), "even": None})) == []
    assert get_names(apps.list(App, fields={"spec.owner.user": "u3"})) == ["n3"]
    listed = apps.list(App, chunk_size=2)
    assert get_names(listed) == ["n0", "n1", "n2", "n3", "n4"]
    assert int(listed.resourceVersion) > 0


@pytest.mark.parametrize(
    ("options", "patch"),
    [
        ({}, {"spec": {"displayName": "2", "icon": None}}),
        ({"patch_type": PatchType.STRATEGIC}, {"spec": {"$patch": "replace", "displayName": "2"}}),
        ({"patch_type": PatchType.MERGE}, {"spec": {"displayName": "2", "icon": None}}),
        (
            {"patch_type": PatchType.JSON},
            [
                {"op": "replace", "path": "/spec/displayName", "value": "2"},
                {"op": "remove", "path": "/spec/icon"},
            ],
        ),
        ({"patch_type": PatchType.APPLY, "force": True}, build_app("p", displayName="2")),
    ],
    ids=["default", "strategic", "merge", "json", "apply"],
)
def test_it_sends_every_patch_type(apps: Any, options: dict[str, Any], patch: Any) -> None:
    """Applied first by the same manager: apply removes only omitted fields that its manager owns."""
    apps.apply(App(build_app("p", displayName="1", icon="i")))
    assert apps.patch(App, "p", patch, **options).spec == {"displayName": "2"}


def test_two_managers_share_an_object_until_both_set_the_same_field(apps: Any) -> None:
    apps.apply(App(build_app("shared", displayName="of one")), field_manager="one")
    apps.apply(App(build_app("shared", icon="of two")), field_manager="two")
    body = App(build_app("shared", displayName="of two", icon="of two"))
    with pytest.raises(ApiError) as caught:
        apps.apply(copy.deepcopy(body), field_manager="two")
    status: Any = caught.value.status
    assert (status.code, status.reason) == (409, "Conflict")
    causes = [(each.reason, each.field, each.message) for each in status.details.causes]
    assert causes == [("FieldManagerConflict", ".spec.displayName", 'conflict with "one"')]
    forced = apps.apply(body, field_manager="two", force=True)
    assert forced.spec == {"displayName": "of two", "icon": "of two"}
    assert [(each.manager, each.operation) for each in forced.metadata.managedFields] == [("two", "Apply")]


def test_the_status_subresource_is_patched_applied_and_replaced(lightkube: Any) -> None:
    lightkube.create(Cluster(build_cluster("c", displayName="C")))
    lightkube.patch(Cluster.Status, "c", {"status": {"phase": "Failed"}}, patch_type=PatchType.MERGE)
    body = {"apiVersion": VERSION, "kind": "Cluster", "metadata": {"name": "c"}, "status": {"reason": "Offline"}}
    lightkube.apply(Cluster.Status(body), "c")
    read = lightkube.get(Cluster.Status, "c")
    assert (read.status, read.spec) == ({"phase": "Failed", "reason": "Offline"}, {"displayName": "C"})
    read["status"], read["spec"] = {"phase": "Initialized"}, {"displayName": "ignored"}
    written = lightkube.replace(read, "c")
    assert (written.status, written.spec) == ({"phase": "Initialized"}, {"displayName": "C"})
    lightkube.delete(Cluster, "c")


def test_it_watches_from_the_resource_version_of_a_list(apps: Any) -> None:
    apps.create(App(build_app("before")))
    listed = apps.list(App)
    assert get_names(listed) == ["before"]
    apps.create(App(build_app("one", {"watched": "yes"})))
    apps.patch(App, "one", {"spec": {"displayName": "x"}})
    apps.delete(App, "one")
    events = apps.watch(App, resource_version=listed.resourceVersion, labels={"watched": "yes"}, server_timeout=10)
    changes = [(kind, obj.metadata.name, obj.spec) for kind, obj in (next(events) for _ in range(3))]
    assert changes == [
        ("ADDED", "one", {}),
        ("MODIFIED", "one", {"displayName": "x"}),
        ("DELETED", "one", {"displayName": "x"}),
    ]
    events.close()


def test_a_watch_continues_after_the_server_ends_the_stream(apps: Any) -> None:
    """The stream ends after a second; lightkube opens the next one from the last resource version."""
    apps.create(App(build_app("one")))
    events = apps.watch(App, server_timeout=1)
    assert next(events)[0] == "ADDED"
    timer = Timer(1.2, apps.patch, (App, "one", {"spec": {"displayName": "x"}}))
    timer.start()
    assert next(events)[0] == "MODIFIED"
    timer.join()
    events.close()


def test_a_watch_from_an_expired_version_raises_or_starts_again(apps: Any) -> None:
    with pytest.raises(ApiError, match="too old resource version") as expired:
        next(apps.watch(App, resource_version="1"))
    assert (expired.value.status.code, expired.value.status.reason) == (410, "Expired")
    apps.create(App(build_app("one")))
    events = apps.watch(App, resource_version="1", on_error=on_error_retry)
    kind, obj = next(events)
    assert (kind, obj.metadata.name) == ("ADDED", "one")
    events.close()


def test_it_waits_for_a_project_and_uses_its_namespace(lightkube: Any) -> None:
    lightkube.create(Project(build_project("light")))
    lightkube.wait(Project, "light", for_conditions=["Ready"])
    lightkube.create(Workspace(build_workspace("w", "service-p-light", owner={"user": "ada"})))
    assert get_names(lightkube.list(Workspace, namespace="service-p-light")) == ["w"]
    assert get_names(lightkube.list(Workspace, namespace=ALL_NS)) == ["w"]
    lightkube.patch(Workspace, "w", {"spec": {"displayName": "W"}}, namespace="service-p-light")
    assert lightkube.get(Workspace, "w", namespace="service-p-light").spec["displayName"] == "W"
    lightkube.delete(Project, "light", cascade=CascadeType.FOREGROUND)


def test_core_kinds_can_be_written_with_typed_classes(lightkube: Any) -> None:
    metadata = ObjectMeta(name="settings", namespace="default")
    lightkube.create(ConfigMap(metadata=metadata, data={"a": "1"}))
    patched = lightkube.patch(ConfigMap, "settings", {"data": {"b": "2"}})
    assert (patched.data, patched.metadata.creationTimestamp.utcoffset().total_seconds()) == ({"a": "1", "b": "2"}, 0)
    lightkube.apply(ConfigMap(metadata=metadata, data={"c": "3"}))
    assert lightkube.get(ConfigMap, "settings").data == {"a": "1", "b": "2", "c": "3"}
    lightkube.delete(ConfigMap, "settings")


def test_the_objects_of_a_file_can_be_applied(apps: Any) -> None:
    """Declared kinds are found by the kind and version in the file."""
    for obj in load_all_yaml(to_yaml(build_app("filed", displayName="1"), build_app("too", {"a": "b"}))):
        apps.apply(obj)
    assert get_names(apps.list(App)) == ["filed", "too"]


INVALID_BODIES: dict[str, tuple[Body, int, str]] = {
    "an existing name": (build_app("taken"), 409, "AlreadyExists"),
    "an invalid value": (build_app("x", displayName=5), 422, "Invalid"),
    "another kind": ({**build_app("x"), "kind": "Cluster"}, 422, "Invalid"),
    "another version": ({**build_app("x"), "apiVersion": f"{GROUP}/v2"}, 400, "BadRequest"),
}


@pytest.mark.parametrize("mistake", INVALID_BODIES)
def test_an_object_is_rejected_with(apps: Any, mistake: str) -> None:
    body, code, reason = INVALID_BODIES[mistake]
    apps.create(App(build_app("taken")))
    with pytest.raises(ApiError) as caught:
        apps.create(App(body))
    assert (caught.value.status.code, caught.value.status.reason) == (code, reason)


def test_a_missing_object_is_named_in_the_error(apps: Any) -> None:
    for attempt in (apps.get, apps.delete):
        with pytest.raises(ApiError, match=f'apps.{GROUP} "nope" not found') as missing:
            attempt(App, "nope")
        status: Any = missing.value.status
        assert (status.code, status.details.kind, status.details.name) == (404, "apps", "nope")


def test_an_invalid_key_raises_an_api_error(configuration: Any) -> None:
    wrong_config = copy.deepcopy(configuration)
    (user,) = wrong_config.users.values()
    user.token = "wrong"
    with Client(wrong_config) as client, pytest.raises(ApiError, match="invalid bearer token") as caught:
        client.get(App, "a")
    assert (caught.value.status.code, caught.value.status.reason) == (401, "Unauthorized")


async def test_the_async_client_applies_lists_watches_and_patches(configuration: Any) -> None:
    client: Any = AsyncClient(configuration, field_manager="tests")
    await client.apply(App(build_app("async", {"a": "b"}, displayName="1")))
    assert [each.metadata.name async for each in client.list(App, labels={"a": "b"})] == ["async"]
    events = client.watch(App, fields={"metadata.name": "async"}, server_timeout=10)
    assert (await anext(events))[0] == "ADDED"
    await client.patch(App, "async", {"spec": {"displayName": "2"}})
    kind, obj = await anext(events)
    assert (kind, obj.spec) == ("MODIFIED", {"displayName": "2"})
    await events.aclose()
    await client.delete(App, "async")
    await client.close()
