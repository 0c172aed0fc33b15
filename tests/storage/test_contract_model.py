"""Compares each store with a simple model, a list of all states, on random sequences of operations."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.storage.contract import (
    FIRST_REVISION,
    Compacted,
    Event,
    Key,
    Precondition,
    Record,
    RevisionConflict,
    Store,
    Write,
)
from tests.harness.properties import examples

KEYS: list[Key] = [("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("a\x00",), ("b", "\x00"), ()]


@dataclass
class Model:
    states: dict[int, dict[Key, Record]] = field(default_factory=lambda: {FIRST_REVISION: {}})
    events: list[Event] = field(default_factory=list)
    revision: int = FIRST_REVISION
    oldest: int = FIRST_REVISION

    def commit(self, changes: list[Write], checks: list[Precondition]) -> int | None:
        """Returns the new revision, or None for a conflict."""
        state = dict(self.states[self.revision])
        conditions: list[Write | Precondition] = [*changes, *checks]
        for condition in conditions:
            if condition.expected_revision != (state[condition.key].revision if condition.key in state else 0):
                return None
        self.revision += 1
        for change in changes:
            if change.value is None:
                del state[change.key]
            else:
                state[change.key] = Record(change.key, change.value, self.revision)
            self.events.append(Event(change.key, change.value, self.revision))
        self.states[self.revision] = state
        return self.revision

    def scan(self, prefix: Key, after: Key | None, at: int) -> list[Record]:
        state = self.states[at]
        found = [key for key in state if key[: len(prefix)] == prefix and (after is None or key > after)]
        return [state[key] for key in sorted(found)]


# A write: index of the key, value (None deletes it), and offset of the expected revision from the current one.
WRITE = st.tuples(
    st.integers(0, len(KEYS) - 1), st.none() | st.binary(max_size=3), st.sampled_from([0, 0, 0, 0, 0, 1, -1])
)
COMMIT = st.tuples(
    st.just("commit"),
    st.lists(WRITE, min_size=1, max_size=3, unique_by=lambda write: write[0]),
    st.lists(WRITE, max_size=1),
)
POSITION = st.floats(0, 1)
COMPACT = st.tuples(st.just("compact"), POSITION)
SCAN = st.tuples(
    st.just("scan"), st.sampled_from(KEYS), st.none() | st.sampled_from(KEYS), st.integers(0, 3), st.none() | POSITION
)
WATCH = st.tuples(st.just("watch"), st.sampled_from(KEYS), POSITION)
STEPS = st.lists(COMMIT | COMMIT | COMMIT | COMPACT | SCAN | WATCH, max_size=25)


def revision_at(model: Model, position: float) -> int:
    """Maps 0..1 to a revision from just before the first to the newest."""
    start = FIRST_REVISION - 1
    return start + round(position * (model.revision - start))


async def do_commit(store: Store, model: Model, writes: list, preconditions: list) -> None:
    def expected(number: int, offset: int) -> int:
        record = model.states[model.revision].get(KEYS[number])
        return max(0, (record.revision if record else 0) + offset)

    changes = [Write(KEYS[number], value, expected(number, offset)) for number, value, offset in writes]
    # Deleting a key that must not exist is an error of the caller, not a conflict.
    changes = [Write(c.key, b"x", 0) if c.value is None and not c.expected_revision else c for c in changes]
    named = {change.key for change in changes}
    checks = [
        Precondition(KEYS[number], expected(number, offset))
        for number, _, offset in preconditions
        if KEYS[number] not in named
    ]
    try:
        actual = await store.commit(changes, checks)
    except RevisionConflict:
        actual = None
    assert actual == model.commit(changes, checks)


async def do_compact(store: Store, model: Model, position: float) -> None:
    before = revision_at(model, position)
    await store.compact(before)
    model.oldest = max(model.oldest, before)


async def do_scan(
    store: Store, model: Model, prefix: Key, after: Key | None, limit: int, position: float | None
) -> None:
    at = None if position is None else revision_at(model, position)
    revision = model.revision if at is None else at
    try:
        page = await store.scan(prefix, after=after, limit=limit, at=at)
    except Compacted:
        assert revision < model.oldest
        return
    expected = model.scan(prefix, after, revision)
    assert revision >= model.oldest
    assert page.revision == revision
    assert list(page.records) == (expected[:limit] if limit else expected)
    assert page.has_more == (0 < limit < len(expected))


async def do_watch(store: Store, model: Model, prefix: Key, position: float) -> None:
    since = revision_at(model, position)
    expected = [e for e in model.events if e.revision > since and e.key[: len(prefix)] == prefix]
    events: list[Event] = []
    try:
        if since >= model.oldest and not expected:
            return
        async for batch in store.watch(prefix, since):
            events += batch
            if len(events) >= len(expected):
                break
    except Compacted:
        assert since < model.oldest
        return
    assert since >= model.oldest
    assert events == expected


OPERATIONS: dict[str, Callable[..., Awaitable[None]]] = {
    "commit": do_commit,
    "compact": do_compact,
    "scan": do_scan,
    "watch": do_watch,
}


async def run_steps(open_store_in: Callable[[Path], Awaitable[Store]], steps: list) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, model = await open_store_in(Path(folder)), Model()
        try:
            for name, *arguments in steps:
                await OPERATIONS[name](store, model, *arguments)
                assert (await store.revision(), await store.oldest()) == (model.revision, model.oldest)
            for key in KEYS:
                assert await store.read(key) == model.states[model.revision].get(key)
        finally:
            await store.close()


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_store_behaves_like_the_model(open_store_in: Callable[[Path], Awaitable[Store]], steps: list) -> None:
    asyncio.run(run_steps(open_store_in, steps))
