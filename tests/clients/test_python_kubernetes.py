"""The official Python client: the dynamic client, CustomObjectsApi, and the typed core API."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes import client, config, watch
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

from tests.clients.objects import build_app, build_project, build_workspace
from tests.clients.server import GROUP, VERSION, Server

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPS = (GROUP, "v1", "apps")


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[Any]:
    with config.new_client_from_config(str(server.kubeconfig)) as api:
        yield api


@pytest.fixture(scope="module")
def dynamic(api: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """With a discovery cache of its own: the default one is keyed by host name, and would outlive this server."""
    return DynamicClient(api, cache_file=str(tmp_path_factory.mktemp("cache") / "discovery.json"))


@pytest.fixture
def apps(dynamic: Any) -> Iterator[Any]:
    apps = dynamic.resources.get(api_version=VERSION, kind="App")
    yield apps
    apps.delete(field_selector="metadata.name!=none")


@pytest.fixture(scope="module")
def custom(api: Any) -> Any:
    return client.CustomObjectsApi(api)


@pytest.fixture(scope="module")
def core(api: Any) -> Any:
    return client.CoreV1Api(api)


@pytest.fixture(scope="module")
def namespace(core: Any) -> str:
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="python")))
    return "python"


def test_the_dynamic_client_creates_gets_patches_replaces_and_deletes(apps: Any) -> None:
    created = apps.create(body=build_app("a", displayName="1"))
    assert (created.kind, created.metadata.generation) == ("App", 1)
    assert apps.get(name="a").spec.displayName == "1"
    patched = apps.patch(name="a", body={"spec": {"displayName": "2"}}, content_type=MERGE)
    assert patched.spec.displayName == "2"
    operations = [{"op": "add", "path": "/metadata/annotations", "value": {"b": "c"}}]
    assert apps.patch(name="a", body=operations, content_type=JSON_PATCH).metadata.annotations.b == "c"
    body = apps.get(name="a").to_dict()
    body["spec"]["displayName"] = "3"
    assert apps.replace(body=body).spec.displayName == "3"
    with pytest.raises(ConflictError, match="the object has been modified"):
        apps.replace(body=body)
    assert apps.delete(name="a").status == "Success"
    with pytest.raises(NotFoundError):
        apps.get(name="a")


def test_the_dynamic_client_applies_and_patches_with_its_defaults(apps: Any) -> None:
    """A patch without a content type is a strategic merge patch."""
    apps.server_side_apply(body=build_app("s", displayName="1", icon="i"), field_manager="tests")
    assert apps.patch(name="s", body={"spec": {"displayName": "2"}}).spec.to_dict() == {"displayName": "2", "icon": "i"}
    with pytest.raises(ConflictError, match="conflict with"):
        apps.server_side_apply(body=build_app("s", displayName="3"), field_manager="tests")
    forced = apps.server_side_apply(body=build_app("s", displayName="3"), field_manager="tests", force_conflicts=True)
    assert forced.spec.to_dict() == {"displayName": "3"}


def test_the_dynamic_client_lists_by_page_and_selector(apps: Any) -> None:
    for number in range(5):
        apps.create(body=build_app(f"n{number}", {"odd": str(number % 2)}))
    assert [each.metadata.name for each in apps.get(label_selector="odd=1").items] == ["n1", "n3"]
    first = apps.get(limit=2)
    assert first.metadata.remainingItemCount == 3
    second = apps.get(limit=2, _continue=first.metadata["continue"])
    third = apps.get(limit=2, _continue=second.metadata["continue"])
    pages = [[each.metadata.name for each in page.items] for page in (first, second, third)]
    assert pages == [["n0", "n1"], ["n2", "n3"], ["n4"]]
    assert "continue" not in third.metadata.to_dict()


def test_the_dynamic_client_finds_kinds_by_short_name_and_in_namespaces(dynamic: Any) -> None:
    projects = dynamic.resources.get(api_version=VERSION, kind="Project")
    projects.create(body=build_project("dyn"))
    workspaces = dynamic.resources.get(short_names=["ws"])
    body = build_workspace("w", "service-p-dyn", owner={"user": "ada"})
    workspaces.create(body=body, namespace="service-p-dyn")
    assert [each.metadata.name for each in workspaces.get(namespace="service-p-dyn").items] == ["w"]
    assert [each.metadata.namespace for each in workspaces.get().items] == ["service-p-dyn"]
    projects.delete(name="dyn")


def test_a_closed_watch_continues_at_its_last_resource_version(apps: Any) -> None:
    """Events between the two watches must not be lost, duplicated or reordered."""
    since = apps.get().metadata.resourceVersion
    apps.create(body=build_app("one"))
    apps.create(body=build_app("two"))
    seen = take_events(apps.watch(resource_version=since, timeout=10), 1)
    assert summarize_events(seen) == [("ADDED", "one")]
    apps.patch(name="one", body={"spec": {"displayName": "x"}}, content_type=MERGE)
    apps.delete(name="two")
    apps.create(body=build_app("three"))
    last = seen[-1]["object"].metadata.resourceVersion
    again = take_events(apps.watch(resource_version=last, timeout=10), 4)
    assert summarize_events(again) == [("ADDED", "two"), ("MODIFIED", "one"), ("DELETED", "two"), ("ADDED", "three")]
    versions = [int(event["object"].metadata.resourceVersion) for event in [*seen, *again]]
    assert versions == sorted(set(versions))


def test_a_watch_without_a_version_begins_with_existing_objects(apps: Any) -> None:
    apps.create(body=build_app("one", {"a": "b"}))
    apps.create(body=build_app("two"))
    assert summarize_events(take_events(apps.watch(label_selector="a=b", timeout=10), 1)) == [("ADDED", "one")]


def take_events(events: Iterator[Any], count: int) -> list[Any]:
    """Returns the first events, then closes the connection in the middle of the stream."""
    taken_events = [event for _, event in zip(range(count), events, strict=False)]
    events.close()  # type: ignore[attr-defined]  # the client's generators are unannotated
    return taken_events


def summarize_events(events: Any) -> list[tuple[str, str]]:
    return [(event["type"], event["object"].metadata.name) for event in events]


def test_custom_objects_are_created_patched_replaced_and_deleted(custom: Any) -> None:
    custom.create_cluster_custom_object(*APPS, build_app("c", displayName="1"))
    patched = custom.patch_cluster_custom_object(*APPS, "c", {"spec": {"displayName": "2", "icon": None}})
    assert patched["spec"] == {"displayName": "2"}
    patched["spec"]["displayName"] = "3"
    assert custom.replace_cluster_custom_object(*APPS, "c", patched)["metadata"]["generation"] == 3
    listed = custom.list_cluster_custom_object(*APPS, field_selector="metadata.name=c")
    assert (listed["kind"], [each["spec"]["displayName"] for each in listed["items"]]) == ("AppList", ["3"])
    assert custom.delete_cluster_custom_object(*APPS, "c")["status"] == "Success"
    with pytest.raises(ApiException) as caught:
        custom.get_cluster_custom_object(*APPS, "c")
    assert caught.value.status == 404


def test_custom_objects_have_a_status_subresource(custom: Any) -> None:
    clusters = (GROUP, "v1", "clusters")
    custom.create_cluster_custom_object(
        *clusters, {"apiVersion": VERSION, "kind": "Cluster", "metadata": {"name": "c"}}
    )
    custom.patch_cluster_custom_object_status(*clusters, "c", {"status": {"phase": "Failed"}})
    assert custom.get_cluster_custom_object_status(*clusters, "c")["status"] == {"phase": "Failed"}
    custom.delete_collection_cluster_custom_object(*clusters)
    assert custom.list_cluster_custom_object(*clusters)["items"] == []


def test_a_watch_ends_at_its_timeout_and_the_next_one_continues(custom: Any) -> None:
    """The client keeps the last resource version and uses it for the next stream."""
    watcher: Any = watch.Watch()
    custom.create_cluster_custom_object(*APPS, build_app("one"))
    first = list(watcher.stream(custom.list_cluster_custom_object, *APPS, timeout_seconds=1))
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in first] == [("ADDED", "one")]
    custom.delete_cluster_custom_object(*APPS, "one")
    since = watcher.resource_version
    event = next(watcher.stream(custom.list_cluster_custom_object, *APPS, resource_version=since))
    assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "one")
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(since)


def test_a_watch_from_an_expired_version_raises_410(custom: Any) -> None:
    events = watch.Watch().stream(custom.list_cluster_custom_object, *APPS, resource_version="1")
    with pytest.raises(ApiException, match="too old resource version") as expired:
        next(events)
    assert expired.value.status == 410


def test_namespaces_can_be_read_with_the_typed_client(core: Any, namespace: str) -> None:
    assert core.read_namespace(namespace).status.phase == "Active"
    assert {"default", namespace} <= {each.metadata.name for each in core.list_namespace().items}


def test_configmaps_can_be_written_with_the_typed_client(core: Any, namespace: str) -> None:
    metadata = client.V1ObjectMeta(name="settings", labels={"a": "b"})
    core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=metadata, data={"x": "1"}))
    read = core.read_namespaced_config_map("settings", namespace)
    read.data["y"] = "2"
    assert core.replace_namespaced_config_map("settings", namespace, read).data == {"x": "1", "y": "2"}
    patched = core.patch_namespaced_config_map("settings", namespace, {"data": {"x": None}}, _content_type=MERGE)
    assert patched.data == {"y": "2"}
    assert core.patch_namespaced_config_map("settings", namespace, {"data": {"z": "3"}}).data == {"y": "2", "z": "3"}
    configmaps = core.list_config_map_for_all_namespaces(label_selector="a=b").items
    assert [each.metadata.name for each in configmaps] == ["settings"]
    core.delete_namespaced_config_map("settings", namespace)
    assert core.list_namespaced_config_map(namespace).items == []


def test_secrets_can_be_written_with_the_typed_client(core: Any, namespace: str) -> None:
    metadata = client.V1ObjectMeta(name="token")
    core.create_namespaced_secret(namespace, client.V1Secret(metadata=metadata, string_data={"key": "value"}))
    read = core.read_namespaced_secret("token", namespace)
    assert (read.type, read.data, read.string_data) == ("Opaque", {"key": "dmFsdWU="}, None)
    core.delete_namespaced_secret("token", namespace)


def test_events_can_be_written_with_the_typed_client(core: Any, namespace: str) -> None:
    involved_object = client.V1ObjectReference(api_version=VERSION, kind="App", name="a", namespace=namespace)
    event = client.CoreV1Event(
        metadata=client.V1ObjectMeta(generate_name="seen-"),
        involved_object=involved_object,
        reason="Seen",
        message="it was read",
        type="Normal",
        first_timestamp=datetime.now(UTC),
    )
    core.create_namespaced_event(namespace, event)
    (found,) = core.list_namespaced_event(namespace, field_selector="involvedObject.name=a").items
    assert (found.reason, found.message) == ("Seen", "it was read")
    assert found.metadata.name.startswith("seen-")


def test_leases_can_be_written_with_the_typed_client_and_keep_microseconds(api: Any, namespace: str) -> None:
    now = datetime.now(UTC).replace(microsecond=123456)
    spec = client.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15, renew_time=now)
    body = client.V1Lease(metadata=client.V1ObjectMeta(name="leader"), spec=spec)
    leases: Any = client.CoordinationV1Api(api)
    assert leases.create_namespaced_lease(namespace, body).spec.renew_time == now
    stale = leases.read_namespaced_lease("leader", namespace)
    stale.spec.holder_identity = "other"
    leases.replace_namespaced_lease("leader", namespace, stale)
    with pytest.raises(ApiException) as caught:
        leases.replace_namespaced_lease("leader", namespace, stale)
    assert caught.value.status == 409


def test_the_version_can_be_read(api: Any) -> None:
    assert client.VersionApi(api).get_code().git_version.startswith("v1.")


def test_an_invalid_key_raises_401_with_the_message_of_the_server(server: Server) -> None:
    configuration = client.Configuration(host=f"{server.url}/kubernetes/management")
    configuration.ssl_ca_cert = str(server.ca_file)
    configuration.api_key = {"authorization": "Bearer wrong"}
    with client.ApiClient(configuration) as unauthenticated, pytest.raises(ApiException) as caught:
        client.CoreV1Api(unauthenticated).list_namespace()
    assert caught.value.status == 401
    assert "invalid bearer token" in str(caught.value.body)
