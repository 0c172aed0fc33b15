"""The official Python client, where several write to one object: apply, strategic merge patches, dry runs, and ends.

What its dynamic client calls `server_side_apply` sends JSON under the name of YAML.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

from tests.clients.objects import Body, app, cluster, core
from tests.clients.server import GROUP, VERSION, Server

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[Any]:
    with config.new_client_from_config(str(server.kubeconfig)) as api:
        yield api


@pytest.fixture(scope="module")
def dynamic(api: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Its discovery cache goes by the host, so it must not outlive this server."""
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


def settings(**data: str) -> Body:
    return core("ConfigMap", "settings", "default", data=data)


def managers(obj: Any) -> list[tuple[str, str]]:
    return [(each.manager, each.operation) for each in obj.metadata.managedFields]


def names(found: Any) -> list[str]:
    return [each.metadata.name for each in found.items]


def test_two_managers_share_an_object(apps: Any) -> None:
    apps.server_side_apply(body=app("shared", {"of": "one"}, displayName="of one"), field_manager="one")
    shared = apps.server_side_apply(body=app("shared", icon="of two"), field_manager="two")
    assert shared.spec.to_dict() == {"displayName": "of one", "icon": "of two"}
    assert managers(shared) == [("one", "Apply"), ("two", "Apply")]
    left = apps.server_side_apply(body=app("shared"), field_manager="one")
    assert (left.spec.to_dict(), left.metadata.to_dict().get("labels")) == ({"icon": "of two"}, None)


def test_a_conflict_names_each_field_and_its_owner(apps: Any) -> None:
    apps.server_side_apply(body=app("contested", displayName="1", icon="1"), field_manager="one")
    apps.patch(name="contested", body={"spec": {"description": "1"}}, content_type=MERGE, field_manager="writer")
    wanted = app("contested", displayName="2", icon="1", description="2")
    with pytest.raises(ConflictError) as refused:
        apps.server_side_apply(body=wanted, field_manager="two")
    status = json.loads(str(refused.value.body))
    assert (refused.value.status, status["reason"]) == (409, "Conflict")
    assert sorted((each["reason"], each["field"], each["message"]) for each in status["details"]["causes"]) == [
        ("FieldManagerConflict", ".spec.description", f'conflict with "writer" using {VERSION}'),
        ("FieldManagerConflict", ".spec.displayName", 'conflict with "one"'),
    ]
    forced = apps.server_side_apply(body=wanted, field_manager="two", force_conflicts=True)
    assert forced.spec.to_dict() == wanted["spec"]
    assert managers(forced) == [("one", "Apply"), ("two", "Apply")], (
        "one still shares the icon; nothing is the writer's"
    )


def test_nothing_is_written_if_what_is_applied_is_there_already(apps: Any) -> None:
    first = apps.server_side_apply(body=app("same", displayName="1"), field_manager="one")
    again = apps.server_side_apply(body=app("same", displayName="1"), field_manager="one")
    assert again.to_dict() == first.to_dict()


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({}, {}, "fieldManager: Required value"),
        ({"metadata": {"name": "x", "managedFields": []}}, {"field_manager": "one"}, "managedFields must be nil"),
        ({"kind": "Cluster"}, {"field_manager": "one"}, "invalid object type"),
    ],
    ids=["no manager", "a record of managers", "another kind"],
)
def test_an_apply_is_refused_for(apps: Any, changes: Body, options: Body, words: str) -> None:
    with pytest.raises(ApiException, match=words):
        apps.server_side_apply(body={**app("x"), **changes}, name="x", **options)


def test_an_apply_can_insist_on_the_version_that_it_knows(apps: Any) -> None:
    first = apps.server_side_apply(body=app("known", displayName="1"), field_manager="one")
    apps.patch(name="known", body={"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
    stale = app("known", displayName="2")
    stale["metadata"]["resourceVersion"] = first.metadata.resourceVersion
    with pytest.raises(ConflictError, match="the object has been modified"):
        apps.server_side_apply(body=stale, field_manager="one", force_conflicts=True)


def test_a_status_is_applied_by_itself(dynamic: Any) -> None:
    clusters = dynamic.resources.get(api_version=VERSION, kind="Cluster")
    clusters.server_side_apply(body=cluster("c", displayName="C"), field_manager="one")
    body = {**cluster("c", displayName="ignored"), "status": {"phase": "Failed"}}
    clusters.status.server_side_apply(body=body, field_manager="two")
    read = clusters.get(name="c")
    assert (read.spec.to_dict(), read.status.to_dict()) == ({"displayName": "C"}, {"phase": "Failed"})
    assert [each.get("subresource") for each in read.to_dict()["metadata"]["managedFields"]] == [None, "status"]
    clusters.delete(name="c")


def test_typed_clients_apply_core_kinds(api: Any, configmaps: Any) -> None:
    typed: Any = client.CoreV1Api(api)

    def apply(manager: str, force: bool = False, **data: str) -> Any:
        options = {"field_manager": manager, "force": force, "_content_type": APPLY}
        return typed.patch_namespaced_config_map("settings", "default", settings(**data), **options).data

    assert apply("one", a="1", b="1") == {"a": "1", "b": "1"}
    assert apply("two", c="2") == {"a": "1", "b": "1", "c": "2"}
    with pytest.raises(ApiException, match="FieldManagerConflict") as refused:
        apply("two", b="2", c="2")
    assert refused.value.status == 409
    assert apply("two", force=True, b="2", c="2") == {"a": "1", "b": "2", "c": "2"}
    assert apply("one", a="1") == {"a": "1", "b": "2", "c": "2"}


def test_a_strategic_patch_of_a_configmap_merges_removes_and_replaces(configmaps: Any) -> None:
    configmaps.create(body=settings(a="1", b="1"))

    def patch(body: Body) -> Any:
        return configmaps.patch(name="settings", namespace="default", body=body)

    assert patch({"data": {"b": None, "c": "2"}}).data.to_dict() == {"a": "1", "c": "2"}
    assert patch({"data": {"$patch": "replace", "d": "3"}}).data.to_dict() == {"d": "3"}
    assert patch({"metadata": {"finalizers": ["example.com/a"]}}).metadata.finalizers == ["example.com/a"]
    both = patch({"metadata": {"finalizers": ["example.com/b"]}}).metadata.finalizers
    assert sorted(both) == ["example.com/a", "example.com/b"]
    left = patch({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a", "example.com/b"]}})
    assert not left.metadata.to_dict().get("finalizers")


def test_a_strategic_patch_of_an_app_merges_owners_by_uid_and_replaces_plain_lists(apps: Any) -> None:
    first, second = (apps.create(body=app(name)) for name in ("first", "second"))
    apps.create(body=app("owned", displayName="1", recommendedApp=["cluster"], config={"chart": {"name": "nginx"}}))
    for owner in (first, second):
        patched = apps.patch(name="owned", body={"metadata": {"ownerReferences": [reference(owner)]}})
    assert sorted(each.name for each in patched.metadata.ownerReferences) == ["first", "second"]
    gone = {"$patch": "delete", "uid": first.metadata.uid}
    patched = apps.patch(name="owned", body={"metadata": {"ownerReferences": [gone]}})
    assert [each.name for each in patched.metadata.ownerReferences] == ["second"]
    patched = apps.patch(name="owned", body={"spec": {"recommendedApp": ["space"], "config": {"values": "a: b"}}})
    assert patched.spec.to_dict() == {
        "displayName": "1",
        "recommendedApp": ["space"],
        "config": {"chart": {"name": "nginx"}, "values": "a: b"},
    }


def reference(owner: Any) -> Body:
    return {"apiVersion": VERSION, "kind": "App", "name": owner.metadata.name, "uid": owner.metadata.uid}


def test_a_collection_is_deleted_by_labels(apps: Any, configmaps: Any) -> None:
    for number in range(4):
        apps.create(body=app(f"n{number}", {"odd": str(number % 2)}))
        labelled = {"name": f"n{number}", "namespace": "default", "labels": {"odd": str(number % 2)}}
        configmaps.create(body={**settings(), "metadata": labelled})
    assert names(apps.delete(label_selector="odd=1")) == ["n1", "n3"]
    assert names(apps.get()) == ["n0", "n2"]
    configmaps.delete(namespace="default", label_selector="odd in (1)")
    assert names(configmaps.get(namespace="default")) == ["n0", "n2"]


WRITES: dict[str, Callable[[Any], Any]] = {
    "create": lambda apps: apps.create(body=app("new"), dry_run="All"),
    "replace": lambda apps: apps.replace(body={**apps.get(name="dry").to_dict(), "spec": {}}, dry_run="All"),
    "merge": lambda apps: apps.patch(name="dry", body={"spec": None}, content_type=MERGE, dry_run="All"),
    "strategic": lambda apps: apps.patch(name="dry", body={"spec": None}, dry_run="All"),
    "apply": lambda apps: apps.server_side_apply(body=app("dry", icon="i"), field_manager="one", dry_run="All"),
    "apply anew": lambda apps: apps.server_side_apply(body=app("new"), field_manager="one", dry_run="All"),
    "delete": lambda apps: apps.delete(name="dry", dry_run="All"),
    "delete all": lambda apps: apps.delete(label_selector="!none", dry_run="All"),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_dry_run_changes_nothing(apps: Any, write: str) -> None:
    apps.create(body=app("dry", displayName="D"))
    before = apps.get().to_dict()
    WRITES[write](apps)
    assert apps.get().to_dict() == before


def test_a_dry_run_answers_as_if_it_were_meant(apps: Any) -> None:
    applied = apps.server_side_apply(body=app("new", displayName="N"), field_manager="one", dry_run="All")
    assert (applied.spec.displayName, managers(applied)) == ("N", [("one", "Apply")])
    with pytest.raises(ApiException) as refused:
        apps.server_side_apply(body=app("new", displayName=5), field_manager="one", dry_run="All")
    assert refused.value.status == 400
    with pytest.raises(NotFoundError):
        apps.delete(name="new", dry_run="All")


def test_a_typed_client_deletes_and_leaves_dependants(api: Any, configmaps: Any) -> None:
    """The policy goes into the body of the request."""
    owner = configmaps.create(body=settings())
    about = {"apiVersion": "v1", "kind": "ConfigMap", "name": "settings", "uid": owner.metadata.uid}
    dependant = core("ConfigMap", "dependant", "default")
    dependant["metadata"]["ownerReferences"] = [about]
    configmaps.create(body=dependant)
    version = owner.metadata.resourceVersion
    typed: Any = client.CoreV1Api(api)
    options: Any = client.V1DeleteOptions(
        propagation_policy="Orphan", preconditions=client.V1Preconditions(uid="another")
    )
    with pytest.raises(ApiException) as refused:
        typed.delete_namespaced_config_map("settings", "default", body=options)
    assert refused.value.status == 409
    options.preconditions.uid = owner.metadata.uid
    typed.delete_namespaced_config_map("settings", "default", body=options)
    for event in configmaps.watch(namespace="default", resource_version=version, timeout=20):
        if (event["type"], event["object"].metadata.name) == ("DELETED", "settings"):
            break
    left = configmaps.get(name="dependant", namespace="default").metadata
    assert (left.to_dict().get("ownerReferences"), left.to_dict().get("deletionTimestamp")) == (None, None)


def test_the_group_of_a_conflict_is_told(apps: Any) -> None:
    apps.create(body=app("taken"))
    with pytest.raises(ConflictError) as refused:
        apps.create(body=app("taken"))
    status = json.loads(str(refused.value.body))
    assert (status["reason"], status["details"]) == ("AlreadyExists", {"name": "taken", "group": GROUP, "kind": "apps"})


def test_a_refusal_reaches_whoever_sends_a_large_object(server: Server) -> None:
    """The body is still on its way when it is known that nobody wants it; its sender reads the answer afterwards."""
    configuration = client.Configuration(host=f"{server.url}/kubernetes/management")
    configuration.ssl_ca_cert = str(server.ca_file)
    configuration.api_key = {"authorization": "Bearer wrong"}
    configuration.retries = False
    with client.ApiClient(configuration) as stranger:
        core_api: Any = client.CoreV1Api(stranger)
        for _ in range(100):
            with pytest.raises(ApiException, match="invalid bearer token"):
                core_api.create_namespaced_config_map("default", settings(large="x" * 200_000))
