"""Threads for what would hold the event loop for too long: large bodies, large lists, compression, password hashes.

Whoever has something to compute that grows with what a client sends compares its size with `LARGE`. What is smaller is
done at once, on the event loop: no thread is as quick as that. What is larger goes to `COMPUTE`:

    value = parse(body) if len(body) <= LARGE else await COMPUTE.run(len(body), parse, body)

The functions must not look at anything that the event loop changes meanwhile: they are given what they need, which
nobody else changes until they are done. Python code runs in one thread at a time, and the loop gets its turn after
`SWITCH_SECONDS`; but a single call into C code (JSON decoders, validators, joining bytes) keeps all other threads
waiting until it returns, so it must not be given too much at once.

Passwords have threads of their own: nobody's sign-in waits for somebody else's YAML.
"""

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from queue import PriorityQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LARGE = 16 * 1024
"""Bytes of JSON from which on work is done in a thread. On the loop, so many take 20 ms at worst, through all steps of
a write: when they are eight thousand values, and all of them wrong."""
LARGE_YAML = 2 * 1024
"""The same for YAML, of which each byte costs as much as twenty of JSON."""
SWITCH_SECONDS = 0.0005
"""How long another thread keeps the loop from going on. Python's own 5 ms would come with every wait of the loop."""

_Job = tuple[int, int, "Future[Any]", Callable[[], Any]]


class Workers:
    """Some threads. What is smallest is done first, so that a short wait does not become a long one behind others."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._threads = threads
        self._jobs: PriorityQueue[_Job] = PriorityQueue()
        self._numbers = count()
        self._started = False

    async def run(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns or raises, computed in a thread in the caller's context.

        Who is cancelled meanwhile goes on at once. Work that nobody waits for any more is not begun, but what has begun
        is carried through: so `work` owns what it was given.
        """
        if not self._started:
            self._start()
        context = contextvars.copy_context()
        done: Future[T] = Future()
        self._jobs.put((size, next(self._numbers), done, lambda: context.run(work, *args, **kwargs)))
        return await asyncio.wrap_future(done)

    def _start(self) -> None:
        self._started = True
        for number in range(self._threads):
            threading.Thread(target=self._serve, name=f"{self._name}-{number}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            _, _, done, work = self._jobs.get()
            if done.set_running_or_notify_cancel():
                _carry_out(work, done)
            del done, work  # or they would live on for as long as nothing else comes


def _carry_out(work: Callable[[], T], done: "Future[T]") -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - whoever waits is told, whatever it is
        done.set_exception(error)
    else:
        done.set_result(result)


def let_the_loop_in() -> None:
    """Makes threads give way to the event loop sooner than Python would have them. Called once at the start."""
    sys.setswitchinterval(SWITCH_SECONDS)


COMPUTE = Workers("compute", 2)
"""Two, so that one large body does not hold up all others; more would only compete for the same lock."""
HASHING = Workers("hashing", 2)
"""For passwords: as many as leave the rest of the server its processors and memory."""
