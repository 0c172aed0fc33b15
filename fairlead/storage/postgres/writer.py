"""Group commits: all commits that are pending when the previous group returns become one call of `commit_group`.

`PostgresWriter` forms the groups, `WriterSession` commits them on a connection of its own.

One group is in flight at a time. When its result arrives, its events are published to the watches, and then its
callers are answered.

If the connection breaks during a commit, its outcome is unknown. Every group has a number and leaves a row under it.
On the next connection the writer tries to insert that row itself. Either the row exists, with the group's result, or
the group can no longer be committed and is retried. If the database does not come back in time, the callers get an
error that says the outcome is unknown.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import asyncpg

from fairlead.core.waiting import Signal, start_task
from fairlead.storage.commit import PreparedCommit, resolve_future
from fairlead.storage.contract import Event, Precondition, RevisionConflict, StoreUnavailable, Write
from fairlead.storage.postgres.connection import (
    DATABASE_ERRORS,
    RETRY_DELAYS,
    RETRY_TIMEOUT,
    Connection,
    PostgresAddress,
    connect,
    explain_error,
)
from fairlead.storage.postgres.reader import PostgresFollower, is_transient

MAX_GROUP_COMMITS = 512
MAX_GROUP_BYTES = 8 * 1024 * 1024

COMMIT_TIMEOUT = 15.0
PROBE_TIMEOUT = 5.0
# A commit must be on disk before it is acknowledged, whatever the database's default.
OPEN_SESSION = """
    SELECT nextval('writers'),
        CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END
"""
COMMIT = "SELECT base, revisions, wrong, actual FROM commit_group($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
# Blocks if another transaction is writing the same row.
ABANDON_GROUP = "INSERT INTO groups (writer, number) VALUES ($1, $2) ON CONFLICT DO NOTHING"
FIND_GROUP = "SELECT base, revisions, wrong, actual FROM groups WHERE writer = $1 AND number = $2"
PROBE = """
    INSERT INTO groups (writer, number) VALUES ($1, 0)
    ON CONFLICT (writer, number) DO UPDATE SET made = excluded.made
"""

CLOSED_MESSAGE = "the store is closed"
STOPPED_MESSAGE = "the store has stopped after an internal error; see the log and restart the server"
UNKNOWN_OUTCOME_MESSAGE = "; it is unknown whether this write was committed, so check before you repeat it"


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The result of a group: for each commit its revision, or the position of the conflict and the actual revision."""

    base: int
    """The revision before the group."""
    revisions: Sequence[int | None]
    conflict_positions: Sequence[int | None]
    actual: Sequence[int]


class WriterSession:
    """The connection of the writer, and the number under which it commits the next group."""

    def __init__(self, connection: Connection, writer: int) -> None:
        self._connection = connection
        self._writer = writer
        self._number = 0
        self._last_recorded = 0

    @classmethod
    async def open(cls, address: PostgresAddress) -> "WriterSession":
        connection = await connect(address)
        async with asyncio.timeout(COMMIT_TIMEOUT):
            return cls(connection, await connection.fetchval(OPEN_SESSION))

    def is_closed(self) -> bool:
        return self._connection.is_closed()

    def close(self) -> None:
        self._connection.terminate()

    def next_group_id(self) -> tuple[int, int]:
        """The id of the next group, by which it can be looked up if the response is lost."""
        self._number += 1
        return self._writer, self._number

    async def commit(self, group: Sequence[PreparedCommit], channel: str) -> GroupOutcome:
        async with asyncio.timeout(COMMIT_TIMEOUT):
            row = await self._connection.fetchrow(
                COMMIT, self._writer, self._number, self._last_recorded, channel, *_group_columns(group)
            )
        outcome = _read_outcome(row)
        assert outcome is not None
        if any(outcome.revisions):
            self._last_recorded = self._number
        return outcome

    async def resolve_group(self, writer: int, number: int) -> GroupOutcome | None:
        """The result of an earlier group. None if it was not committed; it then never will be."""
        async with asyncio.timeout(COMMIT_TIMEOUT):
            await self._connection.execute(ABANDON_GROUP, writer, number)
            return _read_outcome(await self._connection.fetchrow(FIND_GROUP, writer, number))

    async def probe(self) -> None:
        async with asyncio.timeout(PROBE_TIMEOUT):
            await self._connection.execute(PROBE, self._writer)


def _read_outcome(row: asyncpg.Record | None) -> GroupOutcome | None:
    if row is None or row["base"] is None:
        return None
    return GroupOutcome(row["base"], row["revisions"], row["wrong"], row["actual"])


def _group_columns(group: Sequence[PreparedCommit]) -> tuple[list[object], ...]:
    """The parameters of `commit_group`: commit, position, key, value, expected revision, and whether it is a write."""
    columns: tuple[list[object], ...] = ([], [], [], [], [], [])
    for number, commit in enumerate(group):
        count = len(commit.writes) + len(commit.preconditions)
        columns[0].extend([number] * count)
        columns[1].extend(range(count))
        columns[2].extend(commit.write_keys)
        columns[2].extend(commit.precondition_keys)
        columns[3].extend([change.value for change in commit.writes] + [None] * len(commit.preconditions))
        columns[4].extend([change.expected_revision for change in commit.writes])
        columns[4].extend([check.expected_revision for check in commit.preconditions])
        columns[5].extend([True] * len(commit.writes) + [False] * len(commit.preconditions))
    return columns


@dataclass(frozen=True, slots=True)
class CommitJob:
    prepared: PreparedCommit
    done: asyncio.Future[int]


@dataclass(frozen=True, slots=True)
class MaintenanceJob:
    """Other work that must not overlap with a commit. If `work` is None, try whether a write succeeds."""

    work: Callable[[], Awaitable[None]] | None
    done: asyncio.Future[int]


class PostgresWriter:
    def __init__(self, address: PostgresAddress, follower: PostgresFollower) -> None:
        self._address = address
        self._follower = follower
        self._jobs: deque[CommitJob | MaintenanceJob] = deque()
        self._current: Sequence[CommitJob | MaintenanceJob] = ()
        self._signal = Signal()
        self._session: WriterSession | None = None
        self._delayed_answers: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.failure: str | None = None
        """Why the last write failed; None if it succeeded."""
        self._task = asyncio.create_task(self._run(), name="write to PostgreSQL")

    async def submit(self, job: CommitJob | MaintenanceJob) -> int:
        if self._stopping or self._task.done():
            raise StoreUnavailable(CLOSED_MESSAGE if self._stopping else STOPPED_MESSAGE)
        self._jobs.append(job)
        self._signal.wake()
        return await job.done

    async def close(self) -> None:
        """Close after all pending jobs."""
        self._stopping = True
        self._signal.wake()
        await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*self._delayed_answers)
        self._drop_session()

    async def _run(self) -> None:
        try:
            while self._jobs or not self._stopping:
                if not self._jobs:
                    await self._signal.wait()
                elif isinstance(job := self._jobs[0], MaintenanceJob):
                    self._current = [self._jobs.popleft()]
                    await self._run_maintenance(job)
                else:
                    self._current = group = self._next_group()
                    await self._commit(group)
                self._current = ()
        finally:
            # Also if the task crashes: callers must not wait forever.
            for left in (*self._current, *self._jobs):
                resolve_future(left.done, StoreUnavailable(STOPPED_MESSAGE))

    def _next_group(self) -> list[CommitJob]:
        """The pending commits, up to one that shares a key with an earlier one, unless both only check it."""
        group: list[CommitJob] = []
        written: set[bytes] = set()
        checked: set[bytes] = set()
        weight = 0
        while self._jobs and len(group) < MAX_GROUP_COMMITS and weight < MAX_GROUP_BYTES:
            job = self._jobs[0]
            if isinstance(job, MaintenanceJob):
                break
            commit = job.prepared
            if not (
                written.isdisjoint((*commit.write_keys, *commit.precondition_keys))
                and checked.isdisjoint(commit.write_keys)
            ):
                break
            written.update(commit.write_keys)
            checked.update(commit.precondition_keys)
            weight += sum([len(change.value or b"") for change in commit.writes])
            self._jobs.popleft()
            group.append(job)
        return group

    async def _commit(self, group: list[CommitJob]) -> None:
        known = self._follower.feed.revision
        try:
            outcome = await self._commit_group([job.prepared for job in group])
            if outcome.base < known:
                self._follower.mark_inconsistent(outcome.base, known)
                raise StoreUnavailable(self._follower.fatal_error)
        except StoreUnavailable as failure:
            self.failure = str(failure)
            for job in group:
                resolve_future(job.done, StoreUnavailable(*failure.args))
            return
        self.failure = None
        if outcome.base <= self._follower.feed.revision:
            self._answer(group, outcome)
            return
        # Commits of other replicas must be published first. The next group need not wait for that.
        start_task(self._delayed_answers, self._answer_when_caught_up(group, outcome))

    async def _answer_when_caught_up(self, group: list[CommitJob], outcome: GroupOutcome) -> None:
        # This times out if the follower is disconnected. The commits are durable, so answer anyway; watches get them
        # later.
        await self._follower.wait_until(outcome.base)
        self._answer(group, outcome)

    def _answer(self, group: list[CommitJob], outcome: GroupOutcome) -> None:
        if outcome.base <= self._follower.feed.revision:
            held = [(job, revision) for job, revision in zip(group, outcome.revisions, strict=True) if revision]
            self._follower.publish([(revision, _events(job.prepared, revision)) for job, revision in held])
        for position, job in enumerate(group):
            resolve_future(job.done, outcome.revisions[position] or _conflict(job.prepared, outcome, position))

    async def _run_maintenance(self, job: MaintenanceJob) -> None:
        try:
            if job.work is not None:
                await job.work()
            else:
                await (await self._ensure_session()).probe()
        except DATABASE_ERRORS as error:
            self._drop_session()
            failure = explain_error(self._address, error)
            self.failure = str(failure)
            resolve_future(job.done, failure)
        else:
            self.failure = None
            resolve_future(job.done, 0)

    async def _commit_group(self, group: Sequence[PreparedCommit]) -> GroupOutcome:
        """Commit a group and return its definite result. Raises StoreUnavailable if it failed or the outcome is
        unknown."""
        unknown: tuple[int, int] | None = None
        deadline = 0.0
        attempt = 0
        while True:
            try:
                session = await self._ensure_session()
                if unknown is not None:
                    if outcome := await session.resolve_group(*unknown):
                        return outcome
                    unknown = None
                unknown = session.next_group_id()
                return await session.commit(group, self._address.channel)
            except DATABASE_ERRORS as error:
                self._drop_session()
                if isinstance(error, asyncpg.PostgresError) and getattr(error, "severity_en", "") == "ERROR":
                    unknown = None  # the database reports that it has rolled back
                deadline = deadline or time.monotonic() + RETRY_TIMEOUT
                hopeful = is_transient(error) or unknown is not None
                if not hopeful or time.monotonic() > deadline:
                    failure = explain_error(self._address, error)
                    raise StoreUnavailable(f"{failure}{UNKNOWN_OUTCOME_MESSAGE if unknown else ''}") from error
            await asyncio.sleep(RETRY_DELAYS[min(attempt, len(RETRY_DELAYS) - 1)])
            attempt += 1

    async def _ensure_session(self) -> WriterSession:
        if self._session is None or self._session.is_closed():
            self._drop_session()
            self._session = await WriterSession.open(self._address)
        return self._session

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _events(commit: PreparedCommit, revision: int) -> list[Event]:
    return [Event(change.key, change.value, revision) for change in commit.writes]


def _conflict(commit: PreparedCommit, outcome: GroupOutcome, position: int) -> RevisionConflict:
    wishes: list[Write | Precondition] = [*commit.writes, *commit.preconditions]
    expectation = wishes[outcome.conflict_positions[position] or 0]
    return RevisionConflict(expectation.key, expectation.expected_revision, outcome.actual[position])
