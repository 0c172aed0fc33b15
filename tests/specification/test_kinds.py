"""Workspaces, apps and clusters: their fields, and the six operations on each."""

from typing import Any

import httpx
import pytest
import yaml

from tests.specification.api import JSON_PATCH, PREFIX, VERSION, Api, Object, build_object, unique_name, workspaces_path

WORKSPACE = {
    "displayName": "My workspace",
    "owner": {"user": "admin"},
    "parameters": "image: debian\nsize: small",
    "runnerRef": {},
    "templateRef": {"name": "my-template"},
}
APP = {
    "access": [{"users": ["*"], "verbs": ["get"]}],
    "config": {"chart": {"name": "my-chart", "repoURL": "https://charts.example.com"}},
    "description": "An app",
    "displayName": "My app",
    "icon": "https://example.com/icon.svg",
    "recommendedApp": ["cluster"],
}
CLUSTER = {
    "config": {"secretName": "my-secret", "secretNamespace": "service-system"},
    "description": "A cluster",
    "displayName": "My cluster",
}
KINDS: dict[str, dict[str, Any]] = {"DevPodWorkspaceInstance": WORKSPACE, "App": APP, "Cluster": CLUSTER}


@pytest.fixture(scope="module")
def project(api: Api) -> str:
    """A project without runners, so that workspaces stay unchanged."""
    return api.create_project(allowedRunners=[])


def collection_path(kind: str, project: str) -> str:
    return {"App": "apps", "Cluster": "clusters"}.get(kind) or workspaces_path(project)


def create_object(api: Api, kind: str, project: str) -> tuple[str, Object]:
    """Creates an object with every field. Returns its path and the object."""
    collection = collection_path(kind, project)
    created = api.create(collection, build_object(kind, unique_name(kind.lower()), KINDS[kind]))
    return f"{collection}/{created['metadata']['name']}", created


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_stored_as_sent(api: Api, project: str, kind: str) -> None:
    path, created = create_object(api, kind, project)
    assert (created["kind"], created["spec"], created["status"]) == (kind, KINDS[kind], {})
    stored = api.get(path)["spec"]
    assert stored == KINDS[kind]


def edit_object(api: Api, path: str) -> httpx.Response:
    """Gets the object, changes a line and puts it, as a user would."""
    lines = [
        "  displayName: Edited" if line.startswith("  displayName:") else line
        for line in api.get_yaml(path).splitlines()
    ]
    return api.send("PUT", path, "\n".join(lines))


WRONG: list[tuple[str, Any]] = [
    ("DevPodWorkspaceInstance", {"displayName": 1}),
    ("DevPodWorkspaceInstance", {"owner": {"user": 1}}),
    ("DevPodWorkspaceInstance", {"parameters": {"image": "debian"}}),
    ("DevPodWorkspaceInstance", {"runnerRef": "one"}),
    ("DevPodWorkspaceInstance", {"templateRef": {"name": 1}}),
    ("App", {"access": [{"users": "*"}]}),
    ("App", {"access": [{"verbs": "get"}]}),
    ("App", {"config": {"chart": {"name": 1}}}),
    ("App", {"config": {"chart": {"repoURL": 1}}}),
    ("App", {"description": 1}),
    ("App", {"displayName": 1}),
    ("App", {"icon": 1}),
    ("App", {"recommendedApp": "cluster"}),
    ("Cluster", {"config": {"secretName": 1}}),
    ("Cluster", {"config": {"secretNamespace": 1}}),
    ("Cluster", {"description": 1}),
    ("Cluster", {"displayName": 1}),
]


@pytest.mark.parametrize(("kind", "spec"), WRONG)
def test_a_field_of_the_wrong_type_is_rejected_with_its_name(api: Api, project: str, kind: str, spec: Any) -> None:
    response = api.send("POST", collection_path(kind, project), build_object(kind, unique_name(), spec))
    assert (response.status_code, response.json()["reason"]) == (422, "Invalid")
    [field] = spec
    assert all(cause["field"].startswith(f"spec.{field}") for cause in response.json()["details"]["causes"])


def test_an_app_can_be_read_by_the_users_in_its_access_rules(api: Api) -> None:
    user = unique_name("user")
    api.create("users", build_object("User", user))
    hidden, shown = api.create_app()["metadata"]["name"], api.create_app(APP)["metadata"]["name"]
    with api.use_key(api.create_key(user=user)["spec"]["key"]) as theirs:
        assert theirs.get(f"apps/{shown}")["spec"]["displayName"] == "My app"
        assert theirs.send("GET", f"apps/{hidden}").status_code == 403
        assert theirs.send("DELETE", f"apps/{shown}").status_code == 403


@pytest.mark.parametrize("kind", KINDS)
def test_list_returns_the_objects_of_the_kind(api: Api, project: str, kind: str) -> None:
    _, created = create_object(api, kind, project)
    found = api.get(collection_path(kind, project))
    assert (found["kind"], found["apiVersion"]) == (f"{kind}List", VERSION)
    assert created["metadata"]["name"] in [each["metadata"]["name"] for each in found["items"]]


@pytest.mark.parametrize("kind", KINDS)
def test_get_returns_one_object(api: Api, project: str, kind: str) -> None:
    path, created = create_object(api, kind, project)
    assert api.get(path)["metadata"]["uid"] == created["metadata"]["uid"]
    assert api.send("GET", f"{path}-not").status_code == 404


@pytest.mark.parametrize("kind", KINDS)
def test_create_accepts_yaml_and_returns_the_object(api: Api, project: str, kind: str) -> None:
    sent = build_object(kind, unique_name(), KINDS[kind])
    response = api.send("POST", collection_path(kind, project), yaml.safe_dump(sent))
    assert (response.status_code, response.json()["spec"]) == (201, KINDS[kind])


def test_create_stores_an_object_in_the_namespace_of_the_project(api: Api, project: str) -> None:
    namespace = f"{PREFIX}{project}"
    created = api.create(
        workspaces_path(project), build_object("DevPodWorkspaceInstance", unique_name(), namespace=namespace)
    )
    assert created["metadata"]["namespace"] == namespace
    elsewhere = build_object("DevPodWorkspaceInstance", unique_name(), namespace="default")
    assert api.send("POST", workspaces_path(project), elsewhere).status_code == 400


@pytest.mark.parametrize("kind", KINDS)
def test_update_accepts_the_whole_object_after_editing(api: Api, project: str, kind: str) -> None:
    path, _ = create_object(api, kind, project)
    edited = edit_object(api, path)
    while edited.status_code == 409:  # a controller has written the status since
        edited = edit_object(api, path)
    assert edited.status_code == 200, edited.text
    assert edited.json()["spec"] == {**KINDS[kind], "displayName": "Edited"}


@pytest.mark.parametrize("kind", KINDS)
def test_patch_accepts_operations_with_op_path_and_value(api: Api, project: str, kind: str) -> None:
    path, created = create_object(api, kind, project)
    operations = [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/example.com~1my-annotation", "value": "my-value"},
    ]
    patched = api.patch(path, operations, JSON_PATCH)
    assert patched["metadata"]["annotations"] == {"example.com/my-annotation": "my-value"}
    assert patched["spec"] == created["spec"]


@pytest.mark.parametrize("kind", KINDS)
def test_delete_removes_the_object(api: Api, project: str, kind: str) -> None:
    path, created = create_object(api, kind, project)
    deleted = api.send("DELETE", path)
    assert (deleted.status_code, deleted.json()["status"]) == (200, "Success")
    assert deleted.json()["details"]["uid"] == created["metadata"]["uid"]
    assert api.send("GET", path).status_code == 404
