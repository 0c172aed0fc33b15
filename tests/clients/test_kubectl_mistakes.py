"""Mistakes of kubectl users: each command fails with a message that explains the error."""

import json
from typing import Any

import pytest

from tests.clients.objects import Body, build_app, build_core_object, build_project, build_workspace, to_yaml
from tests.clients.server import GROUP, VERSION
from tests.harness.kubectl import Kubectl


@pytest.fixture(scope="module")
def existing_app(kubectl: Kubectl) -> str:
    """The name of an app that exists."""
    kubectl("create", "-f", "-", body=to_yaml(build_app("taken", displayName="T")))
    return "taken"


def replace_fields(body: Body, **fields: Any) -> Body:
    return {**body, **fields}


INVALID_BODIES: dict[str, tuple[Body, list[str]]] = {
    "an unknown kind": (
        replace_fields(build_app("x"), kind="Appp"),
        [f'no matches for kind "Appp" in version "{VERSION}"'],
    ),
    "an unknown version": (
        replace_fields(build_app("x"), apiVersion=f"{GROUP}/v2"),
        [f'no matches for kind "App" in version "{GROUP}/v2"'],
    ),
    "unknown fields": (
        build_app("x", displayNam="a", config={"chart": {"nam": "b"}}),
        ["strict decoding error", 'unknown field "spec.displayNam"', 'unknown field "spec.config.chart.nam"'],
    ),
    "an unknown field of metadata": (
        replace_fields(build_app("x"), metadata={"name": "x", "label": {"a": "b"}}),
        ['unknown field "metadata.label"'],
    ),
    "wrong types": (
        build_app("x", displayName=5, recommendedApp="cluster"),
        [
            'The App "x" is invalid',
            'spec.displayName in body must be of type string: "integer"',
            'spec.recommendedApp in body must be of type array: "string"',
        ],
    ),
    "a value outside an enum": (
        build_project("x", members=[{"kind": "Robot", "name": "r2"}]),
        ["spec.members[0].kind", '"Robot"', 'supported values: "User", "Team"'],
    ),
    "a missing required field": (
        build_project("x", members=[{"kind": "User"}]),
        ["spec.members[0].name: Required value"],
    ),
    "mutually exclusive fields": (
        build_app("x", config={"chart": {"name": "a"}, "manifests": "b"}),
        ["spec.config.manifests: Forbidden", "keep one of chart, manifests and bash"],
    ),
    "no name": (
        replace_fields(build_app("x"), metadata={}),
        ["metadata.name: Required value: name or generateName is required"],
    ),
    "an invalid name": (
        build_app("Bad_Name"),
        ['The App "Bad_Name" is invalid: metadata.name: Invalid value: "Bad_Name"', "RFC 1123 subdomain"],
    ),
    "an invalid name of a project": (
        build_project("Bad_Name"),
        ['The Project "Bad_Name" is invalid', 'metadata.name: Invalid value: "Bad_Name"', "RFC 1123 label"],
    ),
    "a name too long for the namespace of a project": (
        build_project("n" * 60),
        [f'The Project "{"n" * 60}" is invalid', "must be no more than 53 characters", "choose a shorter name"],
    ),
    "an invalid label": (
        build_app("x", {"not a key": "v"}),
        ["metadata.labels", '"not a key"'],
    ),
    "a namespace that does not exist": (
        build_workspace("x", "nowhere"),
        ['namespaces "nowhere" not found'],
    ),
    "a namespace that does not exist, for a core kind": (
        build_core_object("ConfigMap", "x", "nowhere"),
        ['namespaces "nowhere" not found'],
    ),
    "data of the wrong type in a core kind": (
        build_core_object("ConfigMap", "x", "default", data={"a": {"b": "c"}}),
        ["data.a", "string"],
    ),
}


@pytest.mark.parametrize("mistake", INVALID_BODIES)
def test_a_file_is_rejected_with(kubectl: Kubectl, mistake: str) -> None:
    body, messages = INVALID_BODIES[mistake]
    error = kubectl.expect_failure("create", "-f", "-", body=to_yaml(body))
    assert [message for message in messages if message not in error] == [], error


def test_creating_an_existing_name_is_an_error(kubectl: Kubectl, existing_app: str) -> None:
    error = kubectl.expect_failure("create", "-f", "-", body=to_yaml(build_app(existing_app)))
    assert "(AlreadyExists)" in error
    assert f'apps.{GROUP} "{existing_app}" already exists' in error


def test_malformed_yaml_is_reported_with_its_line(kubectl: Kubectl) -> None:
    error = kubectl.expect_failure("create", "-f", "-", body="kind: App\n  metadata: [1\n")
    assert "error converting YAML to JSON: yaml: line" in error


def test_a_file_without_a_kind_is_rejected(kubectl: Kubectl) -> None:
    error = kubectl.expect_failure("create", "-f", "-", body=f"apiVersion: {VERSION}\nmetadata: {{name: x}}\n")
    assert "kind not set" in error


def test_an_invalid_document_does_not_prevent_the_others(kubectl: Kubectl) -> None:
    error = kubectl.expect_failure(
        "create", "-f", "-", body=to_yaml(build_app("good-1"), build_app("Bad"), build_app("good-2"))
    )
    assert 'The App "Bad" is invalid' in error
    assert kubectl.get_names("app", "good-1", "good-2") == ["good-1", "good-2"]


def test_unknown_fields_get_a_warning_with_validate_warn(kubectl: Kubectl) -> None:
    warnings = kubectl.expect_warnings(
        "create", "-f", "-", "--validate=warn", body=to_yaml(build_app("warned", displayNam="a"))
    )
    assert warnings == 'Warning: unknown field "spec.displayNam"\n'
    assert kubectl.get_json("app", "warned").get("spec", {}) == {}


def test_a_deprecated_field_works_with_a_warning(kubectl: Kubectl) -> None:
    warnings = kubectl.expect_warnings("create", "-f", "-", body=to_yaml(build_app("old-style", manifests="a: b")))
    assert warnings == "Warning: spec.manifests is deprecated: use spec.config.manifests\n"


def test_a_stale_replace_is_a_conflict(kubectl: Kubectl, existing_app: str) -> None:
    old = kubectl.get_json("app", existing_app)
    kubectl("annotate", "app", existing_app, "moved=on")
    error = kubectl.expect_failure("replace", "-f", "-", body=json.dumps(old))
    assert "(Conflict)" in error
    assert "the object has been modified; please apply your changes to the latest version and try again" in error


def test_replacing_a_missing_object_is_an_error(kubectl: Kubectl) -> None:
    error = kubectl.expect_failure("replace", "-f", "-", body=to_yaml(build_app("nope")))
    assert f'apps.{GROUP} "nope" not found' in error


@pytest.mark.parametrize(
    ("patch", "messages"),
    [
        ('[{"op":"remove","path":"/spec/nope"}]', ["remove /spec/nope", "there is no 'nope'"]),
        ('[{"op":"add","path":"/spec/a/b","value":1}]', ["add /spec/a/b", "add it first"]),
        ('[{"op":"frob","path":"/spec/displayName"}]', ["op must be one of"]),
        ('[{"op":"test","path":"/spec/displayName","value":"?"}]', ["test /spec/displayName"]),
        ('[{"op":"replace","path":"/spec/displayName","value":5}]', ["must be of type string"]),
        ('[{"op":"replace","path":"/metadata/name","value":"x"}]', ["does not match the name on the URL"]),
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_explained(
    kubectl: Kubectl, existing_app: str, patch: str, messages: list[str]
) -> None:
    error = kubectl.expect_failure("patch", "app", existing_app, "--type=json", "-p", patch)
    assert [message for message in messages if message not in error] == [], error


@pytest.mark.parametrize(
    ("option", "messages"),
    [
        (["-l", "a in b"], ["(BadRequest)", "unable to parse requirement", "expected: '('"]),
        (["-l", "a==="], ["(BadRequest)", "found '='"]),
        (["-l", "-a=b"], ["(BadRequest)", '"-a"', "alphanumeric"]),
        (["--field-selector", "spec.nope=1"], ["(BadRequest)", "field label not supported: spec.nope"]),
        (["--field-selector", "nonsense"], ["(BadRequest)", "can't understand 'nonsense'"]),
    ],
)
def test_an_invalid_selector_is_explained(kubectl: Kubectl, option: list[str], messages: list[str]) -> None:
    error = kubectl.expect_failure("get", "apps", *option)
    assert [message for message in messages if message not in error] == [], error


@pytest.mark.parametrize("key", ["wrong", "fairlead_" + "A" * 43])
def test_an_invalid_key_gets_an_error_about_the_login(kubectl: Kubectl, key: str) -> None:
    error = kubectl.expect_failure("get", "apps", f"--token={key}")
    assert "You must be logged in to the server" in error
    assert "invalid bearer token" in error


@pytest.mark.parametrize(
    ("command", "messages"),
    [
        (("delete", "app", "nope"), f'apps.{GROUP} "nope" not found'),
        (("get", "app", "nope"), f'apps.{GROUP} "nope" not found'),
        (("get", "cm", "nope"), 'configmaps "nope" not found'),
        (("get", "ws", "nope"), f'devpodworkspaceinstances.{GROUP} "nope" not found'),
        (("get", "nopes"), 'the server doesn\'t have a resource type "nopes"'),
        (("label", "app", "nope", "a=b"), f'apps.{GROUP} "nope" not found'),
        (("patch", "app", "nope", "--type=merge", "-p", "{}"), f'apps.{GROUP} "nope" not found'),
        (("delete", "-f", "-"), f'apps.{GROUP} "nope" not found'),
    ],
)
def test_missing_objects_and_resources_are_named(kubectl: Kubectl, command: tuple[str, ...], messages: str) -> None:
    assert messages in kubectl.expect_failure(*command, body=to_yaml(build_app("nope")))


def test_deleting_a_missing_object_succeeds_with_ignore_not_found(kubectl: Kubectl) -> None:
    assert kubectl("delete", "app", "nope", "--ignore-not-found") == ""
