"""Mistakes that people make with kubectl: each fails, and the message says what is wrong."""

import json
from typing import Any

import pytest

from tests.clients.objects import Body, app, as_yaml, core, project, workspace
from tests.clients.server import GROUP, VERSION
from tests.harness.kubectl import Kubectl


@pytest.fixture(scope="module")
def taken(kubectl: Kubectl) -> str:
    """The name of an app that exists."""
    kubectl("create", "-f", "-", body=as_yaml(app("taken", displayName="T")))
    return "taken"


def changed(body: Body, **fields: Any) -> Body:
    return {**body, **fields}


REFUSED_BODIES: dict[str, tuple[Body, list[str]]] = {
    "an unknown kind": (
        changed(app("x"), kind="Appp"),
        [f'no matches for kind "Appp" in version "{VERSION}"'],
    ),
    "an unknown version": (
        changed(app("x"), apiVersion=f"{GROUP}/v2"),
        [f'no matches for kind "App" in version "{GROUP}/v2"'],
    ),
    "unknown fields": (
        app("x", displayNam="a", config={"chart": {"nam": "b"}}),
        ["strict decoding error", 'unknown field "spec.displayNam"', 'unknown field "spec.config.chart.nam"'],
    ),
    "an unknown field of metadata": (
        changed(app("x"), metadata={"name": "x", "label": {"a": "b"}}),
        ['unknown field "metadata.label"'],
    ),
    "wrong types": (
        app("x", displayName=5, recommendedApp="cluster"),
        [
            'The App "x" is invalid',
            'spec.displayName in body must be of type string: "integer"',
            'spec.recommendedApp in body must be of type array: "string"',
        ],
    ),
    "a value outside a closed list": (
        project("x", members=[{"kind": "Robot", "name": "r2"}]),
        ["spec.members[0].kind", '"Robot"', 'supported values: "User", "Team"'],
    ),
    "a missing required field": (
        project("x", members=[{"kind": "User"}]),
        ["spec.members[0].name: Required value"],
    ),
    "two things that exclude each other": (
        app("x", config={"chart": {"name": "a"}, "manifests": "b"}),
        ["spec.config.manifests: Forbidden", "keep one of chart, manifests and bash"],
    ),
    "no name": (
        changed(app("x"), metadata={}),
        ["metadata.name: Required value: name or generateName is required"],
    ),
    "an invalid name": (
        app("Bad_Name"),
        ['The App "Bad_Name" is invalid: metadata.name: Invalid value: "Bad_Name"', "RFC 1123 subdomain"],
    ),
    "an invalid name of a project": (
        project("Bad_Name"),
        ['The Project "Bad_Name" is invalid', 'metadata.name: Invalid value: "Bad_Name"', "RFC 1123 label"],
    ),
    "a name too long for the namespace of a project": (
        project("n" * 60),
        [f'The Project "{"n" * 60}" is invalid', "must be no more than 53 characters", "choose a shorter name"],
    ),
    "an invalid label": (
        app("x", {"not a key": "v"}),
        ["metadata.labels", '"not a key"'],
    ),
    "a namespace that does not exist": (
        workspace("x", "nowhere"),
        ['namespaces "nowhere" not found'],
    ),
    "a namespace that does not exist, for a core kind": (
        core("ConfigMap", "x", "nowhere"),
        ['namespaces "nowhere" not found'],
    ),
    "data of the wrong type in a core kind": (
        core("ConfigMap", "x", "default", data={"a": {"b": "c"}}),
        ["data.a", "string"],
    ),
}


@pytest.mark.parametrize("mistake", REFUSED_BODIES)
def test_a_file_is_refused_for(kubectl: Kubectl, mistake: str) -> None:
    body, words = REFUSED_BODIES[mistake]
    said = kubectl.refused("create", "-f", "-", body=as_yaml(body))
    assert [word for word in words if word not in said] == [], said


def test_a_name_that_is_taken_is_told(kubectl: Kubectl, taken: str) -> None:
    said = kubectl.refused("create", "-f", "-", body=as_yaml(app(taken)))
    assert "(AlreadyExists)" in said
    assert f'apps.{GROUP} "{taken}" already exists' in said


def test_malformed_yaml_is_told_with_its_line(kubectl: Kubectl) -> None:
    said = kubectl.refused("create", "-f", "-", body="kind: App\n  metadata: [1\n")
    assert "error converting YAML to JSON: yaml: line" in said


def test_a_file_without_a_kind_is_told(kubectl: Kubectl) -> None:
    said = kubectl.refused("create", "-f", "-", body=f"apiVersion: {VERSION}\nmetadata: {{name: x}}\n")
    assert "kind not set" in said


def test_one_mistake_among_many_documents_leaves_the_others_created(kubectl: Kubectl) -> None:
    said = kubectl.refused("create", "-f", "-", body=as_yaml(app("good-1"), app("Bad"), app("good-2")))
    assert 'The App "Bad" is invalid' in said
    assert kubectl.names("app", "good-1", "good-2") == ["good-1", "good-2"]


def test_unknown_fields_are_only_warned_of_if_validation_says_so(kubectl: Kubectl) -> None:
    said = kubectl.warned("create", "-f", "-", "--validate=warn", body=as_yaml(app("warned", displayNam="a")))
    assert said == 'Warning: unknown field "spec.displayNam"\n'
    assert kubectl.read("app", "warned").get("spec", {}) == {}


def test_a_deprecated_field_works_with_a_warning(kubectl: Kubectl) -> None:
    said = kubectl.warned("create", "-f", "-", body=as_yaml(app("old-style", manifests="a: b")))
    assert said == "Warning: spec.manifests is deprecated: use spec.config.manifests\n"


def test_a_stale_replace_is_refused(kubectl: Kubectl, taken: str) -> None:
    old = kubectl.read("app", taken)
    kubectl("annotate", "app", taken, "moved=on")
    said = kubectl.refused("replace", "-f", "-", body=json.dumps(old))
    assert "(Conflict)" in said
    assert "the object has been modified; please apply your changes to the latest version and try again" in said


def test_replacing_what_is_not_there_is_refused(kubectl: Kubectl) -> None:
    said = kubectl.refused("replace", "-f", "-", body=as_yaml(app("nope")))
    assert f'apps.{GROUP} "nope" not found' in said


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ('[{"op":"remove","path":"/spec/nope"}]', ["remove /spec/nope", "there is no 'nope'"]),
        ('[{"op":"add","path":"/spec/a/b","value":1}]', ["add /spec/a/b", "add it first"]),
        ('[{"op":"add","path":"spec/displayName","value":"x"}]', ["path must begin with a slash"]),
        ('[{"op":"frob","path":"/spec/displayName"}]', ["op must be one of"]),
        ('[{"op":"test","path":"/spec/displayName","value":"?"}]', ["test /spec/displayName"]),
        ('[{"op":"replace","path":"/spec/displayName","value":5}]', ["must be of type string"]),
        ('[{"op":"replace","path":"/metadata/name","value":"x"}]', ["does not match the name on the URL"]),
    ],
)
def test_a_json_patch_that_cannot_be_applied_says_why(
    kubectl: Kubectl, taken: str, patch: str, words: list[str]
) -> None:
    said = kubectl.refused("patch", "app", taken, "--type=json", "-p", patch)
    assert [word for word in words if word not in said] == [], said


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["-l", "a in b"], ["(BadRequest)", "unable to parse requirement", "expected: '('"]),
        (["-l", "a==="], ["(BadRequest)", "found '='"]),
        (["-l", "-a=b"], ["(BadRequest)", '"-a"', "alphanumeric"]),
        (["--field-selector", "spec.nope=1"], ["(BadRequest)", "field label not supported: spec.nope"]),
        (["--field-selector", "nonsense"], ["(BadRequest)", "can't understand 'nonsense'"]),
    ],
)
def test_a_selector_that_means_nothing_says_so(kubectl: Kubectl, option: list[str], words: list[str]) -> None:
    said = kubectl.refused("get", "apps", *option)
    assert [word for word in words if word not in said] == [], said


@pytest.mark.parametrize("key", ["wrong", "fairlead_" + "A" * 43])
def test_a_wrong_key_is_told_to_log_in(kubectl: Kubectl, key: str) -> None:
    said = kubectl.refused("get", "apps", f"--token={key}")
    assert "You must be logged in to the server" in said
    assert "invalid bearer token" in said


@pytest.mark.parametrize(
    ("command", "words"),
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
def test_what_is_not_there_is_named(kubectl: Kubectl, command: tuple[str, ...], words: str) -> None:
    assert words in kubectl.refused(*command, body=as_yaml(app("nope")))


def test_deleting_what_is_not_there_can_be_made_no_mistake(kubectl: Kubectl) -> None:
    assert kubectl("delete", "app", "nope", "--ignore-not-found") == ""
