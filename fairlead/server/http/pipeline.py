"""The stages that every request passes, in order, and the loop that strings them together.

A stage takes the call and the rest of the pipeline. It answers itself, or it goes on and may look at the reply. What
comes back from the rest is a Reply, or something that will become one and is to be awaited. Most requests are answered
from memory at once, and for these no stage makes a coroutine: who looks at replies does so now if there is one, and
otherwise hands on a coroutine that looks at it later.

`fairlead/app/http.py` names the stages: measured (the metrics), custom headers, compressed, recorded (the audit
log), failures, deadline, routed, authenticated, flow control, authorized, accountable (the audit log again), and Serve
at the end.
"""

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Mapping, Sequence

from fairlead.core.call import Call, Reply
from fairlead.core.concurrency import COMPUTE

Proceed = Callable[[Call], Awaitable[Reply]]
Stage = Callable[[Call, Proceed], Awaitable[Reply]]


def pipeline(stages: Sequence[Stage], serve: Proceed) -> Proceed:
    """One function that runs the stages from first to last, and `serve` in the end."""
    handler = serve
    for stage in reversed(stages):
        handler = _followed(stage, handler)
    return handler


def _followed(stage: Stage, proceed: Proceed) -> Proceed:
    def handler(call: Call) -> Awaitable[Reply]:
        return stage(call, proceed)

    return handler


# DOC-MERGED server/deadline
# How long a request may take: the stage that gives up what takes longer.
#
# There is one timer for all requests, not one for each: nearly every request is answered long before its time, and a
# timer that is set and called off again costs more than all the rest of this stage. All get the same time, so whoever
# came first is due first, and the timer only ever looks at the front of the line. What is answered at once is never in
# line at all.


def deadline(seconds: float) -> Stage:
    """The stage that bounds how long a request may take. Streams have begun by then and end by their own rules."""
    return _Line(seconds).stage


class _Line:
    """The requests under way, in the order in which they are due."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[asyncio.Task[object], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def stage(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        answer = proceed(call)
        return answer if isinstance(answer, Reply) else self._in_time(answer)

    async def _in_time(self, answer: Awaitable[Reply]) -> Reply:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("requests are tasks of the event loop")
        loop = asyncio.get_running_loop()
        self._due[task] = due = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(due, self._look, loop)
        cancelled = task.cancelling()
        try:
            return await answer
        except asyncio.CancelledError:
            # It was us if the task is no longer in line; somebody else may have given it up besides.
            if task not in self._due and task.cancelling() - 1 <= cancelled:
                raise TimeoutError from None
            raise
        finally:
            if self._due.pop(task, None) is None:
                task.uncancel()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Gives up whatever is due, and comes again when the next one is."""
        self._timer = None
        now = loop.time()
        while self._due:
            task, due = next(iter(self._due.items()))
            if due > now:
                self._timer = loop.call_at(due, self._look, loop)
                return
            del self._due[task]
            task.cancel()


# DOC-MERGED server/compress
# Large answers are sent compressed to those who ask for it.


THRESHOLD = 128 * 1024
LEVEL = 1
"""The fastest: on the networks this serves, time is dearer than bytes."""


def compressed(call: Call, proceed: Proceed) -> Awaitable[Reply]:
    """The stage that compresses. It is done in a thread, which lets other requests go on meanwhile."""
    answer = proceed(call)
    if isinstance(answer, Reply) and len(answer.body) <= THRESHOLD:
        return answer
    return _packed(call, answer)


async def _packed(call: Call, answer: Awaitable[Reply]) -> Reply:
    reply = await answer
    if len(reply.body) > THRESHOLD and accepts_gzip(call.headers.get("accept-encoding", "")):
        reply.body = await COMPUTE.run(len(reply.body), gzip.compress, reply.body, LEVEL)
        reply.headers += [("content-encoding", "gzip"), ("vary", "Accept-Encoding")]
    return reply


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header names gzip and does not rule it out with a quality of zero."""
    for entry in header.split(","):
        coding, *parameters = (part.strip().lower() for part in entry.split(";"))
        if coding == "gzip":
            return not any(part.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for part in parameters)
    return False


# DOC-MERGED server/custom_headers
# Headers of the installation's own on every answer, as the Config has them: for browsers and proxies.


def custom_headers(headers: Callable[[], Mapping[str, str]]) -> Stage:
    """The stage that adds them. It stands outermost, so that refusals have them, too."""

    def stage(call: Call, proceed: Proceed) -> Awaitable[Reply]:
        answer = proceed(call)
        return _with(headers(), answer) if isinstance(answer, Reply) else later(answer)

    async def later(answer: Awaitable[Reply]) -> Reply:
        reply = await answer
        return _with(headers(), reply)

    return stage


def _with(wanted: Mapping[str, str], reply: Reply) -> Reply:
    if wanted:
        said = {name.lower() for name, _ in reply.headers}
        added = [(name.lower(), value) for name, value in wanted.items() if name.lower() not in said]
        reply.headers = [*reply.headers, *added]
    return reply
