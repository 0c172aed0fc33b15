"""The five top-level fields of every object, and the versions of the API."""

import pytest

from tests.harness.server_process import MANAGEMENT
from tests.specification.api import VERSION, Api, Object, build_object, unique_name


def test_the_kind_is_returned_and_another_kind_is_rejected(api: Api) -> None:
    assert api.create_app()["kind"] == "App"
    response = api.send("POST", "apps", build_object("Cluster", unique_name()))
    assert (response.status_code, "must be App" in response.json()["message"]) == (422, True)


def test_kind_cannot_be_changed(api: Api) -> None:
    created = api.create_app()
    path = f"apps/{created['metadata']['name']}"
    assert api.send("PUT", path, {**created, "kind": "Cluster"}).status_code == 422
    operation = '[{"op": "replace", "path": "/kind", "value": "Cluster"}]'
    assert api.send("PATCH", path, operation, "application/json-patch+json").status_code == 422
    assert api.get(path)["kind"] == "App"


@pytest.mark.parametrize("plural", ["apps", "clusters", "devpodworkspaceinstances", "ownedaccesskeys"])
def test_every_kind_has_the_same_version(api: Api, plural: str) -> None:
    objects = api.get(plural)
    assert objects["apiVersion"] == VERSION
    assert {each.get("apiVersion", VERSION) for each in objects["items"]} <= {VERSION}


def test_api_version_is_group_and_version(api: Api) -> None:
    assert api.create_app()["apiVersion"] == "management.service.sh/v1"


@pytest.mark.parametrize("version", ["management.service.sh/v2", "v1", "example.com/v1"])
def test_an_unknown_version_is_rejected(api: Api, version: str) -> None:
    response = api.send("POST", "apps", {**build_object("App", unique_name()), "apiVersion": version})
    assert (response.status_code, response.json()["kind"]) == (400, "Status")


def test_there_is_no_other_version_of_the_group(api: Api) -> None:
    group = api.client.get(f"{MANAGEMENT}/apis/management.service.sh").json()
    assert [each["version"] for each in group["versions"]] == ["v1"]


def test_metadata_is_an_object(api: Api) -> None:
    assert api.send("POST", "apps", {**build_object("App", unique_name()), "metadata": "x"}).status_code == 400


def test_the_spec_is_returned_as_sent(api: Api) -> None:
    spec = {"displayName": "d", "recommendedApp": ["cluster"], "config": {"chart": {"name": "chart"}}}
    created = api.create_app(spec)
    assert created["spec"] == spec
    assert api.get(f"apps/{created['metadata']['name']}")["spec"] == spec


def test_an_empty_status_is_valid_on_create(api: Api) -> None:
    text = f"kind: App\napiVersion: {VERSION}\nmetadata:\n  creationTimestamp: null\n  name: {unique_name()}\n"
    assert api.create("apps", f"{text}spec: {{}}\nstatus: {{}}\n")["status"] == {}


DEPRECATED: dict[str, tuple[Object, str]] = {
    "parent": ({"parent": "other"}, "spec.parent is deprecated"),
    "oidcLogin": ({"oidcLogin": {"lastRefresh": "2026-01-02T03:04:05Z"}}, "spec.oidcLogin is deprecated"),
    "rules": ({"scope": {"rules": [{"verbs": ["get"]}]}}, "spec.scope.rules is deprecated"),
}


@pytest.mark.parametrize("field", DEPRECATED)
def test_a_deprecated_field_is_stored_with_a_warning(api: Api, field: str) -> None:
    spec, warning = DEPRECATED[field]
    response = api.send("POST", "ownedaccesskeys", build_object("OwnedAccessKey", unique_name("old"), spec))
    assert response.status_code == 201, response.text
    assert warning in response.headers["warning"]
    assert spec.items() <= api.get(f"ownedaccesskeys/{response.json()['metadata']['name']}")["spec"].items()
