"""The writer's connection: the call that commits a group, and looking up what became of one. Called by Writer."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from fairlead.storage.commits import Prepared
from fairlead.storage.postgres.address import Address, Connection, connect

COMMIT_SECONDS = 15.0
PROBE_SECONDS = 5.0

# Whatever the database's default, a commit is on the disk before anyone hears of it.
BEGIN = """
    SELECT nextval('writers'),
        CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END
"""
COMMIT = "SELECT base, revisions, wrong, actual FROM commit_group($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
# Waits for a transaction that is just writing the same row.
GIVE_UP = "INSERT INTO groups (writer, number) VALUES ($1, $2) ON CONFLICT DO NOTHING"
LOOK_UP = "SELECT base, revisions, wrong, actual FROM groups WHERE writer = $1 AND number = $2"
PROBE = """
    INSERT INTO groups (writer, number) VALUES ($1, 0)
    ON CONFLICT (writer, number) DO UPDATE SET made = excluded.made
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a group: for each commit its revision, or where it conflicts and what is there."""

    base: int
    """The revision before the group."""
    revisions: Sequence[int | None]
    wrong: Sequence[int | None]
    actual: Sequence[int]


class Session:
    def __init__(self, connection: Connection, writer: int) -> None:
        self._connection = connection
        self._writer = writer
        self._number = 0
        self._spent = 0

    @classmethod
    async def open(cls, address: Address) -> "Session":
        connection = await connect(address)
        async with asyncio.timeout(COMMIT_SECONDS):
            return cls(connection, await connection.fetchval(BEGIN))

    def is_closed(self) -> bool:
        return self._connection.is_closed()

    def close(self) -> None:
        self._connection.terminate()

    def begin(self) -> tuple[int, int]:
        """By which the next group can be looked up, should its answer be lost."""
        self._number += 1
        return self._writer, self._number

    async def commit(self, group: Sequence[Prepared], channel: str) -> Outcome:
        async with asyncio.timeout(COMMIT_SECONDS):
            row = await self._connection.fetchrow(
                COMMIT, self._writer, self._number, self._spent, channel, *_columns(group)
            )
        outcome = _read_outcome(row)
        assert outcome is not None
        if any(outcome.revisions):
            self._spent = self._number
        return outcome

    async def look_up(self, writer: int, number: int) -> Outcome | None:
        """None if it did not happen; from now on it cannot."""
        async with asyncio.timeout(COMMIT_SECONDS):
            await self._connection.execute(GIVE_UP, writer, number)
            return _read_outcome(await self._connection.fetchrow(LOOK_UP, writer, number))

    async def probe(self) -> None:
        async with asyncio.timeout(PROBE_SECONDS):
            await self._connection.execute(PROBE, self._writer)


def _read_outcome(row: asyncpg.Record | None) -> Outcome | None:
    if row is None or row["base"] is None:
        return None
    return Outcome(row["base"], row["revisions"], row["wrong"], row["actual"])


def _columns(group: Sequence[Prepared]) -> tuple[list[object], ...]:
    """Commit, place, key, value, expected revision, and whether it is a change: of everything that the group names."""
    columns: tuple[list[object], ...] = ([], [], [], [], [], [])
    for number, commit in enumerate(group):
        count = len(commit.changes) + len(commit.checks)
        columns[0].extend([number] * count)
        columns[1].extend(range(count))
        columns[2].extend(commit.changed)
        columns[2].extend(commit.checked)
        columns[3].extend([change.value for change in commit.changes] + [None] * len(commit.checks))
        columns[4].extend([change.expected for change in commit.changes])
        columns[4].extend([check.expected for check in commit.checks])
        columns[5].extend([True] * len(commit.changes) + [False] * len(commit.checks))
    return columns
