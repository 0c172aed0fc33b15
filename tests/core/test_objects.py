"""Tests of finalizers in `core/objects.py`."""

from typing import Any

from fairlead.core.objects import Object, add_finalizer, has_finalizer, remove_finalizer

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


def test_the_original_object_is_unchanged() -> None:
    before = build_object(THEIRS, OURS)
    remove_finalizer(before, OURS)
    add_finalizer(before, "service.sh/another")
    assert before == build_object(THEIRS, OURS)
