"""Access keys as objects and as credentials."""

import time
from typing import Any

import pytest

from tests.harness.server_process import TIMEOUT_SECONDS
from tests.specification.api import JSON_PATCH, Api, body, fresh

KEYS = "ownedaccesskeys"
SELVES = "selves"
EVERYTHING: dict[str, Any] = {
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


def code(api: Api, key: str, path: str = "apps") -> int:
    with api.holding(key) as holder:
        return holder.send("GET", path).status_code


def who(api: Api, key: str) -> dict[str, Any]:
    with api.holding(key) as holder:
        status: dict[str, Any] = holder.make(SELVES, {})["status"]
        return status


def test_every_field_of_a_key_is_kept(api: Api) -> None:
    made = api.key(**EVERYTHING)
    kept = api.get(f"{KEYS}/{made['metadata']['name']}")["spec"]
    assert kept == {**EVERYTHING, "user": "admin"}


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
def test_a_field_of_another_type_is_refused(api: Api, spec: dict[str, Any], field: str) -> None:
    refused = api.send("POST", KEYS, body("OwnedAccessKey", fresh("key"), spec))
    assert (refused.status_code, f"spec.{field}" in refused.json()["message"]) == (422, True), refused.text


def test_what_must_never_be_shared_is_taken_and_not_answered(api: Api) -> None:
    secret = "not-for-anybodys-eyes"
    login = dict.fromkeys(("idToken", "accessToken", "refreshToken"), secret)
    sent = body("OwnedAccessKey", fresh("key"), {"identity": {"connectorData": secret}, "oidcLogin": login})
    made = api.send("POST", KEYS, sent)
    assert made.status_code == 201
    read = api.send("GET", f"{KEYS}/{made.json()['metadata']['name']}")
    assert secret not in made.text and secret not in read.text


def test_the_value_of_a_key_is_the_bearer_token(api: Api) -> None:
    value = api.key()["spec"]["key"]
    assert code(api, value) == 200
    assert code(api, f"{value}x") == 401
    with api.server.client(None) as stranger:
        assert stranger.get(f"/kubernetes/management/apis/management.service.sh/v1/{KEYS}").status_code == 401


def test_a_key_stands_for_its_user_team_or_subject(api: Api) -> None:
    user, team, subject = fresh("user"), fresh("team"), fresh("subject")
    api.make("users", body("User", user))
    api.make("teams", body("Team", team))
    assert who(api, api.key(user=user)["spec"]["key"])["user"]["name"] == user
    assert who(api, api.key(team=team)["spec"]["key"])["team"]["name"] == team
    assert who(api, api.key(subject=subject)["spec"]["key"])["subject"] == subject


def test_groups_of_a_key_are_those_of_its_holder_too(api: Api) -> None:
    assert "extra" in who(api, api.key(groups=["extra"])["spec"]["key"])["groups"]


def test_a_disabled_key_exists_and_does_not_work(api: Api) -> None:
    made = api.key()
    name, value = made["metadata"]["name"], made["spec"]["key"]
    api.patch(f"{KEYS}/{name}", {"spec": {"disabled": True}})
    assert code(api, value) == 401
    assert api.get(f"{KEYS}/{name}")["spec"]["disabled"] is True
    api.patch(f"{KEYS}/{name}", {"spec": {"disabled": False}})
    assert code(api, value) == 200


def test_a_key_stops_working_when_its_time_is_over(api: Api) -> None:
    value = api.key(ttl=1)["spec"]["key"]
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while code(api, value) != 401:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_key_that_is_used_outlives_its_time_where_that_is_counted_from_its_use(api: Api) -> None:
    by_creation, by_use = (api.key(ttl=3, ttlAfterLastActivity=each)["spec"]["key"] for each in (False, True))
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while code(api, by_creation) != 401:
        assert code(api, by_use) == 200
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert code(api, by_use) == 200


def test_the_last_use_of_a_key_is_in_its_status(api: Api) -> None:
    made = api.key()
    path = f"{KEYS}/{made['metadata']['name']}"
    assert code(api, made["spec"]["key"]) == 200
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while "lastActivity" not in api.get(path).get("status", {}):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert api.get(path)["status"]["lastActivity"] >= made["metadata"]["creationTimestamp"]


def test_keys_are_listed_read_made_updated_patched_and_deleted(api: Api) -> None:
    made = api.key(displayName="first")
    name, value = made["metadata"]["name"], made["spec"]["key"]
    path = f"{KEYS}/{name}"
    assert name in [each["metadata"]["name"] for each in api.get(KEYS)["items"]]
    read = api.get(path)
    read["spec"]["displayName"] = "second"
    assert api.put(path, read)["spec"]["displayName"] == "second"
    operation = [{"op": "add", "path": "/spec/description", "value": "third"}]
    assert api.patch(path, operation, JSON_PATCH)["spec"]["description"] == "third"
    assert code(api, value) == 200
    assert api.send("DELETE", path).status_code == 200
    assert (api.send("GET", path).status_code, code(api, value)) == (404, 401)


def test_keys_have_no_namespace(api: Api) -> None:
    assert "namespace" not in api.key()["metadata"]
    assert api.send("GET", f"namespaces/default/{KEYS}").status_code == 404
