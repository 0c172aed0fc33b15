"""Access keys as objects and as credentials."""

import time
from typing import Any

import pytest

from tests.harness.server_process import TIMEOUT_SECONDS
from tests.specification.api import JSON_PATCH, Api, build_object, unique_name

KEYS = "ownedaccesskeys"
SELVES = "selves"
ALL_FIELDS: dict[str, Any] = {
    "displayName": "CI",
    "description": "The pipeline's",
    "groups": ["ci"],
    "disabled": False,
    "ttl": 3600,
    "ttlAfterLastActivity": True,
    "scope": {"allowServiceCli": True, "projects": [{"project": "*"}]},
    "type": "User",
    "identity": {
        "userId": "u-1",
        "username": "ada",
        "preferredUsername": "Ada",
        "email": "ada@example.com",
        "emailVerified": True,
        "groups": ["dev"],
        "connector": "sso",
        "identityRefresh": "2026-01-02T03:04:05Z",
    },
    "oidcProvider": {"clientId": "c-1", "nonce": "o-1", "redirectUri": "https://example.com", "scopes": "openid"},
    "parent": "older",
    "oidcLogin": {"lastRefresh": "2026-01-02T03:04:05Z"},
}


def get_status(api: Api, key: str, path: str = "apps") -> int:
    with api.use_key(key) as client:
        return client.send("GET", path).status_code


def get_self(api: Api, key: str) -> dict[str, Any]:
    with api.use_key(key) as client:
        status: dict[str, Any] = client.create(SELVES, {})["status"]
        return status


def test_every_field_of_a_key_is_stored(api: Api) -> None:
    created = api.create_key(**ALL_FIELDS)
    stored = api.get(f"{KEYS}/{created['metadata']['name']}")["spec"]
    assert stored == {**ALL_FIELDS, "user": "admin"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"displayName": 1}, "displayName"),
        ({"description": 1}, "description"),
        ({"user": 1}, "user"),
        ({"team": 1}, "team"),
        ({"subject": 1}, "subject"),
        ({"groups": "ci"}, "groups"),
        ({"disabled": "no, not really"}, "disabled"),
        ({"ttl": "an hour"}, "ttl"),
        ({"ttlAfterLastActivity": 1}, "ttlAfterLastActivity"),
        ({"scope": "all"}, "scope"),
        ({"type": "Unheard-of"}, "type"),
        ({"identity": {"emailVerified": "perhaps"}}, "identity"),
        ({"oidcProvider": {"clientId": 1}}, "oidcProvider"),
        ({"parent": 1}, "parent"),
        ({"oidcLogin": "x"}, "oidcLogin"),
    ],
)
def test_a_field_of_the_wrong_type_is_rejected(api: Api, spec: dict[str, Any], field: str) -> None:
    response = api.send("POST", KEYS, build_object("OwnedAccessKey", unique_name("key"), spec))
    assert (response.status_code, f"spec.{field}" in response.json()["message"]) == (422, True), response.text


def test_secret_fields_are_accepted_and_not_returned(api: Api) -> None:
    secret = "secret-value"
    login = dict.fromkeys(("idToken", "accessToken", "refreshToken"), secret)
    sent = build_object(
        "OwnedAccessKey", unique_name("key"), {"identity": {"connectorData": secret}, "oidcLogin": login}
    )
    created = api.send("POST", KEYS, sent)
    assert created.status_code == 201
    read = api.send("GET", f"{KEYS}/{created.json()['metadata']['name']}")
    assert secret not in created.text and secret not in read.text


def test_the_value_of_a_key_is_the_bearer_token(api: Api) -> None:
    value = api.create_key()["spec"]["key"]
    assert get_status(api, value) == 200
    assert get_status(api, f"{value}x") == 401
    with api.server.client(None) as anonymous:
        assert anonymous.get(f"/kubernetes/management/apis/management.service.sh/v1/{KEYS}").status_code == 401


def test_a_key_authenticates_as_its_user_team_or_subject(api: Api) -> None:
    user, team, subject = unique_name("user"), unique_name("team"), unique_name("subject")
    api.create("users", build_object("User", user))
    api.create("teams", build_object("Team", team))
    assert get_self(api, api.create_key(user=user)["spec"]["key"])["user"]["name"] == user
    assert get_self(api, api.create_key(team=team)["spec"]["key"])["team"]["name"] == team
    assert get_self(api, api.create_key(subject=subject)["spec"]["key"])["subject"] == subject


def test_the_groups_of_a_key_are_added_to_its_user(api: Api) -> None:
    assert "extra" in get_self(api, api.create_key(groups=["extra"])["spec"]["key"])["groups"]


def test_a_disabled_key_exists_and_does_not_work(api: Api) -> None:
    created = api.create_key()
    name, value = created["metadata"]["name"], created["spec"]["key"]
    api.patch(f"{KEYS}/{name}", {"spec": {"disabled": True}})
    assert get_status(api, value) == 401
    assert api.get(f"{KEYS}/{name}")["spec"]["disabled"] is True
    api.patch(f"{KEYS}/{name}", {"spec": {"disabled": False}})
    assert get_status(api, value) == 200


def test_a_key_expires_after_its_ttl(api: Api) -> None:
    value = api.create_key(ttl=1)["spec"]["key"]
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while get_status(api, value) != 401:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_with_ttl_after_last_activity_use_extends_the_life_of_a_key(api: Api) -> None:
    by_creation, by_use = (api.create_key(ttl=8, ttlAfterLastActivity=each)["spec"]["key"] for each in (False, True))
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while get_status(api, by_creation) != 401:
        assert get_status(api, by_use) == 200
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert get_status(api, by_use) == 200


def test_the_last_use_of_a_key_is_in_its_status(api: Api) -> None:
    created = api.create_key()
    path = f"{KEYS}/{created['metadata']['name']}"
    assert get_status(api, created["spec"]["key"]) == 200
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while "lastActivity" not in api.get(path).get("status", {}):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert api.get(path)["status"]["lastActivity"] >= created["metadata"]["creationTimestamp"]


def test_keys_are_listed_read_created_updated_patched_and_deleted(api: Api) -> None:
    created = api.create_key(displayName="first")
    name, value = created["metadata"]["name"], created["spec"]["key"]
    path = f"{KEYS}/{name}"
    assert name in [each["metadata"]["name"] for each in api.get(KEYS)["items"]]
    read = api.get(path)
    read["spec"]["displayName"] = "second"
    assert api.put(path, read)["spec"]["displayName"] == "second"
    operation = [{"op": "add", "path": "/spec/description", "value": "third"}]
    assert api.patch(path, operation, JSON_PATCH)["spec"]["description"] == "third"
    assert get_status(api, value) == 200
    assert api.send("DELETE", path).status_code == 200
    assert (api.send("GET", path).status_code, get_status(api, value)) == (404, 401)


def test_keys_have_no_namespace(api: Api) -> None:
    assert "namespace" not in api.create_key()["metadata"]
    assert api.send("GET", f"namespaces/default/{KEYS}").status_code == 404
