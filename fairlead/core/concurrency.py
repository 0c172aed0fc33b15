"""Thread pools for CPU work that would block the event loop, and helpers to split work that must stay on it.

Work that grows with client input (parsing, large lists, compression) goes through `compute`, which decides by its size:
small work runs on the event loop, which is faster than a thread, larger work in `COMPUTE_POOL`.

    value = await compute(len(body), parse, body)

Functions that run in a thread must not read data that the event loop modifies. The GIL lets one thread run at a time,
and the loop gets it back after `BUSY_SWITCH_SECONDS`. But a single call into C code (JSON decoders, validators, joining
bytes) blocks all threads until it returns, so keep its input small.

Password hashing has its own pool, so that logins do not wait for large bodies.

Jobs are scheduled by fair queueing: each is charged to the `CURRENT_ACCOUNT` of its context, which flow control sets,
and the account that has received the least goes first.

Work that must stay on the event loop, because it reads what the loop modifies, is split by `iter_slices`, which
yields to the loop between slices. Slices are measured in bytes and not in time, so that tests are deterministic.

Large responses need memory rather than time: `large_response_slot` limits how many are built at once.
"""

import asyncio
import contextvars
import os
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from itertools import count
from queue import PriorityQueue
from typing import Any, ParamSpec, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from fairlead.core.call import current_call
from fairlead.core.thread_activity import ThreadTask, track_thread

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LARGE_JSON_BYTES = 16 * 1024
"""Above this size of JSON, work runs in a thread. In the worst case (8,000 values, all invalid) so many bytes take 20
ms on the loop, through all steps of a write."""
LARGE_YAML_BYTES = 2 * 1024
"""The same for YAML, which costs about twenty times as much per byte."""
IDLE_SWITCH_SECONDS = 0.005
"""Python's thread switch interval while no thread computes: its default. The threads of the HTTP server need the
interpreter for microseconds. With a shorter interval they interrupt the loop more often, which costs a fifth of the CPU
time of a small request."""
BUSY_SWITCH_SECONDS = 0.0005
"""The interval while a thread computes: how long the loop waits for it, each time."""
ITEM_OVERHEAD_BYTES = 512
"""Overhead per item in bytes, so that slices of tiny items are bounded, too."""
MAX_SLICE_BYTES = 256 * 1024
"""The amount of work per slice: a few milliseconds at worst, or five hundred small objects."""
MAX_CONCURRENT_LARGE = 4
"""Large responses that are built at the same time, of all accounts together."""


class Account:
    """What work in threads is charged to. `cpu_seconds` is the CPU time since it was last collected."""

    __slots__ = ("cpu_seconds", "finish_tags", "large_response_lock")

    def __init__(self) -> None:
        self.cpu_seconds = 0.0
        self.large_response_lock = asyncio.Lock()
        """Held by the one request of this account that builds a large response."""
        self.finish_tags: dict[str, float] = {}
        """Per pool, the virtual time at which the account's last job ends, in bytes."""

    def collect_cpu_seconds(self) -> float:
        """Return the CPU time used and reset it."""
        seconds, self.cpu_seconds = self.cpu_seconds, 0.0
        return seconds


CURRENT_ACCOUNT: contextvars.ContextVar[Account | None] = contextvars.ContextVar("ACCOUNT", default=None)
"""The account that work in this context is charged to; None for the server's own work."""

_large_semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


@asynccontextmanager
async def large_response_slot() -> AsyncIterator[None]:
    """Limit the memory of large responses: one at a time per account, and a few in total.

    Without this, many concurrent requests of one user would each hold megabytes and only slow each other down.
    """
    turns = _large_semaphores.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_CONCURRENT_LARGE))
    account = CURRENT_ACCOUNT.get()
    async with account.large_response_lock if account is not None else nullcontext(), turns:
        yield


class SwitchInterval:
    """Sets Python's thread switch interval by what the threads do. Each computation is a `with` block in its thread.

    Where the loop passes on the work, it calls `begin`, and the thread `end`: so the loop does not wait a long interval
    once, between the begin of the work and that of the block.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0

    def begin(self) -> None:
        with self._lock:
            self._running += 1
            if self._running == 1:
                sys.setswitchinterval(BUSY_SWITCH_SECONDS)

    def end(self) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                sys.setswitchinterval(IDLE_SWITCH_SECONDS)

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *error: object) -> None:
        self.end()


SWITCH_INTERVAL = SwitchInterval()


_Job = tuple[float, int, int, "asyncio.Future[Any]", Callable[[], Any], Account | None, ThreadTask]


class WorkerPool:
    """A pool of threads with fair queueing between accounts. Among equal accounts, the smallest job goes first."""

    def __init__(self, name: str, threads: int, niceness: int = 0) -> None:
        """Use `niceness` only for work that releases the GIL: a low-priority thread that holds the GIL and waits for
        a CPU blocks the event loop as well. The watchdog does not measure such threads."""
        self._name = name
        self._threads = threads
        self._niceness = niceness
        self._holds_interpreter = not niceness
        self._jobs: PriorityQueue[_Job] = PriorityQueue()
        self._sequence = count()
        self._virtual_time = 0.0
        self._started = False
        self.on_submit: Callable[[], None] | None = None
        """Called in the thread of the loop with each job: the watchdog measures more often while threads work."""
        self.unfinished = 0
        """The number of jobs that wait or run. Changed by the loop only."""

    async def run(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in a thread, in the caller's context, and return its result or raise its exception.

        A cancelled caller continues immediately. A job that has not started is then skipped; one that has started
        runs to its end, so `work` must own its arguments.
        """
        if not self._started:
            self._start()
        context = contextvars.copy_context()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        account = CURRENT_ACCOUNT.get()
        begins = self._virtual_time
        if account is not None:
            begins = max(begins, account.finish_tags.get(self._name, 0.0))
            account.finish_tags[self._name] = begins + size
        task = ThreadTask(getattr(work, "__qualname__", type(work).__name__), size, current_call())
        job = begins, size, next(self._sequence), done, lambda: context.run(work, *args, **kwargs), account, task
        self.unfinished += 1
        done.add_done_callback(self._on_done)
        if self._holds_interpreter:
            SWITCH_INTERVAL.begin()
        self._jobs.put(job)
        if self.on_submit is not None:
            self.on_submit()
        del job, task
        try:
            return await done
        finally:
            del done  # the exception's traceback refers to this frame: avoid a reference cycle

    def _on_done(self, _: "asyncio.Future[Any]") -> None:
        self.unfinished -= 1

    def _start(self) -> None:
        self._started = True
        for number in range(self._threads):
            threading.Thread(target=self._run_worker, name=f"{self._name}-{number}", daemon=True).start()

    def _run_worker(self) -> None:
        _lower_priority(self._niceness)
        activity = track_thread() if self._holds_interpreter else None
        while True:
            begins, _, _, done, work, account, task = self._jobs.get()
            self._virtual_time = max(self._virtual_time, begins)
            if not done.cancelled():
                if activity is not None:
                    activity.begin(task)
                del task
                seconds = _run_job(work, done, account)
                if activity is not None:
                    activity.end(seconds)
            else:
                del task
            if self._holds_interpreter:
                SWITCH_INTERVAL.end()
            del done, work, account  # release them before waiting for the next job


def _lower_priority(niceness: int) -> None:
    """Lower the priority of this thread. Only Linux supports that per thread."""
    if niceness and sys.platform == "linux":
        with suppress(OSError):  # best effort
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)


def _run_job(work: Callable[[], T], done: "asyncio.Future[T]", account: Account | None) -> float:
    """Runs a job, passes on its result, and returns the CPU time it took."""
    began = time.thread_time()
    resolve: Callable[[], None]
    try:
        resolve = partial(_set_result, done, work())
    except BaseException as error:  # noqa: BLE001 - the caller gets every exception
        # The traceback keeps the locals of its frames alive. Freeing a large body takes long, so do it in this
        # thread.
        traceback.clear_frames(error.__traceback__)
        resolve = partial(_set_exception, done, error)
    seconds = time.thread_time() - began
    if account is not None:
        account.cpu_seconds += seconds
    with suppress(RuntimeError):  # the loop is closed, so there is no caller left
        done.get_loop().call_soon_threadsafe(resolve)
    return seconds


def _set_result(done: "asyncio.Future[T]", result: T) -> None:
    """Runs in the loop's thread. A chained `concurrent.futures` future would form a reference cycle, which keeps a
    large result alive until the next garbage collection."""
    if not done.done():
        done.set_result(result)


def _set_exception(done: "asyncio.Future[T]", error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)


COMPUTE_POOL = WorkerPool("compute", 2)
"""Two threads, so that one large body does not block all others; more would only compete for the GIL."""


async def compute(size: int, work: Callable[[*Ts], T], *arguments: *Ts, inline_size: int = LARGE_JSON_BYTES) -> T:
    """Runs CPU work on the event loop if its size is at most `inline_size`, and in a thread otherwise."""
    if size <= inline_size:
        return work(*arguments)
    return await COMPUTE_POOL.run(size, work, *arguments)


ANSWER_POOL = WorkerPool("answers", 1)
"""For answers of other programs, such as API servers and runners, so that these take no thread from clients."""
INTERPRETER_POOLS = (COMPUTE_POOL, ANSWER_POOL)
"""Those whose threads hold the interpreter, which the watchdog measures."""


HASHING_POOL = WorkerPool("hashing", 2, niceness=5)
"""For password hashes. The number of threads bounds the memory they need; the low priority leaves the CPUs to the
rest of the server."""


def split_by_size(items: Iterable[T], size: Callable[[T], int], max_bytes: int = MAX_SLICE_BYTES) -> Iterator[list[T]]:
    """Split items into consecutive groups of at most `max_bytes`. A larger item forms its own group."""
    some: list[T] = []
    room = max_bytes
    for item in items:
        cost = size(item) + ITEM_OVERHEAD_BYTES
        if cost > room and some:
            yield some
            some, room = [], max_bytes
        some.append(item)
        room -= cost
    if some:
        yield some


async def iter_slices(
    items: Iterable[T], size: Callable[[T], int], max_bytes: int = MAX_SLICE_BYTES
) -> AsyncIterator[list[T]]:
    """The same groups, yielding to the event loop before each but the first."""
    is_first = True
    for some in split_by_size(items, size, max_bytes):
        if not is_first:
            await asyncio.sleep(0)
        is_first = False
        yield some
