"""Tests of `fairlead.controllers.helm.slots`: limits for concurrent runs, and fairness between projects."""

from contextlib import ExitStack

import pytest

from fairlead.controllers.helm.slots import FORGET_SECONDS, MAX_CONCURRENT_RUNS, WAITING_FOR_HELM_SLOT, HelmSlots
from fairlead.controllers.instances.remote_errors import InstanceError
from tests.harness.clock import ManualClock

RETRY_SECONDS = 5.0


class Projects:
    """Projects that run charts, each until `end`."""

    def __init__(self, max_runs: int = MAX_CONCURRENT_RUNS) -> None:
        self.clock = ManualClock()
        self.slots = HelmSlots(self.clock, max_runs)
        self.runs: list[tuple[str, ExitStack]] = []

    def start(self, project: str) -> bool:
        """Whether the project gets a slot."""
        stack = ExitStack()
        try:
            stack.enter_context(self.slots.acquire(project))
        except InstanceError as error:
            assert error.reason == WAITING_FOR_HELM_SLOT
            return False
        self.runs.append((project, stack))
        return True

    def end(self, project: str) -> None:
        """Ends the oldest run of the project."""
        run = next(each for each in self.runs if each[0] == project)
        self.runs.remove(run)
        run[1].close()


def test_one_project_holds_at_most_half_of_the_slots() -> None:
    projects = Projects()
    assert [projects.start("greedy") for _ in range(3)] == [True, True, False]


def test_two_projects_leave_a_slot_for_a_third_one() -> None:
    projects = Projects()
    assert [projects.start(name) for name in ("a", "a", "b", "b", "a")] == [True, True, True, False, False]
    assert projects.start("c")
    assert not projects.start("d")


def test_all_slots_are_used_by_projects_with_one_chart_each() -> None:
    projects = Projects()
    assert [projects.start(name) for name in "abcde"] == [True] * MAX_CONCURRENT_RUNS + [False]


def test_a_free_slot_is_for_the_project_that_waits_longest() -> None:
    projects = Projects()
    assert [projects.start(name) for name in "abcd"] == [True] * 4
    assert not projects.start("first")
    projects.clock.tick(1)
    assert not projects.start("second")
    projects.end("a")
    projects.clock.tick(1)
    assert not projects.start("late") and not projects.start("second") and not projects.start("a")
    assert projects.start("first")
    projects.end("b")
    assert not projects.start("late")
    assert projects.start("second")


def test_a_project_with_many_charts_waits_behind_one_without_a_slot() -> None:
    projects = Projects()
    assert [projects.start(name) for name in "aabc"] == [True] * 4
    for _ in range(10):
        projects.clock.tick(RETRY_SECONDS)
        assert not projects.start("a") and not projects.start("b")
    assert not projects.start("new")
    projects.end("a")
    assert not projects.start("a") and not projects.start("b")
    assert projects.start("new")


def test_a_project_that_no_longer_asks_is_not_waited_for() -> None:
    projects = Projects(max_runs=2)
    assert [projects.start(name) for name in ("a", "b", "gone")] == [True, True, False]
    projects.end("a")
    projects.clock.tick(1)
    assert not projects.start("c")
    projects.clock.tick(FORGET_SECONDS)
    assert projects.start("c")


def test_a_slot_is_released_after_a_failure() -> None:
    slots = HelmSlots(ManualClock(), max_runs=1)
    with pytest.raises(ZeroDivisionError), slots.acquire("p"):
        raise ZeroDivisionError
    with slots.acquire("p"):
        pass


def test_waiters_are_woken_in_turn_when_a_slot_becomes_free() -> None:
    woken: list[str] = []
    slots = HelmSlots(ManualClock(), 2, on_free=lambda key: woken.append(key[3]))
    with slots.acquire("a"), ExitStack() as other:
        other.enter_context(slots.acquire("b"))
        for project, name in (("a", "third"), ("c", "first"), ("c", "second")):
            with pytest.raises(InstanceError, match="limit"), slots.acquire(project, ("", "", project, name)):
                raise AssertionError
        assert woken == []
        other.close()
        assert woken == ["first"]
    assert woken == ["first", "third", "second"]  # the project of the third holds no slot any more, and waits longer
