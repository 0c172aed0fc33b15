"""kinds/access/access_key.py: fields of access keys, their single owner, and no credentials in responses."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.domain.key_lifetime import FIRST_KEY_ANNOTATION, MAX_TTL_SECONDS
from fairlead.kinds.access.access_key import KEY_ROTATION, OWNED_ACCESS_KEY, TYPES
from fairlead.registry.codec import decode, encode, entry_builder
from fairlead.registry.kind import Catalog
from fairlead.registry.selectors import SelectorFieldReader
from fairlead.registry.validate import Validator
from fairlead.storage.contract import Record
from tests.harness.kind_examples import build_example, computed_cells, find_problems, problem_reasons
from tests.harness.kind_warnings import find_warnings

LATER = "2026-01-02T04:04:05Z"
VALIDATOR = Validator(OWNED_ACCESS_KEY.schema())
FULL_SPEC: Object = {
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


def build_key(**spec: Any) -> Object:
    return build_example("OwnedAccessKey", spec={"user": "ada", **spec})


def test_every_specified_field_is_known() -> None:
    findings = VALIDATOR.validate(build_example("OwnedAccessKey", spec=FULL_SPEC))
    assert (findings.unknown_fields, findings.problems) == ([], [])


@pytest.mark.parametrize("type", TYPES)
def test_only_known_key_types_are_accepted(type: str) -> None:
    assert VALIDATOR.validate(build_key(type=type)).problems == []
    assert VALIDATOR.validate(build_key(type="Admin")).problems


@pytest.mark.parametrize(("ttl", "is_valid"), [(0, True), (1, True), (-1, False), (1.5, False), ("60", False)])
def test_a_ttl_is_a_whole_number_of_seconds(ttl: Any, is_valid: bool) -> None:
    assert (VALIDATOR.validate(build_key(ttl=ttl)).problems == []) == is_valid


def test_a_ttl_beyond_the_last_date_is_rejected() -> None:
    assert find_problems(build_key(ttl=MAX_TTL_SECONDS)) == []
    assert problem_reasons(build_key(ttl=MAX_TTL_SECONDS + 1)) == [("spec.ttl", "FieldValueInvalid")]


def test_a_key_has_exactly_one_user_team_or_subject() -> None:
    assert problem_reasons(build_key(user="", team="")) == [("spec.user", "FieldValueRequired")]
    assert problem_reasons(build_key(team="core")) == [("spec.team", "FieldValueForbidden")]
    assert problem_reasons(build_key(user=None, team="core", subject="robot")) == [
        ("spec.subject", "FieldValueForbidden")
    ]
    assert problem_reasons(build_key(user="", subject="robot")) == []


def test_a_group_must_have_a_name() -> None:
    assert problem_reasons(build_key(groups=["a", ""])) == [("spec.groups[1]", "FieldValueRequired")]


def test_problems_of_the_scope_are_reported() -> None:
    [(field, _)] = problem_reasons(build_key(scope={"projects": [{}]}))
    assert field.startswith("spec.scope.projects[0]")


def test_deprecated_fields_are_accepted_with_a_warning() -> None:
    assert find_warnings(build_key(parent="x", oidcLogin={"idToken": "y"})) == [
        "spec.parent is deprecated: the server sets it where it is needed",
        "spec.oidcLogin is deprecated and has no effect; use spec.identity",
    ]
    assert find_warnings(build_key()) == []


def test_t26_responses_contain_no_sensitive_field() -> None:
    build_entry = entry_builder(Catalog((OWNED_ACCESS_KEY,)))
    obj = build_example("OwnedAccessKey", spec={**FULL_SPEC, "key": "SECRET"})
    obj["status"]["previous"] = [{"key": "SECRET", "until": "2026-01-02T03:04:05Z"}]
    key = OWNED_ACCESS_KEY.key("", "demo")
    entry = build_entry(Record(key, encode(obj), 7))
    assert b"SECRET" not in entry.body and b"previous" not in entry.body
    assert decode(entry)["spec"]["key"] == "SECRET"
    assert set(OWNED_ACCESS_KEY.write_only) == set(OWNED_ACCESS_KEY.sensitive)


def test_keys_can_be_selected_by_owner_type_and_disabled() -> None:
    _, fields = SelectorFieldReader(OWNED_ACCESS_KEY).read(encode(build_key(type="User")))
    assert (fields["spec.user"], fields["spec.type"], fields["spec.disabled"]) == ("ada", "User", "false")
    _, disabled_fields = SelectorFieldReader(OWNED_ACCESS_KEY).read(
        encode(build_key(user="", team="core", disabled=True))
    )
    assert (disabled_fields["spec.team"], disabled_fields["spec.disabled"]) == ("core", "true")


def test_the_table_shows_the_owner_of_any_type() -> None:
    for owner in ("user", "team", "subject"):
        row = computed_cells(OWNED_ACCESS_KEY, build_example("OwnedAccessKey", spec={owner: "x", "scope": {}}))
        assert (row["Owner"], row["Scoped"]) == ("x", True)


@pytest.mark.parametrize(
    ("spec", "status", "shown"),
    [
        ({}, {}, ("Active", "never")),
        ({"ttl": 60}, {}, ("Active", "2026-01-02T03:05:05Z")),
        ({"ttl": 60, "ttlAfterLastActivity": True}, {"lastActivity": LATER}, ("Active", "2026-01-02T04:05:05Z")),
        ({"ttl": 60, "disabled": True}, {}, ("Disabled", "2026-01-02T03:05:05Z")),
        ({"ttl": 60, "disabled": True}, {"expired": LATER}, ("Expired", LATER)),
    ],
)
def test_the_table_shows_whether_a_key_is_accepted_and_when_it_expires(
    spec: Object, status: Object, shown: tuple[str, str]
) -> None:
    key = {"metadata": {"creationTimestamp": "2026-01-02T03:04:05Z"}, "spec": spec, "status": status}
    row = computed_cells(OWNED_ACCESS_KEY, key)
    assert (row["State"], row["Expires"]) == shown


@pytest.mark.parametrize(
    ("spec", "status", "shown"),
    [
        ({}, {}, f"{LATER}, unless replaced"),
        ({"ttl": 86400}, {}, f"{LATER}, unless replaced"),
        ({"ttl": 60}, {}, "2026-01-02T03:05:05Z"),
        ({}, {"expired": LATER}, LATER),
    ],
)
def test_the_table_shows_when_the_first_key_expires(spec: Object, status: Object, shown: str) -> None:
    metadata = {"creationTimestamp": "2026-01-02T03:04:05Z", "annotations": {FIRST_KEY_ANNOTATION: LATER}}
    key = {"metadata": metadata, "spec": spec, "status": status}
    assert computed_cells(OWNED_ACCESS_KEY, key)["Expires"] == shown


def test_the_owner_of_a_key_is_immutable() -> None:
    assert set(OWNED_ACCESS_KEY.immutable) == {"spec.user", "spec.team", "spec.subject"}


def test_a_rotation_sets_the_overlap_of_the_old_value() -> None:
    [action] = OWNED_ACCESS_KEY.actions
    assert (action.name, action.verbs, action.kind) == ("rotate", ("create",), KEY_ROTATION)
    validator = Validator(KEY_ROTATION.schema())
    assert validator.validate({"spec": {"overlapSeconds": 60}}).problems == []
    assert validator.validate({"spec": {"overlapSeconds": -1}}).problems
