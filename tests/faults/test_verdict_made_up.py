"""The judge against a store that is made up: whatever it really did is accepted, and one lie about it is not."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from tests.faults.history import (
    ADDED,
    BOOKMARK,
    CREATE,
    DELETE,
    DELETED,
    DONE,
    GET,
    MISSING,
    MODIFIED,
    NEVER,
    REFUSED,
    UNKNOWN,
    UPDATE,
    Chain,
    History,
    Listing,
    Operation,
    Seen,
    State,
)
from tests.faults.verdict import judge

NAMES = ("x", "y", "z")
STEPS = 300


@dataclass
class MadeUp:
    """Takes operations one after the other, each at a moment between its beginning and its end."""

    dice: random.Random
    unanswered: tuple[str, ...] = (CREATE, UPDATE, DELETE)
    revision: int = 100
    objects: dict[str, State] = field(default_factory=dict)
    history: History = field(default_factory=History)
    whole: Chain = field(default_factory=lambda: Chain(100))

    def step(self, moment: float) -> None:
        start, end = moment - self.dice.random() * 3, moment + self.dice.random() * 3
        if self.dice.random() < 0.05:
            self.history.listings.append(Listing(start, end, self.revision, dict(self.objects)))
            return
        if self.dice.random() < 0.05:
            self.whole.seen.append(Seen(BOOKMARK, "", self.revision))
        name, verb = self.dice.choice(NAMES), self.dice.choice((CREATE, UPDATE, UPDATE, DELETE, GET))
        made = self._do(Operation(verb, name, start, end, DONE, f"v{moment}"))
        if made.verb in self.unanswered and self.dice.random() < 0.1:
            made = replace(made, outcome=UNKNOWN, end=NEVER, revision=0)
        self.history.operations.append(made)

    def _do(self, asked: Operation) -> Operation:
        now = self.objects.get(asked.name)
        if asked.verb == CREATE:
            return replace(asked, outcome=REFUSED) if now else self._write(asked, ADDED)
        if asked.verb == GET:
            return replace(asked, value=now.value, revision=now.revision) if now else replace(asked, outcome=MISSING)
        # Now and then somebody goes by what is not true any more.
        expected = now.revision if now and self.dice.random() < 0.8 else 99
        asked = replace(asked, expected=expected)
        if now is None:
            return replace(asked, outcome=MISSING)
        if now.revision != expected:
            return replace(asked, outcome=REFUSED)
        return self._write(asked, MODIFIED) if asked.verb == UPDATE else self._remove(asked, now)

    def _write(self, asked: Operation, how: str) -> Operation:
        self.revision += self.dice.choice((1, 1, 3))
        self.objects[asked.name] = State(self.revision, asked.value)
        self.whole.seen.append(Seen(how, asked.name, self.revision, asked.value))
        return replace(asked, revision=self.revision)

    def _remove(self, asked: Operation, now: State) -> Operation:
        self.revision += 1
        del self.objects[asked.name]
        self.whole.seen.append(Seen(DELETED, asked.name, self.revision, now.value))
        return asked


def made_up(seed: int, *, watched: bool = True) -> History:
    # Where nobody watches, nobody could base anything on a version that was not acknowledged.
    store = MadeUp(random.Random(seed), (CREATE, UPDATE, DELETE) if watched else (DELETE,))
    for number in range(STEPS):
        store.step(float(number))
    store.history.listings.append(Listing(STEPS + 9, STEPS + 10, store.revision, dict(store.objects)))
    if watched:
        middle = len(store.whole.seen) // 2
        store.whole.seen.append(Seen(BOOKMARK, "", store.revision))
        later = Chain(store.whole.seen[middle].revision, store.whole.seen[middle + 1 :])
        store.history.chains += [store.whole, later]
    return store.history


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
