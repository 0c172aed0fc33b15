"""registry/codec.py: encodes objects for the store, decodes them, and inserts resourceVersion into response bodies."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.objects import Object
from fairlead.kinds import KINDS
from fairlead.registry.codec import (
    decode,
    encode,
    entry_builder,
    replace_resource_version,
    response_body,
    with_resource_version,
)
from fairlead.registry.kind import Catalog
from fairlead.registry.selectors import SelectorFieldReader
from fairlead.storage.contract import Record
from tests.harness.registry import GADGET

KEY = ("management.service.sh", "gadgets", "", "a")
BY_NAME = {kind.name: kind for kind in (*KINDS, GADGET) if kind.conversion is None}
build_entry = entry_builder(Catalog((*KINDS, GADGET)))


def build_gadget(**fields: Any) -> Object:
    return {
        "spec": {"x": 1},
        "kind": "Gadget",
        "metadata": {"name": "a", "uid": "1"},
        "apiVersion": "management.service.sh/v1",
        **fields,
    }


def test_the_stored_value_starts_with_type_and_metadata_and_has_no_resource_version() -> None:
    value = encode(build_gadget(metadata={"name": "a", "resourceVersion": "7", "uid": "1"}))
    assert value.startswith(b'{"apiVersion":"management.service.sh/v1","kind":"Gadget","metadata":{')
    assert orjson.loads(value) == build_gadget()


def test_encoding_does_not_modify_the_object() -> None:
    obj = build_gadget(metadata={"name": "a", "resourceVersion": "7"})
    encode(obj)
    assert obj["metadata"] == {"name": "a", "resourceVersion": "7"}


STRINGS = st.text(alphabet='ab"\\{}:, metadata', max_size=30)
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-9, 9), STRINGS, st.just('"metadata":{'), st.just('"resourceVersion":"7"')
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(STRINGS, inner, max_size=3)),
    max_leaves=10,
)


@given(JSON, st.dictionaries(STRINGS, STRINGS, max_size=3), st.integers(1, 2**63 - 1))
def test_the_resource_version_is_inserted_into_metadata_for_any_content(
    spec: Any, annotations: dict[str, str], revision: int
) -> None:
    obj = build_gadget(spec=spec, metadata={"name": "a", "annotations": annotations})
    served = orjson.loads(with_resource_version(encode(obj), revision))
    assert served["metadata"].pop("resourceVersion") == str(revision)
    assert served == obj


@given(JSON, st.integers(1, 10**12))
def test_replacing_the_resource_version_changes_nothing_else(spec: Any, revision: int) -> None:
    obj = build_gadget(spec=spec, metadata={"name": "a", "annotations": {"n": '"resourceVersion":"7"'}})
    entry = build_entry(Record(KEY, encode(obj), 7))
    deleted = orjson.loads(replace_resource_version(entry, revision))
    assert deleted["metadata"].pop("resourceVersion") == str(revision)
    assert deleted == obj


def test_an_entry_has_the_response_body_and_the_labels_and_fields_for_selectors() -> None:
    obj = build_gadget(
        spec={"color": "red"}, status={"phase": "Ready"}, metadata={"name": "a", "uid": "1", "labels": {"x": "y"}}
    )
    entry = build_entry(Record(KEY, encode(obj), 7))
    assert entry.labels == {"x": "y"}
    assert entry.fields == {"metadata.name": "a", "spec.color": "red", "status.phase": "Ready"}
    assert entry.revision == 7
    assert decode(entry)["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"name": "a"}},
        {"metadata": {"name": "a"}, "spec": {"labels": {"x": "y"}}},
        {"metadata": {"name": "a", "labels": None}, "spec": {"metadata": {"labels": {"x": "y"}}}},
        {"metadata": {"name": "a", "annotations": {"labels": '"labels":{"x":"y"}'}}, "spec": {"labels": [1]}},
    ],
)
def test_only_metadata_labels_are_read_as_labels(fields: Object) -> None:
    assert build_entry(Record(KEY, encode(build_gadget(**fields)), 7)).labels == {}


def test_each_decode_returns_an_independent_object() -> None:
    entry = build_entry(Record(KEY, encode(build_gadget()), 7))
    decode(entry)["spec"]["x"] = 2
    assert decode(entry)["spec"]["x"] == 1


def test_an_entry_can_be_built_for_a_resource_that_is_not_served() -> None:
    entry = build_entry(Record(("other.io", "things", "", "a"), encode(build_gadget()), 7))
    assert entry.fields == {"metadata.name": "a"}


def test_selector_fields_are_compared_as_strings() -> None:
    cluster = BY_NAME["Cluster"]
    for value, text in ((True, "true"), (False, "false"), (None, "")):
        obj = {"spec": {"networkPeer": value}}
        assert SelectorFieldReader(cluster).read(orjson.dumps(obj))[1]["spec.networkPeer"] == text
    assert SelectorFieldReader(cluster).read(b'{"spec":5}')[1]["spec.networkPeer"] == ""


def test_namespaced_objects_can_be_selected_by_their_namespace() -> None:
    entry = build_entry(Record(("", "configmaps", "demo", "c"), b'{"metadata":{}}', 7))
    assert entry.fields == {"metadata.name": "c", "metadata.namespace": "demo"}


def test_a_kind_can_compute_its_own_selector_fields() -> None:
    event = BY_NAME["Event"]
    _, fields = SelectorFieldReader(event).read(b'{"reportingComponent":"runner","involvedObject":{}}')
    assert fields["source"] == "runner"


def test_sensitive_fields_of_server_owned_objects_are_removed_from_responses() -> None:
    kind = replace(
        GADGET,
        sensitive=("spec.password", "spec.token"),
        write_only=("spec.password",),
        is_server_owned=lambda obj: "service.sh/owned" in obj["metadata"].get("labels", {}),
    )
    user_owned = build_gadget(spec={"token": "canary"})
    server_owned = build_gadget(spec={"token": "canary"}, metadata={"name": "a", "labels": {"service.sh/owned": "yes"}})
    assert b"canary" in response_body(kind, orjson.dumps(user_owned))
    assert b"canary" not in response_body(kind, orjson.dumps(server_owned))
