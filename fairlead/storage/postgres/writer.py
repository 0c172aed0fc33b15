"""Group commits: all commits that are pending when the previous group returns become one call of `commit_group`.

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

from fairlead.storage.commit import PreparedCommit, resolve_future
from fairlead.storage.contract import Event, Precondition, RevisionConflict, StoreUnavailable, Write
from fairlead.storage.postgres.connection import (
    DATABASE_ERRORS,
    RETRY_DELAYS,
    RETRY_TIMEOUT,
    GroupOutcome,
    PostgresAddress,
    WriterSession,
    explain_error,
)
from fairlead.storage.postgres.follower import PostgresFollower
from fairlead.storage.postgres.reader import is_transient

MAX_GROUP_COMMITS = 512
MAX_GROUP_BYTES = 8 * 1024 * 1024

CLOSED_MESSAGE = "the store is closed"
STOPPED_MESSAGE = "the store has stopped after an internal error; see the log and restart the server"
UNKNOWN_OUTCOME_MESSAGE = "; it is unknown whether this write was committed, so check before you repeat it"


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
        self._wake = asyncio.Event()
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
        self._wake.set()
        return await job.done

    async def close(self) -> None:
        """Close after all pending jobs."""
        self._stopping = True
        self._wake.set()
        await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*self._delayed_answers)
        self._drop_session()

    async def _run(self) -> None:
        try:
            while self._jobs or not self._stopping:
                if not self._jobs:
                    self._wake.clear()
                    await self._wake.wait()
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
        task = asyncio.create_task(self._answer_when_caught_up(group, outcome))
        self._delayed_answers.add(task)
        task.add_done_callback(self._delayed_answers.discard)

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
