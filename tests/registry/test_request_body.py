"""What comes in: the right kind, in the right place, and what becomes of fields that nobody declared."""

from typing import Any

import pytest

from fairlead.core.errors import BadRequest, Invalid
from fairlead.core.objects import Object
from fairlead.kinds import KINDS
from fairlead.registry.kind import Kind, Sensitivity
from fairlead.registry.request_body import (
    BodyContext,
    as_patch_error,
    check_name_and_namespace,
    check_type_meta,
    prune_and_validate,
)
from fairlead.registry.schema import integer, obj, string
from fairlead.registry.validate import Validator
from tests.harness.registry import GADGET, as_ada

CONFIGMAP = next(kind for kind in KINDS if kind.name == "ConfigMap")
VERSION = "management.service.sh/v1"


@pytest.mark.parametrize("body", [None, [], "text", 5, True, [{"kind": "Gadget"}]])
@pytest.mark.parametrize("kind", [GADGET, CONFIGMAP], ids=lambda kind: kind.name)
def test_a_body_that_is_no_object_is_refused(body: Any, kind: Kind) -> None:
    with pytest.raises(BadRequest, match=f"must be of type {kind.name}"):
        check_type_meta(body, kind)


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ({}, "Object 'Kind' is missing"),
        ({"apiVersion": VERSION}, "Object 'Kind' is missing"),
        ({"apiVersion": VERSION, "kind": ""}, "Object 'Kind' is missing"),
        ({"apiVersion": VERSION, "kind": 5}, "Object 'Kind' is missing"),
        ({"kind": "Gadget"}, "Object 'apiVersion' is missing"),
        ({"kind": "Gadget", "apiVersion": ["v1"]}, "Object 'apiVersion' is missing"),
    ],
)
def test_a_body_that_does_not_say_what_it_is_is_told_what_to_say(body: Object, missing: str) -> None:
    with pytest.raises(BadRequest, match=missing):
        check_type_meta(body, GADGET)


def test_core_kinds_may_leave_out_what_the_path_says_already() -> None:
    assert check_type_meta({"data": {}}, CONFIGMAP) == {"kind": "ConfigMap", "apiVersion": "v1", "data": {}}


@pytest.mark.parametrize("kind", [GADGET, CONFIGMAP], ids=lambda kind: kind.name)
def test_another_api_version_is_refused(kind: Kind) -> None:
    with pytest.raises(BadRequest, match=r"the API version in the data \(v9\) does not match"):
        check_type_meta({"kind": kind.name, "apiVersion": "v9"}, kind)


def test_another_kind_is_refused_and_named() -> None:
    with pytest.raises(BadRequest, match='it is of kind "Secret"'):
        check_type_meta({"kind": "Secret", "apiVersion": "v1"}, CONFIGMAP)
    with pytest.raises(Invalid) as caught:
        check_type_meta({"kind": "App", "apiVersion": VERSION, "metadata": {"name": "a"}}, GADGET)
    assert (caught.value.details.kind, caught.value.details.name) == ("App", "a")
    assert [problem.field for problem in caught.value.details.problems] == ["kind"]


@pytest.mark.parametrize("metadata", [None, "x", {"name": None}, {"name": ["a"]}])
def test_another_kind_with_broken_metadata_is_still_only_another_kind(metadata: Any) -> None:
    with pytest.raises(Invalid):
        check_type_meta({"kind": "App", "apiVersion": VERSION, "metadata": metadata}, GADGET)


PLACES: list[tuple[Object, str, str, Object]] = [
    ({"name": "a"}, "demo", "", {"name": "a", "namespace": "demo"}),
    ({"name": "a", "namespace": "demo"}, "demo", "a", {"name": "a", "namespace": "demo"}),
    ({"name": "a", "namespace": ""}, "demo", "a", {"name": "a", "namespace": "demo"}),
    ({"generateName": "a-"}, "demo", "", {"generateName": "a-", "namespace": "demo"}),
]


@pytest.mark.parametrize(("meta", "namespace", "name", "settled"), PLACES)
def test_what_the_body_leaves_out_is_taken_from_the_url(
    meta: Object, namespace: str, name: str, settled: Object
) -> None:
    obj = {"metadata": meta}
    check_name_and_namespace(obj, CONFIGMAP, namespace, name)
    assert obj == {"metadata": settled}


def test_a_namespace_means_nothing_to_a_kind_without_namespaces() -> None:
    obj: Object = {"metadata": {"name": "a", "namespace": "demo"}}
    check_name_and_namespace(obj, GADGET, "", "a")
    assert obj == {"metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ({}, "name must be provided"),
        ({"name": ""}, "name must be provided"),
        ({"name": "b"}, r"the name of the object \(b\) does not match the name on the URL \(a\)"),
        ({"name": "a", "namespace": "other"}, "namespace of the provided object does not match"),
    ],
)
def test_a_body_for_another_place_than_the_urls_is_refused(meta: Object, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        check_name_and_namespace({"metadata": meta}, CONFIGMAP, "demo", "a")


def strange() -> Object:
    return {
        "apiVersion": VERSION,
        "kind": "Gadget",
        "metadata": {"name": "a", "nick": "b"},
        "spec": {"size": 1, "sise": 2},
        "odd": {},
    }


def shaped(obj: Object, kind: Kind = GADGET, duplicates: tuple[str, ...] = (), **options: Any) -> tuple[Any, list[str]]:
    writing = as_ada(**options)
    return prune_and_validate(obj, kind, Validator(kind.schema()), writing, BodyContext(duplicates)), writing.warnings


WORDS = [
    'duplicate field "spec.size"',
    'unknown field "metadata.nick"',
    'unknown field "spec.sise"',
    'unknown field "odd"',
]


def test_unknown_and_duplicate_fields_are_dropped_with_a_warning() -> None:
    obj = strange()
    problems, warnings = shaped(obj, duplicates=("spec.size",))
    assert problems == []
    assert warnings == WORDS
    assert obj["metadata"] == {"name": "a"}
    assert obj["spec"] == {"size": 1, "mode": "plain"}
    assert "odd" not in obj


def test_they_are_dropped_without_a_word_if_that_was_asked_for() -> None:
    obj = strange()
    assert shaped(obj, duplicates=("spec.size",), field_validation="Ignore") == ([], [])
    assert "odd" not in obj


def test_they_are_refused_all_at_once_if_that_was_asked_for() -> None:
    with pytest.raises(BadRequest) as caught:
        shaped(strange(), duplicates=("spec.size",), field_validation="Strict")
    assert f"strict decoding error: {', '.join(WORDS)}" in caught.value.message


def test_nothing_is_refused_where_nothing_is_strange() -> None:
    obj = {"apiVersion": VERSION, "kind": "Gadget", "metadata": {"name": "a"}, "spec": {"size": 1}}
    assert shaped(obj, field_validation="Strict") == ([], [])


def test_a_wrong_type_is_a_problem_of_the_object_or_for_core_kinds_of_the_body() -> None:
    problems, _ = shaped({"apiVersion": VERSION, "kind": "Gadget", "spec": {"size": "1", "on": 1}})
    assert [problem.field for problem in problems] == ["spec.size", "spec.on"]
    with pytest.raises(BadRequest, match='ConfigMap in version "v1" cannot be handled as a ConfigMap: data'):
        shaped({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": 1}}, CONFIGMAP)


def test_a_credential_that_does_not_decode_is_not_repeated_in_the_answer() -> None:
    secret = next(kind for kind in KINDS if kind.name == "Secret")
    with pytest.raises(BadRequest) as caught:
        shaped({"apiVersion": "v1", "kind": "Secret", "data": {"password": "hunter2!"}}, secret)
    assert "data.password" in caught.value.message
    assert "hunter2!" not in caught.value.message


def test_what_is_wrong_with_a_patched_object_is_wrong_with_the_patch() -> None:
    error = as_patch_error(BadRequest("it does not decode"), as_ada(is_patch=True))
    assert isinstance(error, Invalid)
    assert [(each.field, each.message) for each in error.details.problems] == [
        ("patch", "Invalid value: it does not decode")
    ]


def test_what_is_wrong_with_a_body_stays_a_bad_request() -> None:
    error = BadRequest("it does not decode")
    assert as_patch_error(error, as_ada()) is error


@pytest.mark.parametrize("validation", ["Warn", "Ignore"])
def test_where_a_kind_takes_no_chances_an_unknown_field_is_refused(validation: str) -> None:
    limits = obj(spec=obj(limits=obj(most=integer()), name=string()))["properties"]
    kind = Kind(
        "Fence",
        "fences",
        False,
        limits,
        "For tests.",
        reject_unknown_under=("spec.limits",),
        sensitivity=Sensitivity.NORMAL,
    )
    body = {
        "apiVersion": kind.api_version,
        "kind": "Fence",
        "metadata": {"name": "a"},
        "spec": {"limits": {"mots": 5}, "nmae": "x"},
    }
    found = prune_and_validate(body, kind, Validator(kind.schema()), as_ada(field_validation=validation), BodyContext())
    assert [problem.field for problem in found] == ["spec.limits.mots"]
