"""Tests of finalizers, labels and annotations in `core/objects.py`."""

from typing import Any

import orjson
import pytest

from fairlead.core.objects import (
    Object,
    add_finalizer,
    annotations_of,
    copy_json,
    deep_copy,
    has_finalizer,
    labels_of,
    remove_finalizer,
)

OURS, THEIRS = "service.sh/ours", "example.com/theirs"


def build_object(*finalizers: str, **meta: Any) -> Object:
    return {"metadata": {"name": "x", "finalizers": list(finalizers), **meta}}


def test_a_finalizer_is_added_after_the_others_and_only_once() -> None:
    held = add_finalizer(build_object(THEIRS), OURS)
    assert held == build_object(THEIRS, OURS) and has_finalizer(held, OURS)
    assert add_finalizer(held, OURS) is held
    assert add_finalizer({"metadata": {"name": "x"}}, OURS) == build_object(OURS)


def test_an_object_that_is_being_deleted_gets_no_new_finalizer() -> None:
    going = build_object(THEIRS, deletionTimestamp="2026-01-01T00:00:00Z")
    assert add_finalizer(going, OURS) is going


def test_a_finalizer_is_removed_and_the_others_stay() -> None:
    assert remove_finalizer(build_object(THEIRS, OURS), OURS) == build_object(THEIRS)
    other = build_object(THEIRS)
    assert remove_finalizer(other, OURS) is other
    assert not has_finalizer({"metadata": {"finalizers": None}}, OURS)


@pytest.mark.parametrize("without", [None, {}, {"metadata": {}}, {"metadata": {"labels": None, "annotations": []}}])
def test_an_object_may_have_no_labels_and_annotations(without: Any) -> None:
    assert labels_of(without) == {}
    assert annotations_of(without) == {}


def test_labels_and_annotations_are_those_of_the_metadata() -> None:
    obj = build_object(labels={"a": "1"}, annotations={"b": "2"})
    assert labels_of(obj) == {"a": "1"}
    assert annotations_of(obj) == {"b": "2"}


def test_the_original_object_is_unchanged() -> None:
    before = build_object(THEIRS, OURS)
    remove_finalizer(before, OURS)
    add_finalizer(before, "service.sh/another")
    assert before == build_object(THEIRS, OURS)


@pytest.mark.parametrize("count", [1, 20_000])
def test_a_copy_shares_nothing_with_the_object(count: int) -> None:
    obj: Object = {"a": [{"b": [number], "c": {}, "d": None} for number in range(count)], "e": [[True, 1.5, "x"]]}
    copy = deep_copy(obj)
    assert copy == obj and list(copy) == list(obj)
    obj["a"][-1]["b"].append(0)
    obj["a"][-1]["c"]["new"] = obj["e"][0].pop()
    assert copy["a"][-1] == {"b": [count - 1], "c": {}, "d": None} and copy["e"] == [[True, 1.5, "x"]]
    assert copy_json(obj["a"]) == obj["a"]


def test_a_large_copy_is_not_made_by_a_single_call_of_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold the interpreter until it has created all values."""
    obj: Object = {"a": {f"k{number}": [] for number in range(20_000)}}
    monkeypatch.setattr(orjson, "loads", lambda text: pytest.fail("the parser was called"))
    assert deep_copy(obj) == obj
