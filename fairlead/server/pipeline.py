"""The request pipeline: the stages before a request is served, and those after. Their order is in `build_pipeline`.

A stage before the handler returns None to go on. It raises an error, or returns a Reply, to end the request; or an
awaitable of either, if it needs to wait. A stage after it modifies the reply, or returns another one. All replies pass
these stages, error responses as well. If a request is cancelled, there is no reply, and the `aborted` stages release
what it holds.

Most requests are served from memory and never wait. So `Pipeline` runs the first step of a request directly. Only if it
waits, the request is tracked: it counts as in flight and has a deadline.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import coroutine
from typing import Any, TypeVar

from fairlead.core.call import Call, Handler, Reply, set_current_call
from fairlead.core.errors import BadRequest, HeadersTooLarge
from fairlead.server.api.errors import render_error
from fairlead.server.audit.stage import AuditStage
from fairlead.server.flow.stage import FlowStage
from fairlead.server.http.request import HEADERS_TOO_LARGE
from fairlead.server.http.response import compress
from fairlead.server.http.unsent import ClientMemoryLimiter
from fairlead.server.metrics.stage import RequestMetrics

T = TypeVar("T")
Before = Callable[[Call], Awaitable[Reply | None] | None]
After = Callable[[Call, Reply], Awaitable[Reply] | None]
Aborted = Callable[[Call], None]
StepObserver = Callable[[Call, float], None]
"""Called with a request and the seconds that one of its steps took."""

MIN_REPORTED_SECONDS = 0.002
"""Shorter steps are not reported to the event loop watchdog."""
READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of the server. `serve_public` reply to requests that need no authorization, by path below the root."""

    audit: AuditStage | None
    route: Before
    authenticate: Before
    flow: FlowStage
    serve_public: Mapping[str, Before]
    memory: ClientMemoryLimiter
    authorize: Before
    add_headers: After
    metrics: RequestMetrics


def build_pipeline(stages: Stages, serve: Handler, timeout: float, on_slow_step: StepObserver) -> "Pipeline":
    """The pipeline of the server. `serve` is the dispatcher."""
    audit, flow, memory = stages.audit, stages.flow, stages.memory
    before = _list_enabled(
        audit.begin if audit else None,  # waits while the queue of the audit log is full
        reject_malformed,
        stages.route,  # errors are deferred until after flow control, so that such requests are queued as well
        stages.authenticate,  # the same
        flow.admit,  # waits in a queue if the server is busy
        _serve_public(stages.serve_public) if stages.serve_public else None,
        memory.check_limits,
        stages.authorize,
        audit.require_auditable if audit else None,
    )
    after = _list_enabled(
        flow.finish,
        memory.reserve,
        audit.record if audit else None,  # sees the final status, but no compressed body
        compress,
        stages.add_headers,
        stages.metrics.record,
    )
    aborted = _list_enabled(flow.abort, memory.release_body, audit.record_aborted if audit else None)
    return Pipeline(before, serve, after, aborted, PipelineOptions(timeout, stages.metrics.in_flight, on_slow_step))


def _list_enabled(*stages: T | None) -> tuple[T, ...]:
    return tuple(stage for stage in stages if stage is not None)


def _serve_public(stages: Mapping[str, Before]) -> Before:
    def serve(call: Call) -> Awaitable[Reply | None] | None:
        stage = stages.get(call.target.path)
        return None if stage is None else stage(call)

    return serve


def reject_malformed(call: Call) -> None:
    if call.malformed_reason:
        if call.malformed_reason == HEADERS_TOO_LARGE:
            raise HeadersTooLarge(HEADERS_TOO_LARGE)
        raise BadRequest(call.malformed_reason)


class RequestStepTimer:
    """Times one request. `on_step`, if set, is called with the seconds of each step when it ends."""

    __slots__ = ("_clock", "_finished_seconds", "_start", "_step_start", "on_step")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._finished_seconds = 0.0
        self._start = self._step_start = clock()
        self.on_step: Callable[[float], None] | None = None

    def start_step(self) -> None:
        self._step_start = self._clock()

    def end_step(self) -> float:
        """Adds the step since `start_step` to the total, and returns its seconds."""
        seconds = self._clock() - self._step_start
        self._finished_seconds += seconds
        if self.on_step is not None:
            self.on_step(seconds)
        return seconds

    def elapsed_seconds(self) -> float:
        return self._clock() - self._start

    def busy_seconds(self) -> float:
        """The total of all steps, including the current one. Only valid within a step."""
        return self._finished_seconds + self._clock() - self._step_start


def _ignore_step(call: Call, seconds: float) -> None:
    return None


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """`timeout`, if any, ends requests that wait. Streams have started by then, and have limits of their own.

    `in_flight` counts the reads and the writes that wait. `on_slow_step` is called with the seconds that a request
    ran on the event loop between two awaits, if noticeable.
    """

    timeout: float | None
    in_flight: list[int]
    on_slow_step: StepObserver = _ignore_step
    clock: Callable[[], float] = time.perf_counter
    cpu_clock: Callable[[], float] = time.thread_time


class Pipeline:
    """Runs requests through the stages. See the module's description."""

    def __init__(
        self,
        before: Sequence[Before],
        serve: Handler,
        after: Sequence[After] = (),
        aborted: Sequence[Aborted] = (),
        options: PipelineOptions | None = None,
    ) -> None:
        self._before = before
        self._serve = serve
        self._after = after
        self._aborted = aborted
        self._options = options or PipelineOptions(None, [0, 0])
        self._deadlines = DeadlineQueue(self._options.timeout)

    async def _run(self, call: Call) -> Reply:
        try:
            for enter in self._before:
                pending = enter(call)
                if pending is not None and (response := await pending) is not None:
                    reply = response
                    break
            else:
                answer = self._serve(call)
                reply = answer if isinstance(answer, Reply) else await answer
        except Exception as error:  # noqa: BLE001 - an internal error must become a response as well
            reply = render_error(call, error)
        except BaseException:
            if not self._deadlines.take_expired():
                for release in self._aborted:
                    release(call)
                raise
            reply = render_error(call, TimeoutError())
        call.seconds = call.step_timer.elapsed_seconds()
        for leave in self._after:
            replacement = leave(call, reply)
            if replacement is not None:
                self._deadlines.discard()  # there is a response: it must not be replaced by a timeout
                reply = await replacement
        return reply

    @coroutine
    def __call__(self, call: Call) -> Generator[Any, Any, Reply]:
        """Runs the first step. This is what `await` does, but with a clock."""
        options = self._options
        call.step_timer = timer = RequestStepTimer(options.clock)
        set_current_call(call)
        steps = self._run(call)
        try:
            waits_for = steps.send(None)
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        finally:
            if (seconds := timer.end_step()) > MIN_REPORTED_SECONDS:
                options.on_slow_step(call, seconds)
        is_write = call.method not in READ_METHODS
        options.in_flight[is_write] += 1
        self._deadlines.add()
        try:
            return (yield from self._run_steps(call, timer, steps, waits_for))
        finally:
            self._deadlines.discard()
            options.in_flight[is_write] -= 1

    def _run_steps(
        self, call: Call, timer: RequestStepTimer, steps: Coroutine[Any, Any, Reply], waits_for: Any
    ) -> Generator[Any, Any, Reply]:
        """Runs the other steps, each after what it waits for. Reports those over `MIN_REPORTED_SECONDS` of CPU time."""
        options, thrown = self._options, None
        while True:
            sent: Any = None
            try:
                sent = yield waits_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001 - thrown into the coroutine, as `await` does
                thrown = error
            used_before = options.cpu_clock()
            timer.start_step()
            try:
                waits_for = steps.send(sent) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                reply: Reply = end.value
                return reply
            finally:
                # The traceback of an error refers to this frame. A reference from here would be a cycle, which keeps
                # the request and the client's connection alive until the next garbage collection.
                sent = thrown = None
                if (
                    timer.end_step() > MIN_REPORTED_SECONDS
                    and (seconds := options.cpu_clock() - used_before) > MIN_REPORTED_SECONDS
                ):
                    options.on_slow_step(call, seconds)


class DeadlineQueue:
    """The waiting requests, ordered by deadline.

    One timer serves all of them: nearly every request finishes long before its deadline, and a timer for each would
    cost more than the rest of the pipeline. All have the same timeout, so insertion order is deadline order, and the
    timer only checks the front.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._deadlines: dict[asyncio.Task[Any], tuple[float, int]] = {}
        """Of each task: its deadline, and how often it had been cancelled before."""
        self._expired: dict[asyncio.Task[Any], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self) -> None:
        """Sets the deadline of the current task."""
        if self._seconds is None:
            return
        task = _current_task()
        loop = asyncio.get_running_loop()
        due = loop.time() + self._seconds
        self._deadlines[task] = due, task.cancelling()
        if self._timer is None:
            self._timer = loop.call_at(due, self._cancel_overdue, loop)

    def take_expired(self) -> bool:
        """Whether the current task was cancelled because of its deadline, and for no other reason."""
        if not self._expired:
            return False
        task = _current_task()
        cancelled = self._expired.pop(task, None)
        return cancelled is not None and task.uncancel() <= cancelled

    def discard(self) -> None:
        """Removes the deadline of the current task."""
        if self._seconds is None:
            return
        task = _current_task()
        if self._deadlines.pop(task, None) is None and self._expired.pop(task, None) is not None:
            task.uncancel()

    def _cancel_overdue(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancels all overdue requests, and sets the timer for the next deadline."""
        self._timer = None
        now = loop.time()
        while self._deadlines:
            task, (due, cancelled) = next(iter(self._deadlines.items()))
            if due > now:
                self._timer = loop.call_at(due, self._cancel_overdue, loop)
                return
            del self._deadlines[task]
            self._expired[task] = cancelled
            task.cancel()


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a request must run in an asyncio task")
    return task
