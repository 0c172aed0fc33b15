"""The official Python client: server-side apply, strategic merge patches, dry runs, and deletion policies.

`server_side_apply` of its dynamic client sends JSON with the content type of YAML.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

from tests.clients.objects import Body, build_app, build_cluster, build_core_object
from tests.clients.server import GROUP, VERSION, Server

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


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


@pytest.fixture
def configmaps(dynamic: Any) -> Iterator[Any]:
    configmaps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    yield configmaps
    configmaps.delete(namespace="default", field_selector="metadata.name!=none")


def build_configmap(**data: str) -> Body:
    return build_core_object("ConfigMap", "settings", "default", data=data)


def list_managers(obj: Any) -> list[tuple[str, str]]:
    return [(each.manager, each.operation) for each in obj.metadata.managedFields]


def get_names(objects: Any) -> list[str]:
    return [each.metadata.name for each in objects.items]


def test_two_managers_share_an_object(apps: Any) -> None:
    apps.server_side_apply(body=build_app("shared", {"of": "one"}, displayName="of one"), field_manager="one")
    shared = apps.server_side_apply(body=build_app("shared", icon="of two"), field_manager="two")
    assert shared.spec.to_dict() == {"displayName": "of one", "icon": "of two"}
    assert list_managers(shared) == [("one", "Apply"), ("two", "Apply")]
    remaining = apps.server_side_apply(body=build_app("shared"), field_manager="one")
    assert (remaining.spec.to_dict(), remaining.metadata.to_dict().get("labels")) == ({"icon": "of two"}, None)


def test_a_conflict_names_each_field_and_its_owner(apps: Any) -> None:
    apps.server_side_apply(body=build_app("contested", displayName="1", icon="1"), field_manager="one")
    apps.patch(name="contested", body={"spec": {"description": "1"}}, content_type=MERGE, field_manager="writer")
    body = build_app("contested", displayName="2", icon="1", description="2")
    with pytest.raises(ConflictError) as caught:
        apps.server_side_apply(body=body, field_manager="two")
    status = json.loads(str(caught.value.body))
    assert (caught.value.status, status["reason"]) == (409, "Conflict")
    assert sorted((each["reason"], each["field"], each["message"]) for each in status["details"]["causes"]) == [
        ("FieldManagerConflict", ".spec.description", f'conflict with "writer" using {VERSION}'),
        ("FieldManagerConflict", ".spec.displayName", 'conflict with "one"'),
    ]
    forced = apps.server_side_apply(body=body, field_manager="two", force_conflicts=True)
    assert forced.spec.to_dict() == body["spec"]
    assert list_managers(forced) == [("one", "Apply"), ("two", "Apply")], (
        "`one` still owns the icon, and `writer` owns nothing"
    )


def test_applying_the_same_fields_again_writes_nothing(apps: Any) -> None:
    first = apps.server_side_apply(body=build_app("same", displayName="1"), field_manager="one")
    again = apps.server_side_apply(body=build_app("same", displayName="1"), field_manager="one")
    assert again.to_dict() == first.to_dict()


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {}, "fieldManager: Required value"),
        ({"metadata": {"name": "x", "managedFields": []}}, {"field_manager": "one"}, "managedFields must be nil"),
        ({"kind": "Cluster"}, {"field_manager": "one"}, "invalid object type"),
    ],
    ids=["no manager", "a record of managers", "another kind"],
)
def test_an_invalid_apply_is_rejected(apps: Any, changes: Body, options: Body, message: str) -> None:
    with pytest.raises(ApiException, match=message):
        apps.server_side_apply(body={**build_app("x"), **changes}, name="x", **options)


def test_an_apply_with_a_stale_resource_version_is_a_conflict(apps: Any) -> None:
    first = apps.server_side_apply(body=build_app("known", displayName="1"), field_manager="one")
    apps.patch(name="known", body={"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
    stale = build_app("known", displayName="2")
    stale["metadata"]["resourceVersion"] = first.metadata.resourceVersion
    with pytest.raises(ConflictError, match="the object has been modified"):
        apps.server_side_apply(body=stale, field_manager="one", force_conflicts=True)


def test_the_status_subresource_can_be_applied(dynamic: Any) -> None:
    clusters = dynamic.resources.get(api_version=VERSION, kind="Cluster")
    clusters.server_side_apply(body=build_cluster("c", displayName="C"), field_manager="one")
    body = {**build_cluster("c", displayName="ignored"), "status": {"phase": "Failed"}}
    clusters.status.server_side_apply(body=body, field_manager="two")
    read = clusters.get(name="c")
    assert (read.spec.to_dict(), read.status.to_dict()) == ({"displayName": "C"}, {"phase": "Failed"})
    assert [each.get("subresource") for each in read.to_dict()["metadata"]["managedFields"]] == [None, "status"]
    clusters.delete(name="c")


def test_typed_clients_apply_core_kinds(api: Any, configmaps: Any) -> None:
    typed: Any = client.CoreV1Api(api)

    def apply(manager: str, force: bool = False, **data: str) -> Any:
        options = {"field_manager": manager, "force": force, "_content_type": APPLY}
        return typed.patch_namespaced_config_map("settings", "default", build_configmap(**data), **options).data

    assert apply("one", a="1", b="1") == {"a": "1", "b": "1"}
    assert apply("two", c="2") == {"a": "1", "b": "1", "c": "2"}
    with pytest.raises(ApiException, match="FieldManagerConflict") as caught:
        apply("two", b="2", c="2")
    assert caught.value.status == 409
    assert apply("two", force=True, b="2", c="2") == {"a": "1", "b": "2", "c": "2"}
    assert apply("one", a="1") == {"a": "1", "b": "2", "c": "2"}


def test_a_strategic_merge_patch_of_a_configmap_merges_removes_and_replaces(configmaps: Any) -> None:
    configmaps.create(body=build_configmap(a="1", b="1"))

    def patch(body: Body) -> Any:
        return configmaps.patch(name="settings", namespace="default", body=body)

    assert patch({"data": {"b": None, "c": "2"}}).data.to_dict() == {"a": "1", "c": "2"}
    assert patch({"data": {"$patch": "replace", "d": "3"}}).data.to_dict() == {"d": "3"}
    assert patch({"metadata": {"finalizers": ["example.com/a"]}}).metadata.finalizers == ["example.com/a"]
    both = patch({"metadata": {"finalizers": ["example.com/b"]}}).metadata.finalizers
    assert sorted(both) == ["example.com/a", "example.com/b"]
    remaining = patch({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a", "example.com/b"]}})
    assert not remaining.metadata.to_dict().get("finalizers")


def test_a_strategic_merge_patch_merges_owners_by_uid_and_replaces_plain_lists(apps: Any) -> None:
    first, second = (apps.create(body=build_app(name)) for name in ("first", "second"))
    apps.create(
        body=build_app("owned", displayName="1", recommendedApp=["cluster"], config={"chart": {"name": "nginx"}})
    )
    for owner in (first, second):
        patched = apps.patch(name="owned", body={"metadata": {"ownerReferences": [build_owner_reference(owner)]}})
    assert sorted(each.name for each in patched.metadata.ownerReferences) == ["first", "second"]
    removal = {"$patch": "delete", "uid": first.metadata.uid}
    patched = apps.patch(name="owned", body={"metadata": {"ownerReferences": [removal]}})
    assert [each.name for each in patched.metadata.ownerReferences] == ["second"]
    patched = apps.patch(name="owned", body={"spec": {"recommendedApp": ["space"], "config": {"values": "a: b"}}})
    assert patched.spec.to_dict() == {
        "displayName": "1",
        "recommendedApp": ["space"],
        "config": {"chart": {"name": "nginx"}, "values": "a: b"},
    }


def build_owner_reference(owner: Any) -> Body:
    return {"apiVersion": VERSION, "kind": "App", "name": owner.metadata.name, "uid": owner.metadata.uid}


def test_a_collection_is_deleted_by_labels(apps: Any, configmaps: Any) -> None:
    for number in range(4):
        apps.create(body=build_app(f"n{number}", {"odd": str(number % 2)}))
        metadata = {"name": f"n{number}", "namespace": "default", "labels": {"odd": str(number % 2)}}
        configmaps.create(body={**build_configmap(), "metadata": metadata})
    assert get_names(apps.delete(label_selector="odd=1")) == ["n1", "n3"]
    assert get_names(apps.get()) == ["n0", "n2"]
    configmaps.delete(namespace="default", label_selector="odd in (1)")
    assert get_names(configmaps.get(namespace="default")) == ["n0", "n2"]


WRITES: dict[str, Callable[[Any], Any]] = {
    "create": lambda apps: apps.create(body=build_app("new"), dry_run="All"),
    "replace": lambda apps: apps.replace(body={**apps.get(name="dry").to_dict(), "spec": {}}, dry_run="All"),
    "merge": lambda apps: apps.patch(name="dry", body={"spec": None}, content_type=MERGE, dry_run="All"),
    "strategic": lambda apps: apps.patch(name="dry", body={"spec": None}, dry_run="All"),
    "apply": lambda apps: apps.server_side_apply(body=build_app("dry", icon="i"), field_manager="one", dry_run="All"),
    "apply new": lambda apps: apps.server_side_apply(body=build_app("new"), field_manager="one", dry_run="All"),
    "delete": lambda apps: apps.delete(name="dry", dry_run="All"),
    "delete all": lambda apps: apps.delete(label_selector="!none", dry_run="All"),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_dry_run_changes_nothing(apps: Any, write: str) -> None:
    apps.create(body=build_app("dry", displayName="D"))
    before = apps.get().to_dict()["items"]  # the version of the list changes with each write of the server
    WRITES[write](apps)
    assert apps.get().to_dict()["items"] == before


def test_a_dry_run_returns_the_same_response_as_the_real_request(apps: Any) -> None:
    applied = apps.server_side_apply(body=build_app("new", displayName="N"), field_manager="one", dry_run="All")
    assert (applied.spec.displayName, list_managers(applied)) == ("N", [("one", "Apply")])
    with pytest.raises(ApiException) as caught:
        apps.server_side_apply(body=build_app("new", displayName=5), field_manager="one", dry_run="All")
    assert caught.value.status == 400
    with pytest.raises(NotFoundError):
        apps.delete(name="new", dry_run="All")


def test_a_typed_client_deletes_with_policy_orphan_and_preconditions(api: Any, configmaps: Any) -> None:
    """The policy is in the body of the request."""
    owner = configmaps.create(body=build_configmap())
    owner_reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "settings", "uid": owner.metadata.uid}
    dependent = build_core_object("ConfigMap", "dependent", "default")
    dependent["metadata"]["ownerReferences"] = [owner_reference]
    configmaps.create(body=dependent)
    version = owner.metadata.resourceVersion
    typed: Any = client.CoreV1Api(api)
    options: Any = client.V1DeleteOptions(
        propagation_policy="Orphan", preconditions=client.V1Preconditions(uid="another")
    )
    with pytest.raises(ApiException) as caught:
        typed.delete_namespaced_config_map("settings", "default", body=options)
    assert caught.value.status == 409
    options.preconditions.uid = owner.metadata.uid
    typed.delete_namespaced_config_map("settings", "default", body=options)
    for event in configmaps.watch(namespace="default", resource_version=version, timeout=20):
        if (event["type"], event["object"].metadata.name) == ("DELETED", "settings"):
            break
    remaining = configmaps.get(name="dependent", namespace="default").metadata
    assert (remaining.to_dict().get("ownerReferences"), remaining.to_dict().get("deletionTimestamp")) == (None, None)


def test_the_details_of_already_exists_have_name_group_and_kind(apps: Any) -> None:
    apps.create(body=build_app("taken"))
    with pytest.raises(ConflictError) as caught:
        apps.create(body=build_app("taken"))
    status = json.loads(str(caught.value.body))
    assert (status["reason"], status["details"]) == ("AlreadyExists", {"name": "taken", "group": GROUP, "kind": "apps"})


def test_a_client_that_sends_a_large_body_gets_the_401_response(server: Server) -> None:
    """The server rejects the request before it has read the body; the client reads the response afterwards."""
    configuration = client.Configuration(host=f"{server.url}/kubernetes/management")
    configuration.ssl_ca_cert = str(server.ca_file)
    configuration.api_key = {"authorization": "Bearer wrong"}
    configuration.retries = False
    with client.ApiClient(configuration) as unauthenticated:
        core_api: Any = client.CoreV1Api(unauthenticated)
        for _ in range(100):
            with pytest.raises(ApiException, match="invalid bearer token"):
                core_api.create_namespaced_config_map("default", build_configmap(large="x" * 200_000))
