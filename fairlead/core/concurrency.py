"""Threads for what would hold the event loop for too long: large bodies, large lists, compression, password hashes.

Whoever has something to compute that grows with what a client sends compares its size with `LARGE`. What is smaller is
done at once, on the event loop: no thread is as quick as that. What is larger goes to `COMPUTE`:

    value = parse(body) if len(body) <= LARGE else await COMPUTE.run(len(body), parse, body)

The functions must not look at anything that the event loop changes meanwhile: they are given what they need, which
nobody else changes until they are done. Python code runs in one thread at a time, and the loop gets its turn after
`SWITCH_SECONDS`; but a single call into C code (JSON decoders, validators, joining bytes) keeps all other threads
waiting until it returns, so it must not be given too much at once.

Passwords have threads of their own: nobody's sign-in waits for somebody else's YAML.

Who waits longest for a thread is not who asks last but who has had most: each job is put down to the `ACCOUNT` of the
context that it comes from, and of several accounts the one goes first that has been given least. Flow control sets it.
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
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
T = TypeVar("T")

LARGE = 16 * 1024
"""Bytes of JSON from which on work is done in a thread. On the loop, so many take 20 ms at worst, through all steps of
a write: when they are eight thousand values, and all of them wrong."""
LARGE_YAML = 2 * 1024
"""The same for YAML, of which each byte costs as much as twenty of JSON."""
SWITCH_SECONDS = 0.0005
"""How long another thread keeps the loop from going on. Python's own 5 ms would come with every wait of the loop."""


class Account:
    """Whoever pays for work in threads. `seconds` is the processor time since somebody has last taken note of it."""

    __slots__ = ("large", "seconds", "tags")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.large = asyncio.Lock()
        """Held by the one of its requests that puts something large together."""
        self.tags: dict[str, float] = {}
        """By the name of the threads, what it has been given there: bytes, counted from where everybody began."""

    def take_seconds(self) -> float:
        """What there is to pay. It is paid once."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


ACCOUNT: contextvars.ContextVar[Account | None] = contextvars.ContextVar("ACCOUNT", default=None)
"""Who pays for what is computed in this context. Nobody does for the server's own work."""

LARGE_AT_ONCE = 4
_large_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


@asynccontextmanager
async def putting_together_large() -> AsyncIterator[None]:
    """Around what takes up megabytes until it is done. Each account does one such thing at a time, so that a hundred
    requests of one user do not take up a hundred times as much, and only wait for each other."""
    turns = _large_turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(LARGE_AT_ONCE))
    account = ACCOUNT.get()
    async with account.large if account is not None else nullcontext(), turns:
        yield


_Job = tuple[float, int, int, "asyncio.Future[Any]", Callable[[], Any], Account | None]


class Workers:
    """Some threads. Accounts take turns; of those that have had the same, what is smallest is done first, so that a
    short wait does not become a long one behind others."""

    def __init__(self, name: str, threads: int, niceness: int = 0) -> None:
        """`niceness` is only for work that lets go of Python's lock: a thread that holds it while it has to wait for a
        processor keeps the event loop waiting as well."""
        self._name = name
        self._threads = threads
        self._niceness = niceness
        self._jobs: PriorityQueue[_Job] = PriorityQueue()
        self._numbers = count()
        self._clock = 0.0
        self._started = False

    async def run(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns or raises, computed in a thread in the caller's context.

        Who is cancelled meanwhile goes on at once. Work that nobody waits for any more is not begun, but what has begun
        is carried through: so `work` owns what it was given.
        """
        if not self._started:
            self._start()
        context = contextvars.copy_context()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        account = ACCOUNT.get()
        begins = self._clock
        if account is not None:
            begins = max(begins, account.tags.get(self._name, 0.0))
            account.tags[self._name] = begins + size
        job = begins, size, next(self._numbers), done, lambda: context.run(work, *args, **kwargs), account
        self._jobs.put(job)
        del job
        try:
            return await done
        finally:
            del done  # an error that is raised here refers to this function, and must not keep itself alive through it

    def _start(self) -> None:
        self._started = True
        for number in range(self._threads):
            threading.Thread(target=self._serve, name=f"{self._name}-{number}", daemon=True).start()

    def _serve(self) -> None:
        _be_nice(self._niceness)
        while True:
            begins, _, _, done, work, account = self._jobs.get()
            self._clock = max(self._clock, begins)
            if not done.cancelled():
                _carry_out(work, done, account)
            del done, work, account  # or they would live on for as long as nothing else comes


def _be_nice(niceness: int) -> None:
    """Lowers the claim of this thread on the processor. Only Linux has that for each thread by itself."""
    if niceness and sys.platform == "linux":
        with suppress(OSError):  # it is a favour to others, and nothing depends on it
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)


def _carry_out(work: Callable[[], T], done: "asyncio.Future[T]", account: Account | None) -> None:
    began = time.thread_time()
    settle: Callable[[], None]
    try:
        settle = partial(_set_result, done, work())
    except BaseException as error:  # noqa: BLE001 - whoever waits is told, whatever it is
        # An error holds on to all that its functions had in hand. To let go of a large body takes long, too.
        traceback.clear_frames(error.__traceback__)
        settle = partial(_set_exception, done, error)
    _bill(account, began)
    with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
        done.get_loop().call_soon_threadsafe(settle)


def _set_result(done: "asyncio.Future[T]", result: T) -> None:
    """In the loop's thread. A future of `concurrent` would do, but chained to one of the loop it forms a cycle, in
    which a large result stays until the garbage collector comes by."""
    if not done.done():
        done.set_result(result)


def _set_exception(done: "asyncio.Future[T]", error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)


def _bill(account: Account | None, began: float) -> None:
    if account is not None:
        account.seconds += time.thread_time() - began


def let_the_loop_in() -> None:
    """Makes threads give way to the event loop sooner than Python would have them. Called once at the start."""
    sys.setswitchinterval(SWITCH_SECONDS)


COMPUTE = Workers("compute", 2)
"""Two, so that one large body does not hold up all others; more would only compete for the same lock."""
HASHING = Workers("hashing", 2, niceness=5)
"""For passwords: as many as leave the rest of the server its memory, and of a lower priority than the rest, which goes
first where there are only two processors."""


# DOC-MERGED core/slices
# Long work on the event loop, cut into slices: others get their turn in between.
#
# For work that has to be done on the loop, because it looks at what the loop changes. What can be done elsewhere goes to
# `concurrency.py`. Slices are measured by what is to be done, not by the clock, so that tests can count them.


PER_ITEM = 512
"""What an item costs beside its bytes, in bytes: a slice of tiny ones ends, too."""
SLICE_BYTES = 256 * 1024
"""What is decoded, copied or compared in one slice: some milliseconds at worst, or five hundred small objects."""


def cut(items: Iterable[T], size: Callable[[T], int], most: int = SLICE_BYTES) -> Iterator[list[T]]:
    """The items in order, in groups of at most so many bytes, or single where one alone has more."""
    some: list[T] = []
    room = most
    for item in items:
        cost = size(item) + PER_ITEM
        if cost > room and some:
            yield some
            some, room = [], most
        some.append(item)
        room -= cost
    if some:
        yield some


async def in_slices(items: Iterable[T], size: Callable[[T], int], most: int = SLICE_BYTES) -> AsyncIterator[list[T]]:
    """The same groups, and a turn for others before each but the first."""
    is_first = True
    for some in cut(items, size, most):
        if not is_first:
            await asyncio.sleep(0)
        is_first = False
        yield some
