"""Workspaces, apps and clusters: their fields, and the six operations on each."""

from typing import Any

import httpx
import pytest
import yaml

from tests.specification.api import JSON_PATCH, PREFIX, VERSION, Api, Body, body, fresh, workspaces

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
    """Without runners, so that workspaces stay as they were sent."""
    return api.project(allowedRunners=[])


def place(kind: str, project: str) -> str:
    return {"App": "apps", "Cluster": "clusters"}.get(kind) or workspaces(project)


def make(api: Api, kind: str, project: str) -> tuple[str, Body]:
    """The path of a new object with every field, and the object."""
    collection = place(kind, project)
    made = api.make(collection, body(kind, fresh(kind.lower()), KINDS[kind]))
    return f"{collection}/{made['metadata']['name']}", made


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_kept_as_it_was_sent(api: Api, project: str, kind: str) -> None:
    path, made = make(api, kind, project)
    assert (made["kind"], made["spec"], made["status"]) == (kind, KINDS[kind], {})
    kept = api.get(path)["spec"]
    assert kept == KINDS[kind]


def edit(api: Api, path: str) -> httpx.Response:
    """As people do it: get, change a line, put."""
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
def test_a_field_of_another_type_is_refused_by_its_name(api: Api, project: str, kind: str, spec: Any) -> None:
    refused = api.send("POST", place(kind, project), body(kind, fresh(), spec))
    assert (refused.status_code, refused.json()["reason"]) == (422, "Invalid")
    [field] = spec
    assert all(cause["field"].startswith(f"spec.{field}") for cause in refused.json()["details"]["causes"])


def test_an_app_is_read_by_those_whom_it_names(api: Api) -> None:
    user = fresh("user")
    api.make("users", body("User", user))
    hidden, shown = api.app()["metadata"]["name"], api.app(APP)["metadata"]["name"]
    with api.holding(api.key(user=user)["spec"]["key"]) as theirs:
        assert theirs.get(f"apps/{shown}")["spec"]["displayName"] == "My app"
        assert theirs.send("GET", f"apps/{hidden}").status_code == 403
        assert theirs.send("DELETE", f"apps/{shown}").status_code == 403


@pytest.mark.parametrize("kind", KINDS)
def test_list_answers_with_the_objects_of_the_kind(api: Api, project: str, kind: str) -> None:
    _, made = make(api, kind, project)
    found = api.get(place(kind, project))
    assert (found["kind"], found["apiVersion"]) == (f"{kind}List", VERSION)
    assert made["metadata"]["name"] in [each["metadata"]["name"] for each in found["items"]]


@pytest.mark.parametrize("kind", KINDS)
def test_get_answers_with_one_object(api: Api, project: str, kind: str) -> None:
    path, made = make(api, kind, project)
    assert api.get(path)["metadata"]["uid"] == made["metadata"]["uid"]
    assert api.send("GET", f"{path}-not").status_code == 404


@pytest.mark.parametrize("kind", KINDS)
def test_create_takes_yaml_and_answers_with_the_object(api: Api, project: str, kind: str) -> None:
    sent = body(kind, fresh(), KINDS[kind])
    answer = api.send("POST", place(kind, project), yaml.safe_dump(sent))
    assert (answer.status_code, answer.json()["spec"]) == (201, KINDS[kind])


def test_create_puts_an_object_into_the_namespace_of_the_project(api: Api, project: str) -> None:
    namespace = f"{PREFIX}{project}"
    made = api.make(workspaces(project), body("DevPodWorkspaceInstance", fresh(), namespace=namespace))
    assert made["metadata"]["namespace"] == namespace
    elsewhere = body("DevPodWorkspaceInstance", fresh(), namespace="default")
    assert api.send("POST", workspaces(project), elsewhere).status_code == 400


@pytest.mark.parametrize("kind", KINDS)
def test_update_takes_the_whole_object_as_it_was_read_and_edited(api: Api, project: str, kind: str) -> None:
    path, _ = make(api, kind, project)
    edited = edit(api, path)
    while edited.status_code == 409:  # a controller has written its status since
        edited = edit(api, path)
    assert edited.status_code == 200, edited.text
    assert edited.json()["spec"] == {**KINDS[kind], "displayName": "Edited"}


@pytest.mark.parametrize("kind", KINDS)
def test_patch_takes_operations_with_op_path_and_value(api: Api, project: str, kind: str) -> None:
    path, made = make(api, kind, project)
    operations = [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/example.com~1my-annotation", "value": "my-value"},
    ]
    patched = api.patch(path, operations, JSON_PATCH)
    assert patched["metadata"]["annotations"] == {"example.com/my-annotation": "my-value"}
    assert patched["spec"] == made["spec"]


@pytest.mark.parametrize("kind", KINDS)
def test_delete_takes_the_object_away(api: Api, project: str, kind: str) -> None:
    path, made = make(api, kind, project)
    deleted = api.send("DELETE", path)
    assert (deleted.status_code, deleted.json()["status"]) == (200, "Success")
    assert deleted.json()["details"]["uid"] == made["metadata"]["uid"]
    assert api.send("GET", path).status_code == 404
