"""Each field of the metadata, on a real server."""

import re

import pytest

from tests.harness.server_process import MANAGEMENT
from tests.specification.api import JSON_PATCH, PREFIX, Api, Body, body, fresh, workspaces

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def path_of(made: Body) -> str:
    return f"apps/{made['metadata']['name']}"


def test_a_name_is_needed_and_taken_once(api: Api) -> None:
    assert api.send("POST", "apps", body("App")).status_code == 422
    made = api.app()
    again = api.send("POST", "apps", body("App", made["metadata"]["name"]))
    assert (again.status_code, again.json()["reason"]) == (409, "AlreadyExists")


def test_a_name_is_unique_in_its_namespace_only(api: Api) -> None:
    name = fresh("ws")
    for project in (api.project(), api.project()):
        made = api.make(workspaces(project), body("DevPodWorkspaceInstance", name))
        assert made["metadata"]["namespace"] == f"{PREFIX}{project}"


def test_a_name_cannot_be_changed(api: Api) -> None:
    made = api.app()
    renamed = {**made, "metadata": {**made["metadata"], "name": fresh()}}
    assert api.send("PUT", path_of(made), renamed).status_code == 400


def test_a_generated_name_begins_with_the_prefix_and_differs_from_it(api: Api) -> None:
    first, second = (api.make("apps", body("App", generateName="gen-"))["metadata"] for _ in range(2))
    assert first["generateName"] == "gen-"
    assert first["name"] != second["name"]
    assert all(re.fullmatch("gen-.+", each["name"]) for each in (first, second))


def test_a_long_prefix_is_cut_so_that_the_name_fits(api: Api) -> None:
    name = api.make("apps", body("App", generateName="p" * 200))["metadata"]["name"]
    assert len(name) <= 63 and name.startswith("pppp")


def test_a_prefix_means_nothing_where_a_name_is_given(api: Api) -> None:
    name = fresh("given")
    assert api.make("apps", body("App", name, generateName="gen-"))["metadata"]["name"] == name


def test_a_prefix_keeps_the_rules_of_names(api: Api) -> None:
    refused = api.send("POST", "apps", body("App", generateName="Not_A_Name"))
    assert (refused.status_code, refused.json()["reason"]) == (422, "Invalid")


def test_the_namespace_is_that_of_the_path(api: Api) -> None:
    here, there = api.project(), api.project()
    made = api.make(workspaces(here), body("DevPodWorkspaceInstance", fresh(), namespace=f"{PREFIX}{here}"))
    assert made["metadata"]["namespace"] == f"{PREFIX}{here}"
    empty = api.make(workspaces(here), body("DevPodWorkspaceInstance", fresh(), namespace=""))
    assert empty["metadata"]["namespace"] == f"{PREFIX}{here}"
    elsewhere = {**made, "metadata": {**made["metadata"], "namespace": f"{PREFIX}{there}"}}
    assert api.send("PUT", f"{workspaces(here)}/{made['metadata']['name']}", elsewhere).status_code == 400


@pytest.mark.parametrize("name", ["a.b", "Upper", "under_score", "-dash", "x" * 64])
def test_a_namespace_is_a_dns_label(api: Api, name: str) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert api.client.post(f"{MANAGEMENT}/api/v1/namespaces", json=namespace).status_code == 422
    assert api.send("POST", "projects", body("Project", name)).status_code == 422


def test_self_link_is_taken_and_never_answered(api: Api) -> None:
    made = api.app(selfLink="/somewhere")
    assert "selfLink" not in made["metadata"]
    assert "selfLink" not in api.get(path_of(made))["metadata"]


def test_the_uid_is_the_servers_and_stays(api: Api) -> None:
    made, other = api.app(uid="mine"), api.app()
    uid = made["metadata"]["uid"]
    assert uid not in ("mine", other["metadata"]["uid"])
    assert api.put(path_of(made), {**made, "spec": {"displayName": "d"}})["metadata"]["uid"] == uid
    stolen = {**made, "metadata": {"name": made["metadata"]["name"], "uid": other["metadata"]["uid"]}}
    assert api.send("PUT", path_of(made), stolen).status_code == 409


def test_the_resource_version_tells_changes_and_refuses_stale_ones(api: Api) -> None:
    made = api.app()
    before = made["metadata"]["resourceVersion"]
    assert api.get(path_of(made))["metadata"]["resourceVersion"] == before
    assert api.put(path_of(made), {**made, "spec": {"displayName": "d"}})["metadata"]["resourceVersion"] != before
    stale = api.send("PUT", path_of(made), {**made, "spec": {"displayName": "e"}})
    assert (stale.status_code, stale.json()["reason"]) == (409, "Conflict")


def test_a_watch_goes_on_from_a_resource_version(api: Api) -> None:
    made = api.app()
    since, name = made["metadata"]["resourceVersion"], made["metadata"]["name"]
    api.put(path_of(made), {**made, "spec": {"displayName": "d"}})
    query = f"apps?watch=true&timeoutSeconds=1&resourceVersion={since}&fieldSelector=metadata.name%3D{name}"
    watched = api.send("GET", query)
    assert [line.split('"')[3] for line in watched.text.splitlines()] == ["MODIFIED"]


def test_the_generation_counts_changes_of_the_spec(api: Api) -> None:
    made = api.app(generation=7)
    assert made["metadata"]["generation"] == 1
    labelled = api.patch(path_of(made), {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["generation"] == 1
    assert api.patch(path_of(made), {"spec": {"displayName": "d"}})["metadata"]["generation"] == 2


def test_the_creation_time_is_the_servers_and_null_in_a_body_is_fine(api: Api) -> None:
    unset, chosen = api.app(creationTimestamp=None), api.app(creationTimestamp="2001-01-01T00:00:00Z")
    for made in (unset, chosen):
        assert TIME.fullmatch(made["metadata"]["creationTimestamp"])
        assert not made["metadata"]["creationTimestamp"].startswith("2001")
    assert api.get("apps")["metadata"].get("creationTimestamp") is None


def test_a_deletion_time_is_set_once_and_not_by_clients(api: Api) -> None:
    made = api.app(finalizers=["example.com/hold"], deletionTimestamp="2001-01-01T00:00:00Z")
    assert "deletionTimestamp" not in made["metadata"]
    going = api.send("DELETE", path_of(made)).json()["metadata"]
    assert TIME.fullmatch(going["deletionTimestamp"])
    for value in (None, "2099-01-01T00:00:00Z"):
        kept = api.patch(path_of(made), {"metadata": {"deletionTimestamp": value}})
        assert kept["metadata"]["deletionTimestamp"] == going["deletionTimestamp"]
    again = api.send("DELETE", path_of(made)).json()["metadata"]
    assert again["deletionTimestamp"] <= going["deletionTimestamp"]
    api.patch(path_of(made), {"metadata": {"finalizers": None}})
    assert api.send("GET", path_of(made)).status_code == 404


def test_the_grace_period_comes_with_the_deletion_and_is_read_only(api: Api) -> None:
    made = api.app(finalizers=["example.com/hold"], deletionGracePeriodSeconds=30)
    assert "deletionGracePeriodSeconds" not in made["metadata"]
    going = api.send("DELETE", path_of(made)).json()["metadata"]["deletionGracePeriodSeconds"]
    changed = api.patch(path_of(made), {"metadata": {"deletionGracePeriodSeconds": going + 30}})
    assert changed["metadata"]["deletionGracePeriodSeconds"] == going
    api.patch(path_of(made), {"metadata": {"finalizers": None}})


def test_labels_select(api: Api) -> None:
    label = fresh("label")
    made = api.app(labels={"test": label})
    found = api.get(f"apps?labelSelector=test%3D{label}")["items"]
    assert [each["metadata"]["name"] for each in found] == [made["metadata"]["name"]]
    assert api.send("POST", "apps", body("App", fresh(), labels={"test": "not a value"})).status_code == 422


def test_annotations_are_kept_when_something_else_changes(api: Api) -> None:
    made = api.app(annotations={"example.com/note": "any text, at all"})
    changed = api.patch(path_of(made), {"spec": {"displayName": "d"}})
    assert changed["metadata"]["annotations"] == {"example.com/note": "any text, at all"}


def test_finalizers_only_go_while_an_object_is_being_deleted(api: Api) -> None:
    first, second = "example.com/a", "example.com/b"
    made = api.app(finalizers=[first, second])
    api.send("DELETE", path_of(made))
    more = {"metadata": {"finalizers": [first, second, "example.com/c"]}}
    assert api.send("PATCH", path_of(made), more, "application/merge-patch+json").status_code == 422
    swapped = api.patch(path_of(made), {"metadata": {"finalizers": [second, first]}})
    assert swapped["metadata"]["finalizers"] == [second, first]
    assert api.patch(path_of(made), {"metadata": {"finalizers": [first]}})["metadata"]["finalizers"] == [first]
    api.patch(path_of(made), '[{"op": "remove", "path": "/metadata/finalizers/0"}]', JSON_PATCH)
    assert api.send("GET", path_of(made)).status_code == 404


def test_managed_fields_tell_who_wrote_what_and_how(api: Api) -> None:
    made = api.app({"displayName": "d"})
    [entry] = made["metadata"]["managedFields"]
    assert entry["manager"].startswith("python-httpx")
    assert (entry["operation"], entry["apiVersion"]) == ("Update", "management.service.sh/v1")
    assert TIME.fullmatch(entry["time"])
    assert entry["fieldsType"] == "FieldsV1"
    assert "f:displayName" in entry["fieldsV1"]["f:spec"]
    assert entry.get("subresource", "") == ""


def test_managed_fields_tell_apply_from_update_and_the_subresource(api: Api) -> None:
    name = fresh("applied")
    applied = {key: value for key, value in body("Project", name, {"displayName": "d"}).items() if key != "status"}
    query = "fieldManager=tests&force=true"
    answer = api.send("PATCH", f"projects/{name}?{query}", applied, "application/apply-patch+yaml")
    assert answer.status_code == 201, answer.text
    condition = {"type": "Tested", "status": "True"}
    api.patch(f"projects/{name}/status", {"status": {"conditions": [condition]}})
    entries = api.get(f"projects/{name}")["metadata"]["managedFields"]
    by = {(each["manager"].partition("/")[0], each["operation"], each.get("subresource", "")) for each in entries}
    assert {("tests", "Apply", ""), ("python-httpx", "Update", "status")} <= by


def entry(manager: str, operation: str) -> Body:
    fields = {"fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:displayName": {}}}}
    return {"manager": manager, "operation": operation, "apiVersion": "management.service.sh/v1", **fields}


def test_managed_fields_know_two_operations_only(api: Api) -> None:
    made = api.app({"displayName": "d"})
    made["metadata"]["managedFields"] = [entry("one", "Apply"), entry("two", "Update")]
    kept = api.put(path_of(made), made)
    assert {each["manager"] for each in kept["metadata"]["managedFields"]} == {"one", "two"}
    kept["metadata"]["managedFields"] = [entry("one", "Apply"), entry("three", "Delete")]
    kept["spec"]["description"] = "changed"
    assert "three" not in {each["manager"] for each in api.put(path_of(made), kept)["metadata"]["managedFields"]}
