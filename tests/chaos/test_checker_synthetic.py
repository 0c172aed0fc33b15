"""Tests of `checker.py` with generated histories: they pass, and a single falsification is detected."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.checker import find_violations
from tests.chaos.history import BOOKMARK, History
from tests.chaos.synthetic import generate_history


def remove_event(history: History, random_source: random.Random) -> None:
    """Removes an event of one watch that another watch has, too."""
    lines = history.chains[1].lines
    lines.remove(random_source.choice([each for each in lines if each.type != BOOKMARK]))


def repeat_event(history: History, random_source: random.Random) -> None:
    lines = history.chains[0].lines
    number = random_source.choice([number for number, each in enumerate(lines) if each.type != BOOKMARK])
    lines.insert(number + 1, lines[number])


def swap_events(history: History, random_source: random.Random) -> None:
    lines = history.chains[0].lines
    indexes = [number for number in range(len(lines) - 1) if lines[number].revision != lines[number + 1].revision]
    number = random_source.choice(indexes)
    lines[number], lines[number + 1] = lines[number + 1], lines[number]


def lose_write(history: History, random_source: random.Random) -> None:
    """Removes the last write of an existing object, as if it had only been acknowledged."""
    name, state = random_source.choice(list(history.listings[-1].items.items()))
    items = {key: value for key, value in history.listings[-1].items.items() if key != name}
    history.listings[-1] = replace(history.listings[-1], items=items)
    for chain in history.chains:
        chain.lines = [each for each in chain.lines if (each.name, each.revision) != (name, state.revision)]


def return_old_list(history: History, random_source: random.Random) -> None:
    """Replaces the last list with an old one."""
    old = history.listings[0]
    history.listings[-1] = replace(history.listings[-1], revision=old.revision, items=old.items)


FALSIFICATIONS = (remove_event, repeat_event, swap_events, lose_write, return_old_list)


@pytest.mark.parametrize("seed", range(20))
def test_a_generated_history_passes(seed: int) -> None:
    assert find_violations(generate_history(seed)) == []
    assert find_violations(generate_history(seed, is_watched=False)) == []


@pytest.mark.parametrize("falsify", FALSIFICATIONS)
def test_a_single_falsification_is_detected(falsify: Callable[[History, random.Random], None]) -> None:
    for seed in range(20):
        history = generate_history(seed)
        if falsify is lose_write and not history.listings[-1].items:
            continue
        falsify(history, random.Random(seed))
        assert find_violations(history), seed
