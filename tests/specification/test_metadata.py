"""Each field of the metadata, on a real server."""

import re

import pytest

from tests.harness.server_process import MANAGEMENT
from tests.specification.api import (
    JSON_PATCH,
    MERGE_PATCH,
    PREFIX,
    Api,
    Object,
    build_object,
    unique_name,
    workspaces_path,
)

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def path_of(created: Object) -> str:
    return f"apps/{created['metadata']['name']}"


def test_a_name_is_required_and_unique(api: Api) -> None:
    assert api.send("POST", "apps", build_object("App")).status_code == 422
    created = api.create_app()
    second = api.send("POST", "apps", build_object("App", created["metadata"]["name"]))
    assert (second.status_code, second.json()["reason"]) == (409, "AlreadyExists")


def test_a_name_is_unique_in_its_namespace_only(api: Api) -> None:
    name = unique_name("ws")
    for project in (api.create_project(), api.create_project()):
        created = api.create(workspaces_path(project), build_object("DevPodWorkspaceInstance", name))
        assert created["metadata"]["namespace"] == f"{PREFIX}{project}"


def test_a_name_cannot_be_changed(api: Api) -> None:
    created = api.create_app()
    renamed = {**created, "metadata": {**created["metadata"], "name": unique_name()}}
    assert api.send("PUT", path_of(created), renamed).status_code == 400


def test_a_generated_name_starts_with_the_prefix(api: Api) -> None:
    first, second = (api.create("apps", build_object("App", generateName="gen-"))["metadata"] for _ in range(2))
    assert first["generateName"] == "gen-"
    assert first["name"] != second["name"]
    assert all(re.fullmatch("gen-.+", each["name"]) for each in (first, second))


def test_a_long_prefix_is_truncated_so_that_the_name_fits(api: Api) -> None:
    name = api.create("apps", build_object("App", generateName="p" * 200))["metadata"]["name"]
    assert len(name) <= 63 and name.startswith("pppp")


def test_the_prefix_is_ignored_if_there_is_a_name(api: Api) -> None:
    name = unique_name("given")
    assert api.create("apps", build_object("App", name, generateName="gen-"))["metadata"]["name"] == name


def test_a_prefix_must_be_a_valid_name(api: Api) -> None:
    response = api.send("POST", "apps", build_object("App", generateName="Not_A_Name"))
    assert (response.status_code, response.json()["reason"]) == (422, "Invalid")


def test_the_namespace_is_that_of_the_path(api: Api) -> None:
    here, there = api.create_project(), api.create_project()
    created = api.create(
        workspaces_path(here), build_object("DevPodWorkspaceInstance", unique_name(), namespace=f"{PREFIX}{here}")
    )
    assert created["metadata"]["namespace"] == f"{PREFIX}{here}"
    empty = api.create(workspaces_path(here), build_object("DevPodWorkspaceInstance", unique_name(), namespace=""))
    assert empty["metadata"]["namespace"] == f"{PREFIX}{here}"
    elsewhere = {**created, "metadata": {**created["metadata"], "namespace": f"{PREFIX}{there}"}}
    assert api.send("PUT", f"{workspaces_path(here)}/{created['metadata']['name']}", elsewhere).status_code == 400


@pytest.mark.parametrize("name", ["a.b", "Upper", "under_score", "-dash", "x" * 64])
def test_a_namespace_is_a_dns_label(api: Api, name: str) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert api.client.post(f"{MANAGEMENT}/api/v1/namespaces", json=namespace).status_code == 422
    assert api.send("POST", "projects", build_object("Project", name)).status_code == 422


def test_self_link_is_accepted_and_never_returned(api: Api) -> None:
    created = api.create_app(selfLink="/somewhere")
    assert "selfLink" not in created["metadata"]
    assert "selfLink" not in api.get(path_of(created))["metadata"]


def test_the_uid_is_set_by_the_server_and_never_changes(api: Api) -> None:
    created, other = api.create_app(uid="mine"), api.create_app()
    uid = created["metadata"]["uid"]
    assert uid not in ("mine", other["metadata"]["uid"])
    assert api.put(path_of(created), {**created, "spec": {"displayName": "d"}})["metadata"]["uid"] == uid
    stolen = {**created, "metadata": {"name": created["metadata"]["name"], "uid": other["metadata"]["uid"]}}
    assert api.send("PUT", path_of(created), stolen).status_code == 409


def test_the_resource_version_changes_with_updates_and_rejects_stale_ones(api: Api) -> None:
    created = api.create_app()
    before = created["metadata"]["resourceVersion"]
    assert api.get(path_of(created))["metadata"]["resourceVersion"] == before
    assert api.put(path_of(created), {**created, "spec": {"displayName": "d"}})["metadata"]["resourceVersion"] != before
    stale = api.send("PUT", path_of(created), {**created, "spec": {"displayName": "e"}})
    assert (stale.status_code, stale.json()["reason"]) == (409, "Conflict")


def test_a_watch_continues_from_a_resource_version(api: Api) -> None:
    created = api.create_app()
    since, name = created["metadata"]["resourceVersion"], created["metadata"]["name"]
    api.put(path_of(created), {**created, "spec": {"displayName": "d"}})
    query = f"apps?watch=true&timeoutSeconds=1&resourceVersion={since}&fieldSelector=metadata.name%3D{name}"
    watched = api.send("GET", query)
    assert [line.split('"')[3] for line in watched.text.splitlines()] == ["MODIFIED"]


def test_the_generation_counts_changes_of_the_spec(api: Api) -> None:
    created = api.create_app(generation=7)
    assert created["metadata"]["generation"] == 1
    labelled = api.patch(path_of(created), {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["generation"] == 1
    assert api.patch(path_of(created), {"spec": {"displayName": "d"}})["metadata"]["generation"] == 2


def test_the_creation_time_is_set_by_the_server_and_can_be_null_in_a_body(api: Api) -> None:
    unset, chosen = api.create_app(creationTimestamp=None), api.create_app(creationTimestamp="2001-01-01T00:00:00Z")
    for created in (unset, chosen):
        assert TIME.fullmatch(created["metadata"]["creationTimestamp"])
        assert not created["metadata"]["creationTimestamp"].startswith("2001")
    assert api.get("apps")["metadata"].get("creationTimestamp") is None


def test_a_deletion_time_is_set_once_and_not_by_clients(api: Api) -> None:
    created = api.create_app(finalizers=["example.com/hold"], deletionTimestamp="2001-01-01T00:00:00Z")
    assert "deletionTimestamp" not in created["metadata"]
    deleting = api.send("DELETE", path_of(created)).json()["metadata"]
    assert TIME.fullmatch(deleting["deletionTimestamp"])
    for value in (None, "2099-01-01T00:00:00Z"):
        stored = api.patch(path_of(created), {"metadata": {"deletionTimestamp": value}})
        assert stored["metadata"]["deletionTimestamp"] == deleting["deletionTimestamp"]
    second = api.send("DELETE", path_of(created)).json()["metadata"]
    assert second["deletionTimestamp"] <= deleting["deletionTimestamp"]
    api.patch(path_of(created), {"metadata": {"finalizers": None}})
    assert api.send("GET", path_of(created)).status_code == 404


def test_the_grace_period_is_set_with_the_deletion_and_read_only(api: Api) -> None:
    created = api.create_app(finalizers=["example.com/hold"], deletionGracePeriodSeconds=30)
    assert "deletionGracePeriodSeconds" not in created["metadata"]
    deleting = api.send("DELETE", path_of(created)).json()["metadata"]["deletionGracePeriodSeconds"]
    patch = {"metadata": {"deletionGracePeriodSeconds": deleting + 30}}
    assert api.send("PATCH", path_of(created), patch, MERGE_PATCH).status_code == 422
    assert api.get(path_of(created))["metadata"]["deletionGracePeriodSeconds"] == deleting
    api.patch(path_of(created), {"metadata": {"finalizers": None}})


def test_labels_can_be_selected(api: Api) -> None:
    label = unique_name("label")
    created = api.create_app(labels={"test": label})
    found = api.get(f"apps?labelSelector=test%3D{label}")["items"]
    assert [each["metadata"]["name"] for each in found] == [created["metadata"]["name"]]
    assert (
        api.send("POST", "apps", build_object("App", unique_name(), labels={"test": "not a value"})).status_code == 422
    )


def test_annotations_stay_when_another_field_changes(api: Api) -> None:
    created = api.create_app(annotations={"example.com/note": "any text, at all"})
    changed = api.patch(path_of(created), {"spec": {"displayName": "d"}})
    assert changed["metadata"]["annotations"] == {"example.com/note": "any text, at all"}


def test_finalizers_can_only_be_removed_during_deletion(api: Api) -> None:
    first, second = "example.com/a", "example.com/b"
    created = api.create_app(finalizers=[first, second])
    api.send("DELETE", path_of(created))
    more = {"metadata": {"finalizers": [first, second, "example.com/c"]}}
    assert api.send("PATCH", path_of(created), more, "application/merge-patch+json").status_code == 422
    swapped = api.patch(path_of(created), {"metadata": {"finalizers": [second, first]}})
    assert swapped["metadata"]["finalizers"] == [second, first]
    assert api.patch(path_of(created), {"metadata": {"finalizers": [first]}})["metadata"]["finalizers"] == [first]
    api.patch(path_of(created), '[{"op": "remove", "path": "/metadata/finalizers/0"}]', JSON_PATCH)
    assert api.send("GET", path_of(created)).status_code == 404


def test_managed_fields_record_manager_fields_and_operation(api: Api) -> None:
    created = api.create_app({"displayName": "d"})
    [build_entry] = created["metadata"]["managedFields"]
    assert build_entry["manager"].startswith("python-httpx")
    assert (build_entry["operation"], build_entry["apiVersion"]) == ("Update", "management.service.sh/v1")
    assert TIME.fullmatch(build_entry["time"])
    assert build_entry["fieldsType"] == "FieldsV1"
    assert "f:displayName" in build_entry["fieldsV1"]["f:spec"]
    assert build_entry.get("subresource", "") == ""


def test_managed_fields_distinguish_apply_update_and_subresources(api: Api) -> None:
    name = unique_name("applied")
    applied = {
        key: value for key, value in build_object("Project", name, {"displayName": "d"}).items() if key != "status"
    }
    query = "fieldManager=tests&force=true"
    response = api.send("PATCH", f"projects/{name}?{query}", applied, "application/apply-patch+yaml")
    assert response.status_code == 201, response.text
    condition = {"type": "Tested", "status": "True"}
    api.patch(f"projects/{name}/status", {"status": {"conditions": [condition]}})
    entries = api.get(f"projects/{name}")["metadata"]["managedFields"]
    by = {(each["manager"].partition("/")[0], each["operation"], each.get("subresource", "")) for each in entries}
    assert {("tests", "Apply", ""), ("python-httpx", "Update", "status")} <= by


def build_entry(manager: str, operation: str) -> Object:
    fields = {"fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:displayName": {}}}}
    return {"manager": manager, "operation": operation, "apiVersion": "management.service.sh/v1", **fields}


def test_managed_fields_have_two_operations_only(api: Api) -> None:
    created = api.create_app({"displayName": "d"})
    created["metadata"]["managedFields"] = [build_entry("one", "Apply"), build_entry("two", "Update")]
    stored = api.put(path_of(created), created)
    assert {each["manager"] for each in stored["metadata"]["managedFields"]} == {"one", "two"}
    stored["metadata"]["managedFields"] = [build_entry("one", "Apply"), build_entry("three", "Delete")]
    stored["spec"]["description"] = "changed"
    assert "three" not in {each["manager"] for each in api.put(path_of(created), stored)["metadata"]["managedFields"]}
