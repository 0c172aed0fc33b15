"""registry/object_metadata.py: fields set by the server, validation of metadata, and generated names."""

import re
from typing import Any
from uuid import UUID

import pytest

from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.kinds import KINDS
from fairlead.kinds.core.event import EVENT
from fairlead.kinds.core.lease import LEASE
from fairlead.registry.kind import Kind
from fairlead.registry.object_metadata import (
    MAX_ANNOTATIONS_BYTES,
    check_types,
    finalizer_warnings,
    generate_name,
    init_metadata,
    label_problems,
    new_uid,
    preserve_server_fields,
    problems,
    remove_duplicate_owners,
    update_problems,
)
from tests.harness.registry import GADGET

NAMESPACE = next(kind for kind in KINDS if kind.name == "Namespace")
NOW = "2026-01-02T03:04:05Z"
FIELD_INVALID = "FieldValueInvalid"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1"}


def problem_reasons(meta: Object, kind: Kind = GADGET) -> list[tuple[str, str]]:
    return [(problem.field, problem.reason) for problem in problems({"metadata": meta}, kind)]


def test_server_set_fields_override_the_body_on_create() -> None:
    obj: Object = {
        "metadata": {
            "name": "a",
            "uid": "mine",
            "creationTimestamp": "1999-01-01T00:00:00Z",
            "deletionTimestamp": "1999-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 5,
            "generation": 7,
            "selfLink": "/x",
            "labels": {},
            "finalizers": [],
        }
    }
    init_metadata(obj, NOW, GADGET)
    uid = obj["metadata"].pop("uid")
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uid)
    assert obj["metadata"] == {"name": "a", "creationTimestamp": NOW, "generation": 1}


@pytest.mark.parametrize(("sent", "stored"), [({"generation": 7}, 7), ({"generation": 0}, None), ({}, None)])
def test_a_kind_that_does_not_count_generations_keeps_the_one_that_was_sent(sent: Object, stored: int | None) -> None:
    obj: Object = {"metadata": {"name": "a", **sent}}
    init_metadata(obj, NOW, NAMESPACE)
    assert obj["metadata"].get("generation") == stored


def test_an_update_cannot_change_server_set_fields() -> None:
    old = {"metadata": {"name": "a", "uid": "1", "creationTimestamp": NOW, "generation": 2, "resourceVersion": "9"}}
    new: Object = {
        "metadata": {
            "name": "a",
            "generation": 9,
            "selfLink": "/x",
            "annotations": {},
        }
    }
    preserve_server_fields(old, new)
    assert new == old


DELETED = {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0}


@pytest.mark.parametrize(
    ("before", "sent", "problem_fields"),
    [
        ({}, {"deletionTimestamp": NOW}, ["metadata.deletionTimestamp"]),
        ({}, {"deletionGracePeriodSeconds": 5}, ["metadata.deletionGracePeriodSeconds"]),
        (DELETED, {}, []),
        (DELETED, DELETED, []),
        (DELETED, {"deletionTimestamp": "2020-01-01T00:00:00Z"}, []),
        (DELETED, {"deletionGracePeriodSeconds": 5}, ["metadata.deletionGracePeriodSeconds"]),
        ({}, {"uid": "2"}, ["metadata.uid"]),
        ({}, {"uid": ""}, []),
    ],
)
def test_an_update_can_neither_begin_nor_end_a_deletion(
    before: Object, sent: Object, problem_fields: list[str]
) -> None:
    old = {"metadata": {"name": "a", "uid": "1", "resourceVersion": "9", **before}}
    new: Object = {"metadata": {"name": "a", **sent}}
    preserve_server_fields(old, new)
    assert [each.field for each in update_problems(old, new)] == problem_fields
    if not problem_fields:
        assert new == old


def test_missing_or_null_metadata_is_empty() -> None:
    for body in ({}, {"metadata": None}):
        obj: Object = dict(body)
        assert check_types(obj, GADGET) == []
        assert obj["metadata"] == {}


@pytest.mark.parametrize(
    "meta",
    [
        *("text", [], 5),
        *({"name": 5}, {"labels": []}, {"labels": {"a": 5}}, {"annotations": {"a": {}}}, {"finalizers": "x"}),
        *({"ownerReferences": {}}, {"ownerReferences": [5]}, {"generation": "1"}),
        *({"creationTimestamp": "yesterday"}, {"deletionTimestamp": 5}, {"managedFields": [{"time": "now"}]}),
        *({"generation": 2**63}, {"generation": 1.5}, {"ownerReferences": [{**OWNER, "controller": "true"}]}),
    ],
)
def test_metadata_of_the_wrong_type_is_a_bad_request(meta: Any) -> None:
    with pytest.raises(BadRequest, match='Gadget in version "v1" cannot be handled as a Gadget: metadata'):
        check_types({"metadata": meta}, GADGET)


def test_unknown_metadata_fields_are_dropped_and_named() -> None:
    obj: Object = {
        "metadata": {
            "name": "a",
            "nickname": "b",
            "ownerReferences": [{**OWNER, "since": NOW}],
            "creationTimestamp": None,
        }
    }
    assert check_types(obj, GADGET) == ["metadata.nickname", "metadata.ownerReferences[0].since"]
    assert obj["metadata"] == {"name": "a", "ownerReferences": [OWNER]}


def test_a_null_label_or_annotation_is_an_empty_string() -> None:
    obj: Object = {"metadata": {"labels": {"a": None, "b": "c"}, "annotations": {"a": None}}}
    check_types(obj, GADGET)
    assert obj["metadata"] == {"labels": {"a": "", "b": "c"}, "annotations": {"a": ""}}


def test_a_generated_name_is_the_prefix_and_five_characters() -> None:
    names = {generate_name("job-") for _ in range(200)}
    assert len(names) > 190
    assert all(re.fullmatch(r"job-[b-df-hj-np-tv-xz2-9]{5}", name) for name in names)


def test_a_generated_name_fits_into_a_dns_label_for_any_prefix() -> None:
    name = generate_name("a" * 300)
    assert len(name) == 63
    assert name.startswith("a" * 58)


VALID: list[Object] = [
    {"name": "a.b"},
    {"name": "a-x7", "generateName": "a-"},
    {"name": "a", "labels": {"example.com/a": "", "b": "C_d"}},
    {"name": "a", "annotations": {"Example.com/UPPER": "any text\n" * 100}},
    {"name": "a", "annotations": {"a": "x" * (MAX_ANNOTATIONS_BYTES - 1)}},
    {"name": "a", "finalizers": ["example.com/a", "orphan"]},
    {"name": "a", "ownerReferences": [{**OWNER, "controller": True}, {**OWNER, "uid": "2", "controller": False}]},
]

INVALID: list[tuple[Object, tuple[str, str]]] = [
    ({}, ("metadata.name", "FieldValueRequired")),
    ({"name": ""}, ("metadata.name", "FieldValueRequired")),
    ({"name": "A"}, ("metadata.name", "FieldValueInvalid")),
    ({"name": "a/b"}, ("metadata.name", "FieldValueInvalid")),
    ({"name": "x", "generateName": "A-"}, ("metadata.generateName", "FieldValueInvalid")),
    ({"name": "x", "generateName": "a_"}, ("metadata.generateName", "FieldValueInvalid")),
    ({"name": "a", "labels": {"-": "x"}}, ("metadata.labels", "FieldValueInvalid")),
    ({"name": "a", "labels": {"a": "x y"}}, ("metadata.labels", "FieldValueInvalid")),
    ({"name": "a", "annotations": {"a b": ""}}, ("metadata.annotations", "FieldValueInvalid")),
    ({"name": "a", "annotations": {"a": "x" * MAX_ANNOTATIONS_BYTES}}, ("metadata.annotations", "FieldValueTooLong")),
    (
        {"name": "a", "annotations": {"a": "ä" * (MAX_ANNOTATIONS_BYTES // 2)}},
        ("metadata.annotations", "FieldValueTooLong"),
    ),
    ({"name": "a", "finalizers": ["Bad Name"]}, ("metadata.finalizers", "FieldValueInvalid")),
    ({"name": "a", "finalizers": ["a b/c"]}, ("metadata.finalizers", "FieldValueInvalid")),
    ({"name": "a", "generation": -1}, ("metadata.generation", "FieldValueInvalid")),
    *(
        ({"name": "a", "ownerReferences": [{**OWNER, **wrong}]}, (f"metadata.ownerReferences.{field}", FIELD_INVALID))
        for field, wrong in (
            *((name, {name: ""}) for name in OWNER),
            *(("apiVersion", {"apiVersion": version}) for version in ("a/b/c", "a/", "/")),
        )
    ),
    *(
        ({"name": "a", "ownerReferences": [OWNER, {}]}, (f"metadata.ownerReferences[1].{field}", "FieldValueRequired"))
        for field in OWNER
    ),
    ({"name": "a", "ownerReferences": [{**OWNER, "kind": "Event"}]}, ("metadata.ownerReferences", FIELD_INVALID)),
    (
        {"name": "a", "ownerReferences": [{**OWNER, "controller": True}, {**OWNER, "uid": "2", "controller": True}]},
        ("metadata.ownerReferences", "FieldValueInvalid"),
    ),
]


@pytest.mark.parametrize("meta", VALID)
def test_valid_metadata_has_no_problems(meta: Object) -> None:
    assert problem_reasons(meta) == []


@pytest.mark.parametrize(("meta", "problem"), INVALID)
def test_invalid_metadata_is_reported_with_its_field(meta: Object, problem: tuple[str, str]) -> None:
    assert problem in problem_reasons(meta)


def test_a_kind_can_require_names_without_dots() -> None:
    assert problem_reasons({"name": "a.b"}, NAMESPACE) == [("metadata.name", "FieldValueInvalid")]
    assert problem_reasons({"name": "a" * 64}, NAMESPACE) == [("metadata.name", "FieldValueInvalid")]
    assert problem_reasons({"name": "a" * 64}) == []


def test_all_problems_are_reported_together() -> None:
    found = problem_reasons({"name": "A", "labels": {"-": "x y"}, "finalizers": ["!"], "ownerReferences": [{}]})
    assert {field for field, _ in found} >= {"metadata.name", "metadata.labels", "metadata.finalizers"}
    assert len(found) == 8


def test_an_object_being_deleted_can_lose_finalizers_but_not_get_new_ones() -> None:
    def update_finalizers(finalizers: list[str], deleting: bool) -> list[str]:
        marked = {"deletionTimestamp": NOW} if deleting else {}
        old: Object = {"metadata": {"finalizers": ["x.io/a", "x.io/b"], **marked}}
        return [str(each) for each in update_problems(old, {"metadata": {"finalizers": finalizers, **marked}})]

    assert update_finalizers(["x.io/b"], True) == []
    assert update_finalizers(["x.io/b", "x.io/a"], True) == []
    assert update_finalizers(["x.io/c"], False) == []
    assert update_finalizers(["x.io/a", "x.io/c"], True) == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"x.io/c"}'
    ]


@pytest.mark.parametrize(
    ("finalizer", "problem", "warnings"),
    [
        ("plain", "metadata.finalizers[0]", ["prefer a domain-qualified finalizer name to"]),
        ("plain.io", "metadata.finalizers[0]", ["prefer a domain-qualified finalizer name including a path (/) to"]),
        *((known, None, []) for known in ("kubernetes", "orphan", "foregroundDeletion", "example.com/f")),
    ],
)
def test_a_finalizer_without_a_domain_is_rejected_or_warned_about(
    finalizer: str, problem: str | None, warnings: list[str]
) -> None:
    sent: Object = {"metadata": {"name": "a", "finalizers": [finalizer]}}
    assert problem_reasons(sent["metadata"], NAMESPACE) == ([(problem, FIELD_INVALID)] if problem else [])
    assert problem_reasons(sent["metadata"]) == []
    found = list(finalizer_warnings(None, sent, GADGET))
    assert [text.startswith(f'metadata.finalizers: "{finalizer}": {warnings[0]}') for text in found] == [True] * len(
        warnings
    )
    assert list(finalizer_warnings(sent, sent, GADGET)) == [], "it was there before"
    for kind in (LEASE, EVENT):
        assert problem_reasons(sent["metadata"], kind) == []
        assert list(finalizer_warnings(None, sent, kind)) == []
    assert list(finalizer_warnings(None, sent, NAMESPACE)) == []


def test_null_in_a_list_or_map_of_metadata_is_an_empty_value() -> None:
    obj: Object = {"metadata": {"finalizers": [None], "labels": {"a": None}, "ownerReferences": [None]}}
    assert check_types(obj, GADGET) == []
    assert obj["metadata"] == {"finalizers": [""], "labels": {"a": ""}, "ownerReferences": [{}]}


def test_repeated_owners_are_removed_with_a_warning() -> None:
    other = {**OWNER, "controller": True}
    obj: Object = {"metadata": {"ownerReferences": [OWNER, other, dict(OWNER), dict(other)]}}
    warnings = list(remove_duplicate_owners(obj))
    assert obj["metadata"]["ownerReferences"] == [OWNER, other], "entries that only share their uid are kept"
    assert [text.partition("observed: ")[2] for text in warnings] == ["1, 1"]
    assert list(remove_duplicate_owners(obj)) == list(remove_duplicate_owners({"metadata": {}})) == []


def test_the_orphan_and_foreground_finalizers_exclude_each_other() -> None:
    assert problem_reasons({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}) == [
        ("metadata.finalizers", "FieldValueInvalid")
    ]


def test_a_uid_is_a_random_uuid() -> None:
    uids = [UUID(new_uid()) for _ in range(100)]
    assert len(set(uids)) == len(uids)
    assert all((each.version, each.variant) == (4, UUID(int=2 << 62).variant) for each in uids)
    assert all(str(UUID(text)) == text for text in (new_uid(), new_uid()))


@pytest.mark.parametrize("sent", [True, 1.0, 2, "1"])
def test_server_set_fields_keep_their_json_types(sent: Any) -> None:
    old: Object = {"metadata": {"name": "a", "resourceVersion": "5", "uid": "u", "generation": 1}}
    new: Object = {"metadata": {"name": "a", "uid": "u", "generation": sent}}
    preserve_server_fields(old, new)
    assert repr(new["metadata"]["generation"]) == "1"


def test_label_validation_is_the_same_on_repeated_values() -> None:
    for _ in range(3):
        assert not list(label_problems({"a": "b"}, "metadata.labels"))
        assert len(list(label_problems({"a": "-b"}, "metadata.labels"))) == 1
        assert len(list(label_problems({"a" * 64: "b"}, "metadata.labels"))) == 1
        assert len(list(label_problems({"a": "b" * 1_000}, "metadata.labels"))) == 1
