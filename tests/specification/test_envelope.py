"""The five fields that every object has at its top, and what the versions of the API promise."""

import pytest

from tests.harness.server_process import MANAGEMENT
from tests.specification.api import VERSION, Api, Body, body, fresh


def test_kind_says_what_the_object_is_and_another_one_is_refused(api: Api) -> None:
    assert api.app()["kind"] == "App"
    refused = api.send("POST", "apps", body("Cluster", fresh()))
    assert (refused.status_code, "must be App" in refused.json()["message"]) == (422, True)


def test_kind_cannot_be_changed(api: Api) -> None:
    made = api.app()
    path = f"apps/{made['metadata']['name']}"
    assert api.send("PUT", path, {**made, "kind": "Cluster"}).status_code == 422
    operation = '[{"op": "replace", "path": "/kind", "value": "Cluster"}]'
    assert api.send("PATCH", path, operation, "application/json-patch+json").status_code == 422
    assert api.get(path)["kind"] == "App"


@pytest.mark.parametrize("plural", ["apps", "clusters", "devpodworkspaceinstances", "ownedaccesskeys"])
def test_every_kind_has_the_one_version(api: Api, plural: str) -> None:
    found = api.get(plural)
    assert found["apiVersion"] == VERSION
    assert {each.get("apiVersion", VERSION) for each in found["items"]} <= {VERSION}


def test_api_version_is_group_and_version(api: Api) -> None:
    assert api.app()["apiVersion"] == "management.service.sh/v1"


@pytest.mark.parametrize("version", ["management.service.sh/v2", "v1", "example.com/v1"])
def test_a_version_that_is_not_known_is_refused(api: Api, version: str) -> None:
    refused = api.send("POST", "apps", {**body("App", fresh()), "apiVersion": version})
    assert (refused.status_code, refused.json()["kind"]) == (400, "Status")


def test_there_is_no_other_version_of_the_group(api: Api) -> None:
    group = api.client.get(f"{MANAGEMENT}/apis/management.service.sh").json()
    assert [each["version"] for each in group["versions"]] == ["v1"]


def test_metadata_is_an_object(api: Api) -> None:
    assert api.send("POST", "apps", {**body("App", fresh()), "metadata": "x"}).status_code == 400


def test_the_spec_is_answered_as_it_was_sent(api: Api) -> None:
    spec = {"displayName": "d", "recommendedApp": ["cluster"], "config": {"chart": {"name": "chart"}}}
    made = api.app(spec)
    assert made["spec"] == spec
    assert api.get(f"apps/{made['metadata']['name']}")["spec"] == spec


def test_an_empty_status_is_valid_on_create(api: Api) -> None:
    text = f"kind: App\napiVersion: {VERSION}\nmetadata:\n  creationTimestamp: null\n  name: {fresh()}\n"
    assert api.make("apps", f"{text}spec: {{}}\nstatus: {{}}\n")["status"] == {}


DEPRECATED: dict[str, tuple[Body, str]] = {
    "parent": ({"parent": "other"}, "spec.parent is deprecated"),
    "oidcLogin": ({"oidcLogin": {"lastRefresh": "2026-01-02T03:04:05Z"}}, "spec.oidcLogin is deprecated"),
    "rules": ({"scope": {"rules": [{"verbs": ["get"]}]}}, "spec.scope.rules is deprecated"),
}


@pytest.mark.parametrize("field", DEPRECATED)
def test_a_deprecated_field_is_kept_with_a_warning(api: Api, field: str) -> None:
    spec, warning = DEPRECATED[field]
    answer = api.send("POST", "ownedaccesskeys", body("OwnedAccessKey", fresh("old"), spec))
    assert answer.status_code == 201, answer.text
    assert warning in answer.headers["warning"]
    assert spec.items() <= api.get(f"ownedaccesskeys/{answer.json()['metadata']['name']}")["spec"].items()
