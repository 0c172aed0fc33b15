"""Objects in the store and as they are served: the same, but for the version that is put in between."""

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
finish = entry_builder(Catalog((*KINDS, GADGET)))


def gadget(**fields: Any) -> Object:
    return {
        "spec": {"x": 1},
        "kind": "Gadget",
        "metadata": {"name": "a", "uid": "1"},
        "apiVersion": "management.service.sh/v1",
        **fields,
    }


def test_what_is_stored_begins_with_types_and_metadata_and_has_no_version() -> None:
    value = encode(gadget(metadata={"name": "a", "resourceVersion": "7", "uid": "1"}))
    assert value.startswith(b'{"apiVersion":"management.service.sh/v1","kind":"Gadget","metadata":{')
    assert orjson.loads(value) == gadget()


def test_encoding_leaves_the_object_alone() -> None:
    obj = gadget(metadata={"name": "a", "resourceVersion": "7"})
    encode(obj)
    assert obj["metadata"] == {"name": "a", "resourceVersion": "7"}


TEXTS = st.text(alphabet='ab"\\{}:, metadata', max_size=30)
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-9, 9), TEXTS, st.just('"metadata":{'), st.just('"resourceVersion":"7"')
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=10,
)


@given(JSON, st.dictionaries(TEXTS, TEXTS, max_size=3), st.integers(1, 2**63 - 1))
def test_whatever_an_object_holds_its_version_ends_up_in_its_metadata(
    spec: Any, annotations: dict[str, str], revision: int
) -> None:
    obj = gadget(spec=spec, metadata={"name": "a", "annotations": annotations})
    served = orjson.loads(with_resource_version(encode(obj), revision))
    assert served["metadata"].pop("resourceVersion") == str(revision)
    assert served == obj


@given(JSON, st.integers(1, 10**12))
def test_the_end_of_an_object_changes_its_version_and_nothing_else(spec: Any, revision: int) -> None:
    obj = gadget(spec=spec, metadata={"name": "a", "annotations": {"n": '"resourceVersion":"7"'}})
    entry = finish(Record(KEY, encode(obj), 7))
    last = orjson.loads(replace_resource_version(entry, revision))
    assert last["metadata"].pop("resourceVersion") == str(revision)
    assert last == obj


def test_an_entry_is_the_finished_object_with_what_selectors_look_at() -> None:
    obj = gadget(
        spec={"color": "red"}, status={"phase": "Ready"}, metadata={"name": "a", "uid": "1", "labels": {"x": "y"}}
    )
    entry = finish(Record(KEY, encode(obj), 7))
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
def test_only_the_labels_in_its_metadata_are_an_objects_labels(fields: Object) -> None:
    assert finish(Record(KEY, encode(gadget(**fields)), 7)).labels == {}


def test_decoding_gives_everybody_an_object_of_their_own() -> None:
    entry = finish(Record(KEY, encode(gadget()), 7))
    decode(entry)["spec"]["x"] = 2
    assert decode(entry)["spec"]["x"] == 1


def test_a_record_of_a_kind_that_is_not_served_can_still_be_followed() -> None:
    entry = finish(Record(("other.io", "things", "", "a"), encode(gadget()), 7))
    assert entry.fields == {"metadata.name": "a"}


def test_fields_are_compared_as_texts() -> None:
    cluster = BY_NAME["Cluster"]
    for value, text in ((True, "true"), (False, "false"), (None, "")):
        obj = {"spec": {"networkPeer": value}}
        assert SelectorFieldReader(cluster).read(orjson.dumps(obj))[1]["spec.networkPeer"] == text
    assert SelectorFieldReader(cluster).read(b'{"spec":5}')[1]["spec.networkPeer"] == ""


def test_namespaced_objects_can_be_selected_by_their_namespace() -> None:
    entry = finish(Record(("", "configmaps", "demo", "c"), b'{"metadata":{}}', 7))
    assert entry.fields == {"metadata.name": "c", "metadata.namespace": "demo"}


def test_a_kind_may_say_itself_what_its_fields_are() -> None:
    event = BY_NAME["Event"]
    _, fields = SelectorFieldReader(event).read(b'{"reportingComponent":"runner","involvedObject":{}}')
    assert fields["source"] == "runner"


def test_what_the_server_owns_is_left_out_also_of_a_kind_with_write_only_fields() -> None:
    kind = replace(
        GADGET,
        sensitive=("spec.password", "spec.token"),
        write_only=("spec.password",),
        is_server_owned=lambda obj: "service.sh/owned" in obj["metadata"].get("labels", {}),
    )
    mine = gadget(spec={"token": "canary"})
    owned = gadget(spec={"token": "canary"}, metadata={"name": "a", "labels": {"service.sh/owned": "yes"}})
    assert b"canary" in response_body(kind, orjson.dumps(mine))
    assert b"canary" not in response_body(kind, orjson.dumps(owned))
