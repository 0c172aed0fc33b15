"""registry/request_body.py: type, name and namespace of a body, and unknown or duplicate fields."""

from typing import Any

import pytest

from fairlead.core.errors import ApiError, BadRequest, Invalid
from fairlead.core.objects import Object
from fairlead.kinds import KINDS
from fairlead.registry.kind import Kind, Sensitivity
from fairlead.registry.request_body import (
    BodyContext,
    as_patch_error,
    check_name_and_namespace,
    check_new_type,
    check_type_meta,
    decode_update,
    prune_and_validate,
)
from fairlead.registry.schema import integer, obj, string
from fairlead.registry.validate import Validator
from tests.harness.registry import GADGET, write_options

CONFIGMAP = next(kind for kind in KINDS if kind.name == "ConfigMap")
VERSION = "management.service.sh/v1"


@pytest.mark.parametrize("body", [None, [], "text", 5, True, [{"kind": "Gadget"}]])
@pytest.mark.parametrize("kind", [GADGET, CONFIGMAP], ids=lambda kind: kind.name)
def test_a_body_that_is_not_an_object_is_a_bad_request(body: Any, kind: Kind) -> None:
    with pytest.raises(BadRequest, match=f"must be of type {kind.name}"):
        check_type_meta(body, kind)


def test_metadata_that_cannot_be_decoded_precedes_another_kind() -> None:
    other: Object = {"apiVersion": VERSION, "kind": "Nope", "metadata": {"name": "a"}}
    with pytest.raises(Invalid, match="must be Gadget"):
        check_new_type(other, GADGET, write_options())
    for metadata in (5, {"labels": {"a": 5}}, {"generation": "7"}):
        with pytest.raises(BadRequest):
            check_new_type({**other, "metadata": metadata}, GADGET, write_options())
    options, unknown = write_options(), {**other, "metadata": {"name": "a", "bogus": 1}}
    with pytest.raises(Invalid):
        check_new_type(unknown, GADGET, options)
    assert options.warnings == ['unknown field "metadata.bogus"']
    with pytest.raises(BadRequest, match="strict decoding error"):
        check_new_type({**other, "metadata": {"bogus": 1}}, GADGET, write_options(field_validation="Strict"))


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
def test_a_body_without_kind_and_api_version_is_rejected(body: Object, missing: str) -> None:
    with pytest.raises(BadRequest, match=missing):
        check_type_meta(body, GADGET)


def test_core_kinds_can_omit_kind_and_api_version() -> None:
    assert check_type_meta({"data": {}}, CONFIGMAP) == {"kind": "ConfigMap", "apiVersion": "v1", "data": {}}


@pytest.mark.parametrize("kind", [GADGET, CONFIGMAP], ids=lambda kind: kind.name)
def test_another_api_version_is_rejected(kind: Kind) -> None:
    with pytest.raises(BadRequest, match=r"the API version in the data \(v9\) does not match"):
        check_type_meta({"kind": kind.name, "apiVersion": "v9"}, kind)


def test_another_kind_is_rejected_and_named() -> None:
    with pytest.raises(BadRequest, match='it is of kind "Secret"'):
        check_type_meta({"kind": "Secret", "apiVersion": "v1"}, CONFIGMAP)
    with pytest.raises(Invalid) as caught:
        check_type_meta({"kind": "App", "apiVersion": VERSION, "metadata": {"name": "a"}}, GADGET)
    assert (caught.value.details.kind, caught.value.details.name) == ("App", "a")
    assert [problem.field for problem in caught.value.details.problems] == ["kind"]


@pytest.mark.parametrize("metadata", [None, "x", {"name": None}, {"name": ["a"]}])
def test_another_kind_with_invalid_metadata_is_rejected_for_its_kind(metadata: Any) -> None:
    with pytest.raises(Invalid):
        check_type_meta({"kind": "App", "apiVersion": VERSION, "metadata": metadata}, GADGET)


METADATA_CASES: list[tuple[Object, str, str, Object]] = [
    ({"name": "a"}, "demo", "", {"name": "a", "namespace": "demo"}),
    ({"name": "a", "namespace": "demo"}, "demo", "a", {"name": "a", "namespace": "demo"}),
    ({"name": "a", "namespace": ""}, "demo", "a", {"name": "a", "namespace": "demo"}),
    ({"generateName": "a-"}, "demo", "", {"generateName": "a-", "namespace": "demo"}),
]


@pytest.mark.parametrize(("meta", "namespace", "name", "expected"), METADATA_CASES)
def test_missing_name_and_namespace_are_taken_from_the_url(
    meta: Object, namespace: str, name: str, expected: Object
) -> None:
    obj = {"metadata": meta}
    check_name_and_namespace(obj, CONFIGMAP, namespace, name)
    assert obj == {"metadata": expected}


def test_the_namespace_of_a_cluster_scoped_object_is_dropped() -> None:
    obj: Object = {"metadata": {"name": "a", "namespace": "demo"}}
    check_name_and_namespace(obj, GADGET, "", "a")
    assert obj == {"metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({}, "name must be provided"),
        ({"name": ""}, "name must be provided"),
        ({"name": "b"}, r"the name of the object \(b\) does not match the name on the URL \(a\)"),
        ({"name": "a", "namespace": "other"}, "namespace of the provided object does not match"),
    ],
)
def test_a_name_or_namespace_that_differs_from_the_url_is_rejected(meta: Object, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        check_name_and_namespace({"metadata": meta}, CONFIGMAP, "demo", "a")


def body_with_unknown_fields() -> Object:
    return {
        "apiVersion": VERSION,
        "kind": "Gadget",
        "metadata": {"name": "a", "nick": "b"},
        "spec": {"size": 1, "sise": 2},
        "unknown": {},
    }


def prune(obj: Object, kind: Kind = GADGET, duplicates: tuple[str, ...] = (), **options: Any) -> tuple[Any, list[str]]:
    writing = write_options(**options)
    return prune_and_validate(obj, kind, Validator(kind.schema()), writing, BodyContext(duplicates)), writing.warnings


WARNINGS = [
    'duplicate field "spec.size"',
    'unknown field "metadata.nick"',
    'unknown field "spec.sise"',
    'unknown field "unknown"',
]


def test_unknown_and_duplicate_fields_are_dropped_with_a_warning() -> None:
    obj = body_with_unknown_fields()
    problems, warnings = prune(obj, duplicates=("spec.size",))
    assert problems == []
    assert warnings == WARNINGS
    assert obj["metadata"] == {"name": "a"}
    assert obj["spec"] == {"size": 1, "mode": "plain"}
    assert "unknown" not in obj


def test_a_body_of_a_core_kind_that_cannot_be_decoded_has_no_warnings() -> None:
    options = write_options()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": 5}, "unknown": 1}
    with pytest.raises(BadRequest):
        prune_and_validate(body, CONFIGMAP, Validator(CONFIGMAP.schema()), options, BodyContext(()))
    assert options.warnings == []


def test_unknown_fields_are_dropped_silently_with_field_validation_ignore() -> None:
    obj = body_with_unknown_fields()
    assert prune(obj, duplicates=("spec.size",), field_validation="Ignore") == ([], [])
    assert "unknown" not in obj


def test_unknown_fields_are_rejected_together_with_field_validation_strict() -> None:
    with pytest.raises(BadRequest) as caught:
        prune(body_with_unknown_fields(), duplicates=("spec.size",), field_validation="Strict")
    assert f"strict decoding error: {', '.join(WARNINGS)}" in caught.value.message


def test_a_valid_body_passes_strict_field_validation() -> None:
    obj = {"apiVersion": VERSION, "kind": "Gadget", "metadata": {"name": "a"}, "spec": {"size": 1}}
    assert prune(obj, field_validation="Strict") == ([], [])


def test_a_wrong_type_is_invalid_and_for_core_kinds_a_bad_request() -> None:
    problems, _ = prune({"apiVersion": VERSION, "kind": "Gadget", "spec": {"size": "1", "on": 1}})
    assert [problem.field for problem in problems] == ["spec.size", "spec.on"]
    with pytest.raises(BadRequest, match='ConfigMap in version "v1" cannot be handled as a ConfigMap: data'):
        prune({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": 1}}, CONFIGMAP)


def test_the_error_about_an_undecodable_credential_does_not_contain_it() -> None:
    secret = next(kind for kind in KINDS if kind.name == "Secret")
    with pytest.raises(BadRequest) as caught:
        prune({"apiVersion": "v1", "kind": "Secret", "data": {"password": "hunter2!"}}, secret)
    assert "data.password" in caught.value.message
    assert "hunter2!" not in caught.value.message


def test_a_wrong_type_in_a_patched_object_is_an_invalid_patch() -> None:
    error = as_patch_error(BadRequest("it does not decode"), write_options(is_patch=True))
    assert isinstance(error, Invalid)
    assert [(each.field, each.message) for each in error.details.problems] == [
        ("patch", "Invalid value: it does not decode")
    ]


KEY = ("", "a")


def decode(proposed: Any, kind: Kind, *, is_patch: bool = True) -> Object:
    meta = {"name": "a", "uid": "u", "resourceVersion": "7"}
    old = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}
    options = write_options(is_patch=is_patch)
    return decode_update(proposed, kind, Validator(kind.schema()), KEY, options, BodyContext((), old))[0]


@pytest.mark.parametrize(
    ("wrong", "meta", "code", "fields"),
    [
        ({"kind": "X"}, {"resourceVersion": "7"}, 422, ["kind"]),
        ({"apiVersion": "v2"}, {"resourceVersion": "7"}, 422, ["apiVersion"]),
        ({"kind": "X", "apiVersion": "v2"}, {"resourceVersion": "7"}, 422, ["kind", "apiVersion"]),
        ({"kind": "X"}, {"resourceVersion": "7", "uid": "v"}, 422, ["kind", "metadata.uid"]),
        ({"kind": "X"}, {"resourceVersion": "7", "labels": {"-": ""}}, 422, ["kind", "metadata.labels"]),
        ({"kind": "X"}, {"resourceVersion": "6"}, 409, []),
        ({"kind": "X"}, {}, 422, ["metadata.resourceVersion"]),
        ({"kind": "X"}, {"name": "b"}, 400, []),
        ({"kind": "X"}, {"labels": 5}, 422, ["patch"]),
        ({"kind": 5}, {}, 422, ["patch"]),
        ({"kind": None}, {}, 422, ["patch"]),
    ],
)
def test_another_type_in_a_patch_is_reported_after_its_metadata(
    wrong: Object, meta: Object, code: int, fields: list[str]
) -> None:
    proposed = {"apiVersion": GADGET.api_version, "kind": "Gadget", "metadata": {"name": "a", **meta}, **wrong}
    with pytest.raises(ApiError) as caught:
        decode(proposed, GADGET)
    assert (caught.value.code, [each.field for each in caught.value.details.problems]) == (code, fields)


def test_a_patch_of_a_core_kind_may_remove_the_kind_but_not_the_version() -> None:
    config = {"apiVersion": "v1", "metadata": {"name": "a"}}
    assert decode(config, CONFIGMAP)["kind"] == "ConfigMap"
    for version in (None, ""):
        with pytest.raises(BadRequest, match="name must be provided"):
            decode({**config, "apiVersion": version}, CONFIGMAP)


def test_a_wrong_type_in_a_body_stays_a_bad_request() -> None:
    error = BadRequest("it does not decode")
    assert as_patch_error(error, write_options()) is error


@pytest.mark.parametrize("validation", ["Warn", "Ignore"])
def test_a_kind_with_strict_fields_rejects_unknown_fields(validation: str) -> None:
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
    found = prune_and_validate(
        body, kind, Validator(kind.schema()), write_options(field_validation=validation), BodyContext()
    )
    assert [problem.field for problem in found] == ["spec.limits.mots"]
