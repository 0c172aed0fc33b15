"""The judge itself: good histories pass, and each sort of bad one is caught under the right name."""

import pytest

from tests.chaos.checker import judge
from tests.chaos.history import (
    ADDED,
    BOOKMARK,
    CREATE,
    DELETE,
    GET,
    MISSING,
    MODIFIED,
    NEVER,
    REFUSED,
    UNKNOWN,
    UPDATE,
    History,
    Listing,
    Seen,
    State,
)
from tests.chaos.synthetic import CREATED, EVENTS, GOOD, LIST, REMOVED, UPDATED, chain, history, op


def broken(given: History) -> set[str]:
    return {violation.rule for violation in judge(given)}


@pytest.mark.parametrize(
    "given",
    [
        history(GOOD, EVENTS, LIST),
        history(GOOD, None, LIST),
        history(GOOD, [*EVENTS[:2], Seen(BOOKMARK, "", 11), EVENTS[2], Seen(BOOKMARK, "", 13)]),
        history([CREATED, op(UPDATE, 2, UNKNOWN, end=NEVER, value="b", expected=10), REMOVED], EVENTS),
        history([CREATED, op(UPDATE, 2, UNKNOWN, end=NEVER, value="z", expected=10)], EVENTS[:1]),
        history([CREATED, UPDATED, op(UPDATE, 2, REFUSED, value="z", expected=10)], EVENTS[:2]),
        history([CREATED, op(GET, 1, MISSING), op(GET, 1, value="a", revision=10)], EVENTS[:1]),
        history([CREATED, UPDATED, op(DELETE, 3, UNKNOWN, end=NEVER, expected=11), op(GET, 4, MISSING)], None, LIST),
        history([CREATED, op(CREATE, 1.2, REFUSED, value="z"), op(UPDATE, 0, MISSING, value="y", expected=3)]),
        history([op(CREATE, 1, value="a", revision=10), REMOVED, UPDATED, op(CREATE, 4, value="c", revision=20)]),
    ],
    ids=[
        "everything was watched",
        "a deletion that nobody watched",
        "bookmarks behind what was told",
        "a write without an answer that was done",
        "a write without an answer that was not",
        "the loser of a race was refused",
        "reads during a write see either",
        "a deletion without an answer or a watcher",
        "refusals for a reason",
        "made again",
    ],
)
def test_a_good_history_passes(given: History) -> None:
    assert judge(given) == []


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (history([CREATED, op(GET, 2, MISSING)]), "linearizable"),
        (history([CREATED, UPDATED, op(GET, 3, value="a", revision=10)]), "linearizable"),
        (history([CREATED, op(GET, 0, value="a", revision=10)]), "linearizable"),
        (history([CREATED, UPDATED, op(GET, 2, value="b", revision=11, end=2.1), op(GET, 2.2, value="a", revision=10)]),
         "linearizable"),
        (history([*GOOD, op(GET, 4, value="b", revision=11)], None), "linearizable"),
        (history([CREATED, UPDATED, op(UPDATE, 1.6, REFUSED, end=1.8, value="z", expected=10)], EVENTS[:2]),
         "linearizable"),
        (history([CREATED, op(UPDATE, 2, REFUSED, value="z", expected=10)], EVENTS[:1]), "linearizable"),
        (history([CREATED, op(CREATE, 0, REFUSED, value="z")]), "linearizable"),
        (history([CREATED, UPDATED], None, Listing(4, 5, 11, {"x": State(10, "a")})), "linearizable"),
        (history([CREATED, UPDATED, op(UPDATE, 2, value="c", expected=10, revision=12)]), "one winner"),
        (history([CREATED, UPDATED, op(DELETE, 2, expected=10)]), "one winner"),
        (history([CREATED, UPDATED, op(UPDATE, 2, value="c", expected=10, revision=12)]), "no acknowledged write lost"),
        (history([CREATED, op(CREATE, 2, value="b", revision=11)]), "no acknowledged write lost"),
        (history([CREATED, UPDATED, op(UPDATE, 2, UNKNOWN, end=NEVER, value="c", expected=10)],
                 [*EVENTS[:2], Seen(MODIFIED, "x", 12, "c")]), "no acknowledged write lost"),
        (history([*GOOD, op(DELETE, 4, expected=99)], EVENTS), "no acknowledged write lost"),
        (history([CREATED, op(UPDATE, 2, REFUSED, value="b", expected=10)], EVENTS[:2]), "no write from nowhere"),
        (history([CREATED], EVENTS[:2]), "no write from nowhere"),
        (history([CREATED, UPDATED], EVENTS), "no write from nowhere"),
        (history([CREATED, op(GET, 2, value="b", revision=10)]), "one story"),
        (history([CREATED, UPDATED], [*EVENTS[:2], Seen(MODIFIED, "x", 12, "b")]), "one story"),
        (history([CREATED, op(UPDATE, 2, value="b", expected=10, revision=9)]), "revisions rise"),
        (history([CREATED], None, Listing(4, 5, 9, {})), "revisions rise"),
        (history([op(CREATE, 9, value="a", revision=10)], None, Listing(4, 5, 10, {})), "revisions rise"),
    ],
    ids=[
        "an acknowledged object is missing",
        "a read is stale",
        "a read sees what was not written yet",
        "two reads go back in time",
        "a deleted object is back",
        "a refusal for what had not happened yet",
        "a refusal without a reason",
        "a refusal for an object that did not exist yet",
        "a list is stale",
        "two updates won",
        "an update and a deletion won",
        "an update was overwritten unseen",
        "made while it was there",
        "a late write went over an acknowledged one",
        "a deletion of something else",
        "a refused write was made",
        "a write of nobody",
        "a deletion of nobody",
        "two values at one revision",
        "one write made twice",
        "revisions went back",
        "a list went back",
        "a revision was given twice",
    ],
)  # fmt: skip
def test_a_bad_history_is_caught(given: History, rule: str) -> None:
    assert rule in broken(given)


@pytest.mark.parametrize(
    ("seen", "since"),
    [
        ((EVENTS[0], EVENTS[2]), 5),
        ((EVENTS[1], EVENTS[0], EVENTS[2]), 5),
        ((EVENTS[0], EVENTS[1], EVENTS[1], EVENTS[2]), 5),
        (EVENTS, 10),
        ((EVENTS[0], Seen(BOOKMARK, "", 11), EVENTS[1], EVENTS[2]), 5),
        ((EVENTS[0], Seen(BOOKMARK, "", 12)), 5),
        ((*EVENTS[:2], Seen(BOOKMARK, "", 10), EVENTS[2]), 5),
        ((EVENTS[0], Seen(ADDED, "x", 11, "b"), EVENTS[2]), 5),
        ((*EVENTS[:2], Seen(BOOKMARK, "", 12)), 5),
    ],
    ids=[
        "a gap",
        "out of order",
        "twice",
        "from before where it was resumed",
        "a bookmark ahead of its event",
        "a bookmark ahead of events that never came",
        "a bookmark that goes back",
        "a change told as new",
        "a deletion left out",
    ],
)
def test_a_bad_watch_is_caught(seen: tuple[Seen, ...], since: int) -> None:
    given = history(GOOD, EVENTS, LIST)
    given.chains.append(chain(seen, since))
    assert broken(given) >= {"watches"}


def test_a_deletion_that_every_watch_left_out_is_caught() -> None:
    given = history(GOOD, [*EVENTS[:2], Seen(BOOKMARK, "", 12)], LIST)
    assert broken(given) == {"watches"}


def test_a_list_that_mixes_two_moments_is_caught() -> None:
    other = op(CREATE, 1.6, end=1.8, name="y", value="q", revision=11)
    updated = op(UPDATE, 2, value="b", expected=10, revision=12)
    mixed = Listing(1.9, 3, 11, {"x": State(12, "b"), "y": State(11, "q")})
    assert broken(history([CREATED, other, updated], None, mixed)) == {"lists are snapshots"}
