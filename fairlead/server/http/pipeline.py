"""The request pipeline (middleware chain), and its stages for deadlines, compression and custom headers.

A stage gets the call and `proceed`, the rest of the pipeline. It replies itself, or calls `proceed` and may modify the
reply. `proceed` returns a Reply or an awaitable of one. Most requests are served from memory synchronously, without a
coroutine in any stage: a stage that handles replies checks for a Reply first, and otherwise returns a coroutine.

`fairlead/app/http.py` assembles the pipeline: metrics, custom headers, compression, audit, error rendering, deadline,
routing, authentication, flow control, memory limits, authorization, the audit check, and `Dispatcher` at the end.
"""

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Mapping, Sequence

from fairlead.core.call import Call, Reply
from fairlead.core.concurrency import COMPUTE_POOL

Handler = Callable[[Call], Awaitable[Reply]]
Stage = Callable[[Call, Handler], Awaitable[Reply]]


def build_pipeline(stages: Sequence[Stage], serve: Handler) -> Handler:
    """One handler that runs the stages in order, with `serve` at the end."""
    handler = serve
    for stage in reversed(stages):
        handler = _bind_stage(stage, handler)
    return handler


def _bind_stage(stage: Stage, proceed: Handler) -> Handler:
    def handler(call: Call) -> Awaitable[Reply]:
        return stage(call, proceed)

    return handler


def deadline_stage(seconds: float) -> Stage:
    """The stage that cancels requests after `seconds`. Streams have started by then, and have limits of their own."""
    return _DeadlineQueue(seconds).stage


class _DeadlineQueue:
    """The in-flight requests, ordered by deadline.

    One timer serves all of them: nearly every request finishes long before its deadline, and a timer for each would
    cost more than the rest of this stage. All have the same timeout, so insertion order is deadline order, and the
    timer only checks the front. Requests that are served synchronously never enter the queue.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadlines: dict[asyncio.Task[object], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def stage(self, call: Call, proceed: Handler) -> Awaitable[Reply]:
        answer = proceed(call)
        return answer if isinstance(answer, Reply) else self._await_with_deadline(answer)

    async def _await_with_deadline(self, answer: Awaitable[Reply]) -> Reply:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request must run in an asyncio task")
        loop = asyncio.get_running_loop()
        self._deadlines[task] = due = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(due, self._cancel_overdue, loop)
        cancelled = task.cancelling()
        try:
            return await answer
        except asyncio.CancelledError:
            # A missing entry means that the deadline cancelled the task; something else may have cancelled it as well.
            if task not in self._deadlines and task.cancelling() - 1 <= cancelled:
                raise TimeoutError from None
            raise
        finally:
            if self._deadlines.pop(task, None) is None:
                task.uncancel()

    def _cancel_overdue(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancels all overdue requests, and sets the timer for the next deadline."""
        self._timer = None
        now = loop.time()
        while self._deadlines:
            task, due = next(iter(self._deadlines.items()))
            if due > now:
                self._timer = loop.call_at(due, self._cancel_overdue, loop)
                return
            del self._deadlines[task]
            task.cancel()


MIN_GZIP_BYTES = 128 * 1024
GZIP_LEVEL = 1
"""The fastest: on typical networks, latency matters more than size."""


def compress(call: Call, proceed: Handler) -> Awaitable[Reply]:
    """The stage that compresses large responses with gzip, in a thread, if the client accepts it."""
    answer = proceed(call)
    if isinstance(answer, Reply) and len(answer.body) <= MIN_GZIP_BYTES:
        return answer
    return _compress_reply(call, answer)


async def _compress_reply(call: Call, answer: Awaitable[Reply]) -> Reply:
    reply = await answer
    if len(reply.body) > MIN_GZIP_BYTES and accepts_gzip(call.headers.get("accept-encoding", "")):
        reply.body = await COMPUTE_POOL.run(len(reply.body), gzip.compress, reply.body, GZIP_LEVEL)
        reply.headers += [("content-encoding", "gzip"), ("vary", "Accept-Encoding")]
    return reply


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header lists gzip with a quality other than zero."""
    for entry in header.split(","):
        coding, *parameters = (part.strip().lower() for part in entry.split(";"))
        if coding == "gzip":
            return not any(part.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for part in parameters)
    return False


def custom_headers_stage(headers: Callable[[], Mapping[str, str]]) -> Stage:
    """The stage that adds the custom headers of the Config. It wraps all others, so that errors carry them as well."""

    def stage(call: Call, proceed: Handler) -> Awaitable[Reply]:
        answer = proceed(call)
        return _add_headers(headers(), answer) if isinstance(answer, Reply) else later(answer)

    async def later(answer: Awaitable[Reply]) -> Reply:
        reply = await answer
        return _add_headers(headers(), reply)

    return stage


def _add_headers(headers: Mapping[str, str], reply: Reply) -> Reply:
    if headers:
        existing = {name.lower() for name, _ in reply.headers}
        added = [(name.lower(), value) for name, value in headers.items() if name.lower() not in existing]
        reply.headers = [*reply.headers, *added]
    return reply
