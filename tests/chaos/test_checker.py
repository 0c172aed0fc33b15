"""Tests of `checker.py`: consistent histories pass, and each kind of violation is found under the right rule."""

import pytest

from tests.chaos.checker import find_violations
from tests.chaos.history import (
    ADDED,
    BOOKMARK,
    CREATE,
    DELETE,
    GET,
    MISSING,
    MODIFIED,
    NEVER,
    REJECTED,
    UNKNOWN,
    UPDATE,
    History,
    Listing,
    State,
    WatchLine,
)
from tests.chaos.synthetic import (
    CREATED,
    EVENTS,
    LIST,
    REMOVED,
    UPDATED,
    VALID_OPERATIONS,
    build_chain,
    build_history,
    op,
)


def find_broken_rules(recorded: History) -> set[str]:
    return {violation.rule for violation in find_violations(recorded)}


@pytest.mark.parametrize(
    "recorded",
    [
        build_history(VALID_OPERATIONS, EVENTS, LIST),
        build_history(VALID_OPERATIONS, None, LIST),
        build_history(
            VALID_OPERATIONS, [*EVENTS[:2], WatchLine(BOOKMARK, "", 11), EVENTS[2], WatchLine(BOOKMARK, "", 13)]
        ),
        build_history([CREATED, op(UPDATE, 2, UNKNOWN, end=NEVER, value="b", expected=10), REMOVED], EVENTS),
        build_history([CREATED, op(UPDATE, 2, UNKNOWN, end=NEVER, value="z", expected=10)], EVENTS[:1]),
        build_history([CREATED, UPDATED, op(UPDATE, 2, REJECTED, value="z", expected=10)], EVENTS[:2]),
        build_history([CREATED, op(GET, 1, MISSING), op(GET, 1, value="a", revision=10)], EVENTS[:1]),
        build_history(
            [
                CREATED,
                UPDATED,
                op(DELETE, 3, UNKNOWN, end=NEVER, expected=11),
                op(GET, 4, MISSING),
            ],
            None,
            LIST,
        ),
        build_history(
            [
                CREATED,
                op(CREATE, 1.2, REJECTED, value="z"),
                op(UPDATE, 0, MISSING, value="y", expected=3),
            ]
        ),
        build_history(
            [
                op(CREATE, 1, value="a", revision=10),
                REMOVED,
                UPDATED,
                op(CREATE, 4, value="c", revision=20),
            ]
        ),
        build_history([op(CREATE, 1, UNKNOWN, end=NEVER, value="a"), op(GET, 2, MISSING)], None, LIST),
    ],
    ids=[
        "everything was watched",
        "a deletion without a watch",
        "bookmarks after their events",
        "an unacknowledged write that was applied",
        "an unacknowledged write that was not applied",
        "the loser of a race was rejected",
        "reads during a write see either",
        "an unacknowledged deletion without a watch",
        "rejections for a reason",
        "created again",
        "an object that was never seen",
    ],
)
def test_a_consistent_history_passes(recorded: History) -> None:
    assert find_violations(recorded) == []


@pytest.mark.parametrize(
    ("recorded", "rule"),
    [
        (build_history([CREATED, op(GET, 2, MISSING)]), "linearizable"),
        (build_history([CREATED, UPDATED, op(GET, 3, value="a", revision=10)]), "linearizable"),
        (build_history([CREATED, op(GET, 0, value="a", revision=10)]), "linearizable"),
        (build_history([CREATED, UPDATED, op(GET, 2, value="b", revision=11, end=2.1),
                        op(GET, 2.2, value="a", revision=10)]),
         "linearizable"),
        (build_history([*VALID_OPERATIONS, op(GET, 4, value="b", revision=11)], None), "linearizable"),
        (build_history([CREATED, UPDATED, op(UPDATE, 1.6, REJECTED, end=1.8, value="z", expected=10)], EVENTS[:2]),
         "linearizable"),
        (build_history([CREATED, op(UPDATE, 2, REJECTED, value="z", expected=10)], EVENTS[:1]), "linearizable"),
        (build_history([CREATED, op(CREATE, 0, REJECTED, value="z")]), "linearizable"),
        (build_history([CREATED, UPDATED], None, Listing(4, 5, 11, {"x": State(10, "a")})), "linearizable"),
        (build_history([CREATED, UPDATED, op(UPDATE, 2, value="c", expected=10, revision=12)]), "one winner"),
        (build_history([CREATED, UPDATED, op(DELETE, 2, expected=10)]), "one winner"),
        (build_history([CREATED, UPDATED, op(UPDATE, 2, value="c", expected=10, revision=12)]),
         "no acknowledged write lost"),
        (build_history([CREATED, op(CREATE, 2, value="b", revision=11)]), "no acknowledged write lost"),
        (build_history([CREATED, UPDATED, op(UPDATE, 2, UNKNOWN, end=NEVER, value="c", expected=10)],
                 [*EVENTS[:2], WatchLine(MODIFIED, "x", 12, "c")]), "no acknowledged write lost"),
        (build_history([*VALID_OPERATIONS, op(DELETE, 4, expected=99)], EVENTS), "no acknowledged write lost"),
        (build_history([CREATED, op(UPDATE, 2, REJECTED, value="b", expected=10)], EVENTS[:2]), "no unrequested write"),
        (build_history([CREATED], EVENTS[:2]), "no unrequested write"),
        (build_history([CREATED, UPDATED], EVENTS), "no unrequested write"),
        (build_history([CREATED, op(GET, 2, value="b", revision=10)]), "consistent versions"),
        (build_history([CREATED, UPDATED], [*EVENTS[:2], WatchLine(MODIFIED, "x", 12, "b")]), "consistent versions"),
        (build_history([CREATED, op(UPDATE, 2, value="b", expected=10, revision=9)]), "revisions rise"),
        (build_history([CREATED], None, Listing(4, 5, 9, {})), "revisions rise"),
        (build_history([op(CREATE, 9, value="a", revision=10)], None, Listing(4, 5, 10, {})), "revisions rise"),
    ],
    ids=[
        "an acknowledged object is missing",
        "a read is stale",
        "a read sees what was not written yet",
        "two reads go back in time",
        "a deleted object reappears",
        "a rejection because of a later write",
        "a rejection without a reason",
        "a rejection for an object that did not exist yet",
        "a list is stale",
        "two updates won",
        "an update and a deletion won",
        "an update was overwritten unseen",
        "created while it existed",
        "a late write replaced an acknowledged one",
        "a deletion of something else",
        "a rejected write was applied",
        "a write without a request",
        "a deletion without a request",
        "two values at one revision",
        "one write applied twice",
        "revisions went back",
        "a list went back",
        "a revision was used twice",
    ],
)  # fmt: skip
def test_an_inconsistent_history_is_detected(recorded: History, rule: str) -> None:
    assert rule in find_broken_rules(recorded)


@pytest.mark.parametrize(
    ("lines", "since"),
    [
        ((EVENTS[0], EVENTS[2]), 5),
        ((EVENTS[1], EVENTS[0], EVENTS[2]), 5),
        ((EVENTS[0], EVENTS[1], EVENTS[1], EVENTS[2]), 5),
        (EVENTS, 10),
        ((EVENTS[0], WatchLine(BOOKMARK, "", 11), EVENTS[1], EVENTS[2]), 5),
        ((EVENTS[0], WatchLine(BOOKMARK, "", 12)), 5),
        ((*EVENTS[:2], WatchLine(BOOKMARK, "", 10), EVENTS[2]), 5),
        ((EVENTS[0], WatchLine(ADDED, "x", 11, "b"), EVENTS[2]), 5),
        ((*EVENTS[:2], WatchLine(BOOKMARK, "", 12)), 5),
    ],
    ids=[
        "a gap",
        "out of order",
        "twice",
        "from before where it was resumed",
        "a bookmark ahead of its event",
        "a bookmark ahead of events that never arrived",
        "a bookmark that goes back",
        "a change reported as ADDED",
        "a missed deletion",
    ],
)
def test_an_inconsistent_watch_is_detected(lines: tuple[WatchLine, ...], since: int) -> None:
    recorded = build_history(VALID_OPERATIONS, EVENTS, LIST)
    recorded.chains.append(build_chain(lines, since))
    assert find_broken_rules(recorded) >= {"watches"}


def test_a_deletion_missed_by_every_watch_is_detected() -> None:
    recorded = build_history(VALID_OPERATIONS, [*EVENTS[:2], WatchLine(BOOKMARK, "", 12)], LIST)
    assert find_broken_rules(recorded) == {"watches"}


def test_a_list_that_mixes_two_revisions_is_detected() -> None:
    other = op(CREATE, 1.6, end=1.8, name="y", value="q", revision=11)
    updated = op(UPDATE, 2, value="b", expected=10, revision=12)
    mixed = Listing(1.9, 3, 11, {"x": State(12, "b"), "y": State(11, "q")})
    assert find_broken_rules(build_history([CREATED, other, updated], None, mixed)) == {"lists are snapshots"}
