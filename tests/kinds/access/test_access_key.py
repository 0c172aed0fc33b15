"""Access keys: every field there is, one owner, and nothing of the key in any answer."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.domain.key_lifetime import MAX_TTL_SECONDS
from fairlead.kinds.access.access_key import KEY_ROTATION, OWNED_ACCESS_KEY, TYPES
from fairlead.registry.codec import decode, entry_builder
from fairlead.registry.codec import encode as encoded
from fairlead.registry.kind import Catalog
from fairlead.registry.selectors import SelectorFieldReader
from fairlead.registry.validate import Validator
from fairlead.storage.contract import Record
from tests.harness.kind_examples import cells, complaints, example, problems, warnings

VALIDATOR = Validator(OWNED_ACCESS_KEY.schema())
EVERYTHING: Object = {
    "displayName": "d",
    "description": "d",
    "user": "ada",
    "team": "t",
    "subject": "s",
    "groups": ["g"],
    "key": "k",
    "disabled": True,
    "ttl": 1,
    "ttlAfterLastActivity": True,
    "scope": {
        "allowServiceCli": True,
        "projects": [{"project": "p"}],
        "spaces": [{"project": "p", "space": "s"}],
        "virtualClusters": [{"project": "p", "virtualCluster": "v"}],
        "rules": [
            {
                "verbs": ["get"],
                "resources": [{"group": "", "resources": ["configmaps"]}],
                "resourceNames": ["n"],
                "namespaces": [""],
                "requestTargets": ["Management"],
                "cluster": "c",
                "virtualClusters": [{"name": "v", "namespace": "n"}],
            }
        ],
    },
    "type": "Other",
    "identity": {
        "userId": "u",
        "username": "n",
        "preferredUsername": "p",
        "email": "e",
        "emailVerified": True,
        "groups": ["g"],
        "connector": "c",
        "connectorData": "SECRET",
        "identityRefresh": "2026-01-02T03:04:05Z",
        "extraClaims": {"a": "b"},
    },
    "identityRefresh": "2026-01-02T03:04:05Z",
    "oidcProvider": {"clientId": "c", "nonce": "n", "redirectUri": "r", "scopes": "s"},
    "parent": "old",
    "oidcLogin": {
        "idToken": "SECRET",
        "accessToken": "SECRET",
        "refreshToken": "SECRET",
        "lastRefresh": "2026-01-02T03:04:05Z",
    },
}


def key(**spec: Any) -> Object:
    return example("OwnedAccessKey", spec={"user": "ada", **spec})


def test_every_field_of_the_specification_is_known() -> None:
    findings = VALIDATOR.validate(example("OwnedAccessKey", spec=EVERYTHING))
    assert (findings.unknown_fields, findings.problems) == ([], [])


@pytest.mark.parametrize("type", TYPES)
def test_the_types_of_keys_are_a_closed_list(type: str) -> None:
    assert VALIDATOR.validate(key(type=type)).problems == []
    assert VALIDATOR.validate(key(type="Admin")).problems


@pytest.mark.parametrize(("ttl", "fine"), [(0, True), (1, True), (-1, False), (1.5, False), ("60", False)])
def test_a_life_is_a_whole_number_of_seconds(ttl: Any, fine: bool) -> None:
    assert (VALIDATOR.validate(key(ttl=ttl)).problems == []) == fine


def test_a_life_longer_than_dates_can_tell_is_refused() -> None:
    assert problems(key(ttl=MAX_TTL_SECONDS)) == []
    assert complaints(key(ttl=MAX_TTL_SECONDS + 1)) == [("spec.ttl", "FieldValueInvalid")]


def test_a_key_stands_for_one_user_team_or_subject() -> None:
    assert complaints(key(user="", team="")) == [("spec.user", "FieldValueRequired")]
    assert complaints(key(team="core")) == [("spec.team", "FieldValueForbidden")]
    assert complaints(key(user=None, team="core", subject="robot")) == [("spec.subject", "FieldValueForbidden")]
    assert complaints(key(user="", subject="robot")) == []


def test_a_group_has_a_name() -> None:
    assert complaints(key(groups=["a", ""])) == [("spec.groups[1]", "FieldValueRequired")]


def test_what_is_wrong_with_the_scope_is_told() -> None:
    [(field, _)] = complaints(key(scope={"projects": [{}]}))
    assert field.startswith("spec.scope.projects[0]")


def test_deprecated_fields_work_and_are_told_about() -> None:
    assert warnings(key(parent="x", oidcLogin={"idToken": "y"})) == [
        "spec.parent is deprecated: nothing reads it any more",
        "spec.oidcLogin is deprecated: use spec.identity",
    ]
    assert warnings(key()) == []


def test_t26_no_answer_has_anything_of_a_secret_field() -> None:
    finish = entry_builder(Catalog((OWNED_ACCESS_KEY,)))
    obj = example("OwnedAccessKey", spec={**EVERYTHING, "key": "SECRET"})
    obj["status"]["previous"] = [{"key": "SECRET", "until": "2026-01-02T03:04:05Z"}]
    place = OWNED_ACCESS_KEY.key("", "demo")
    entry = finish(Record(place, encoded(obj), 7))
    assert b"SECRET" not in entry.body and b"previous" not in entry.body
    assert decode(entry)["spec"]["key"] == "SECRET"
    assert set(OWNED_ACCESS_KEY.write_only) == set(OWNED_ACCESS_KEY.sensitive)


def test_keys_can_be_selected_by_owner_type_and_whether_they_are_disabled() -> None:
    _, fields = SelectorFieldReader(OWNED_ACCESS_KEY).read(encoded(key(type="User")))
    assert (fields["spec.user"], fields["spec.type"], fields["spec.disabled"]) == ("ada", "User", "false")
    _, off = SelectorFieldReader(OWNED_ACCESS_KEY).read(encoded(key(user="", team="core", disabled=True)))
    assert (off["spec.team"], off["spec.disabled"]) == ("core", "true")


def test_the_table_names_the_owner_whoever_that_is() -> None:
    for owner in ("user", "team", "subject"):
        shown = cells(OWNED_ACCESS_KEY, example("OwnedAccessKey", spec={owner: "x", "scope": {}}))
        assert (shown["Owner"], shown["Scoped"], shown["Disabled"]) == ("x", True, False)


def test_whom_a_key_stands_for_cannot_be_changed() -> None:
    assert set(OWNED_ACCESS_KEY.immutable) == {"spec.user", "spec.team", "spec.subject"}


def test_a_rotation_says_how_long_the_old_value_lasts() -> None:
    [action] = OWNED_ACCESS_KEY.actions
    assert (action.name, action.verbs, action.kind) == ("rotate", ("create",), KEY_ROTATION)
    shape = Validator(KEY_ROTATION.schema())
    assert shape.validate({"spec": {"overlapSeconds": 60}}).problems == []
    assert shape.validate({"spec": {"overlapSeconds": -1}}).problems
