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

from fairlead.storage.commit import Prepared
from fairlead.storage.contract import Change, Check, Conflict, Event, StorageError, Unavailable
from fairlead.storage.postgres.connection import PATIENCE_SECONDS, PAUSES, TROUBLE, Address, Outcome, Session, explain
from fairlead.storage.postgres.follower import Follower
from fairlead.storage.postgres.reader import is_passing

GROUP_COMMITS = 512
GROUP_BYTES = 8 * 1024 * 1024

CLOSED = "the store is closed"
DIED = "the store has stopped after an internal error; see the log and restart the server"
UNKNOWN = "; it is unknown whether this write was committed, so check before you repeat it"


@dataclass(frozen=True, slots=True)
class Commit:
    prepared: Prepared
    done: asyncio.Future[int]


@dataclass(frozen=True, slots=True)
class Errand:
    """Other work that must not overlap with a commit. If `work` is None, try whether a write succeeds."""

    work: Callable[[], Awaitable[None]] | None
    done: asyncio.Future[int]


class Writer:
    def __init__(self, address: Address, follower: Follower) -> None:
        self._address = address
        self._follower = follower
        self._jobs: deque[Commit | Errand] = deque()
        self._current: Sequence[Commit | Errand] = ()
        self._wake = asyncio.Event()
        self._session: Session | None = None
        self._settling: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.failure: str | None = None
        """Why the last write failed; None if it succeeded."""
        self._task = asyncio.create_task(self._run(), name="write to PostgreSQL")

    async def do(self, job: Commit | Errand) -> int:
        if self._stopping or self._task.done():
            raise Unavailable(CLOSED if self._stopping else DIED)
        self._jobs.append(job)
        self._wake.set()
        return await job.done

    async def close(self) -> None:
        """Close after all pending jobs."""
        self._stopping = True
        self._wake.set()
        await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*self._settling)
        self._drop_session()

    async def _run(self) -> None:
        try:
            while self._jobs or not self._stopping:
                if not self._jobs:
                    self._wake.clear()
                    await self._wake.wait()
                elif isinstance(job := self._jobs[0], Errand):
                    self._current = [self._jobs.popleft()]
                    await self._run_errand(job)
                else:
                    self._current = group = self._take()
                    await self._commit(group)
                self._current = ()
        finally:
            # Also if the task crashes: callers must not wait forever.
            for left in (*self._current, *self._jobs):
                _settle(left.done, Unavailable(DIED))

    def _take(self) -> list[Commit]:
        """The pending commits, up to one that shares a key with an earlier one, unless both only check it."""
        group: list[Commit] = []
        written: set[bytes] = set()
        checked: set[bytes] = set()
        weight = 0
        while self._jobs and len(group) < GROUP_COMMITS and weight < GROUP_BYTES:
            job = self._jobs[0]
            if isinstance(job, Errand):
                break
            commit = job.prepared
            if not (written.isdisjoint((*commit.changed, *commit.checked)) and checked.isdisjoint(commit.changed)):
                break
            written.update(commit.changed)
            checked.update(commit.checked)
            weight += sum([len(change.value or b"") for change in commit.changes])
            self._jobs.popleft()
            group.append(job)
        return group

    async def _commit(self, group: list[Commit]) -> None:
        known = self._follower.feed.revision
        try:
            outcome = await self._outcome([job.prepared for job in group])
            if outcome.base < known:
                self._follower.mistrust(outcome.base, known)
                raise Unavailable(self._follower.lost)
        except Unavailable as failure:
            self.failure = str(failure)
            for job in group:
                _settle(job.done, Unavailable(*failure.args))
            return
        self.failure = None
        if outcome.base <= self._follower.feed.revision:
            self._answer(group, outcome)
            return
        # Commits of other replicas must be published first. The next group need not wait for that.
        task = asyncio.create_task(self._answer_later(group, outcome))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _answer_later(self, group: list[Commit], outcome: Outcome) -> None:
        # This times out if the follower is disconnected. The commits are durable, so answer anyway; watches get them
        # later.
        await self._follower.reach(outcome.base)
        self._answer(group, outcome)

    def _answer(self, group: list[Commit], outcome: Outcome) -> None:
        if outcome.base <= self._follower.feed.revision:
            held = [(job, revision) for job, revision in zip(group, outcome.revisions, strict=True) if revision]
            self._follower.publish([(revision, _events(job.prepared, revision)) for job, revision in held])
        for place, job in enumerate(group):
            _settle(job.done, outcome.revisions[place] or _conflict(job.prepared, outcome, place))

    async def _run_errand(self, job: Errand) -> None:
        try:
            if job.work is not None:
                await job.work()
            else:
                await (await self._connected()).probe()
        except TROUBLE as error:
            self._drop_session()
            failure = explain(self._address, error)
            self.failure = str(failure)
            _settle(job.done, failure)
        else:
            self.failure = None
            _settle(job.done, 0)

    async def _outcome(self, group: Sequence[Prepared]) -> Outcome:
        """Commit a group and return its definite result. Raises StoreUnavailable if it failed or the outcome is
        unknown."""
        unknown: tuple[int, int] | None = None
        deadline = 0.0
        attempt = 0
        while True:
            try:
                session = await self._connected()
                if unknown is not None:
                    if outcome := await session.look_up(*unknown):
                        return outcome
                    unknown = None
                unknown = session.begin()
                return await session.commit(group, self._address.channel)
            except TROUBLE as error:
                self._drop_session()
                if isinstance(error, asyncpg.PostgresError) and getattr(error, "severity_en", "") == "ERROR":
                    unknown = None  # the database reports that it has rolled back
                deadline = deadline or time.monotonic() + PATIENCE_SECONDS
                hopeful = is_passing(error) or unknown is not None
                if not hopeful or time.monotonic() > deadline:
                    failure = explain(self._address, error)
                    raise Unavailable(f"{failure}{UNKNOWN if unknown else ''}") from error
            await asyncio.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
            attempt += 1

    async def _connected(self) -> Session:
        if self._session is None or self._session.is_closed():
            self._drop_session()
            self._session = await Session.open(self._address)
        return self._session

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _events(commit: Prepared, revision: int) -> list[Event]:
    return [Event(change.key, change.value, revision) for change in commit.changes]


def _conflict(commit: Prepared, outcome: Outcome, place: int) -> Conflict:
    wishes: list[Change | Check] = [*commit.changes, *commit.checks]
    wish = wishes[outcome.wrong[place] or 0]
    return Conflict(wish.key, wish.expected, outcome.actual[place])


def _settle(done: "asyncio.Future[int]", answer: int | StorageError) -> None:
    if done.done():
        return  # the caller was cancelled
    if isinstance(answer, StorageError):
        done.set_exception(answer)
    else:
        done.set_result(answer)
