"""Finalizers of an object: added once, never to one that is going, and taken away alone."""

from typing import Any

from fairlead.core.objects import Object, add_finalizer, has_finalizer, remove_finalizer

OURS, THEIRS = "service.sh/ours", "example.com/theirs"


def held_by(*finalizers: str, **meta: Any) -> Object:
    return {"metadata": {"name": "x", "finalizers": list(finalizers), **meta}}


def test_a_finalizer_is_added_after_the_others_and_only_once() -> None:
    held = add_finalizer(held_by(THEIRS), OURS)
    assert held == held_by(THEIRS, OURS) and has_finalizer(held, OURS)
    assert add_finalizer(held, OURS) is held
    assert add_finalizer({"metadata": {"name": "x"}}, OURS) == held_by(OURS)


def test_an_object_that_is_being_deleted_takes_no_new_one() -> None:
    going = held_by(THEIRS, deletionTimestamp="2026-01-01T00:00:00Z")
    assert add_finalizer(going, OURS) is going


def test_a_finalizer_is_removed_and_the_others_stay() -> None:
    assert remove_finalizer(held_by(THEIRS, OURS), OURS) == held_by(THEIRS)
    other = held_by(THEIRS)
    assert remove_finalizer(other, OURS) is other
    assert not has_finalizer({"metadata": {"finalizers": None}}, OURS)


def test_the_object_itself_stays_as_it_was() -> None:
    before = held_by(THEIRS, OURS)
    remove_finalizer(before, OURS)
    add_finalizer(before, "service.sh/another")
    assert before == held_by(THEIRS, OURS)
