"""The judge against a store that is made up: whatever it really did is accepted, and one lie about it is not."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.checker import judge
from tests.chaos.history import BOOKMARK, History
from tests.chaos.synthetic import made_up


def forget_event(history: History, dice: random.Random) -> None:
    """Of one watch, from among those that another one has heard, too."""
    seen = history.chains[1].seen
    seen.remove(dice.choice([each for each in seen if each.type != BOOKMARK]))


def repeat_event(history: History, dice: random.Random) -> None:
    seen = history.chains[0].seen
    number = dice.choice([number for number, each in enumerate(seen) if each.type != BOOKMARK])
    seen.insert(number + 1, seen[number])


def swap_events(history: History, dice: random.Random) -> None:
    seen = history.chains[0].seen
    places = [number for number in range(len(seen) - 1) if seen[number].revision != seen[number + 1].revision]
    number = dice.choice(places)
    seen[number], seen[number + 1] = seen[number + 1], seen[number]


def lose_write(history: History, dice: random.Random) -> None:
    """As if the last one of an object that is still there had been acknowledged only."""
    name, state = dice.choice(list(history.listings[-1].items.items()))
    items = {key: value for key, value in history.listings[-1].items.items() if key != name}
    history.listings[-1] = replace(history.listings[-1], items=items)
    for chain in history.chains:
        chain.seen = [each for each in chain.seen if (each.name, each.revision) != (name, state.revision)]


def go_back(history: History, dice: random.Random) -> None:
    """A list from long ago."""
    old = history.listings[0]
    history.listings[-1] = replace(history.listings[-1], revision=old.revision, items=old.items)


LIES = (forget_event, repeat_event, swap_events, lose_write, go_back)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_store_really_did_is_accepted(seed: int) -> None:
    assert judge(made_up(seed)) == []
    assert judge(made_up(seed, watched=False)) == []


@pytest.mark.parametrize("lie", LIES)
def test_one_lie_is_found_out(lie: Callable[[History, random.Random], None]) -> None:
    for seed in range(20):
        history = made_up(seed)
        if lie is lose_write and not history.listings[-1].items:
            continue
        lie(history, random.Random(seed))
        assert judge(history), seed
