"""Histories that nobody has lived through: written by hand, or played by a store that exists in here only.

The tests of the judge take theirs from here. `chain` and `history` put a few lines together; `made_up` rolls dice for
hundreds, all of which a real store might have told.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.chaos.history import (
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


def op(
    verb: str, start: float, outcome: str = DONE, *, end: float | None = None, name: str = "x", **more: object
) -> Operation:
    """Of one object, within half a second."""
    return Operation(verb, name, start, start + 0.5 if end is None else end, outcome, **more)  # type: ignore[arg-type]


CREATED = op(CREATE, 1, value="a", revision=10)
UPDATED = op(UPDATE, 2, value="b", expected=10, revision=11)
REMOVED = op(DELETE, 3, expected=11)
EVENTS = (Seen(ADDED, "x", 10, "a"), Seen(MODIFIED, "x", 11, "b"), Seen(DELETED, "x", 12, "b"))
LIST = Listing(4, 4.5, 12, {})
GOOD = (CREATED, UPDATED, REMOVED)


def chain(seen: Sequence[Seen], since: int = 5) -> Chain:
    return Chain(since, list(seen))


def history(operations: Sequence[Operation], seen: Sequence[Seen] | None = None, *listings: Listing) -> History:
    return History(list(operations), list(listings), [] if seen is None else [chain(seen)])


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
