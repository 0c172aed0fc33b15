"""A task under way, as engines see it: named steps with deadlines, and a log.

The journal has the step before the engine acts in it. A step that takes too long is cancelled and fails the task with
its name. A task that is cancelled because the process ends is not marked: the next process goes on with it.

A log has one JSON object per line, `{"time", "level", "message"}`. Tools write what they like: partial lines, progress
that overwrites itself with carriage returns, bytes that are not UTF-8, lines without end. `OutputLines` makes messages
of that, of limited length. Of progress, a message per second is kept.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from uuid import uuid4

from fairlead.core import json
from fairlead.core.clock import Clock, timestamp
from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.masking import Masker, StreamMasker
from fairlead.runner.task_log import TaskLog

INFO, ERROR = "info", "error"
MAX_LINE_BYTES = 16 * 1024
"""A longer line becomes several messages."""
PROGRESS_SECONDS = 1.0


class OutputLines:
    """Splits raw output into messages. `now` is a monotonic time in seconds."""

    def __init__(self) -> None:
        self._pending = b""
        self._masking = StreamMasker(Masker(()))
        self._next_progress = 0.0

    def mask(self, secrets: Iterable[str]) -> None:
        """Masks these values from now on."""
        self.change_masker(Masker(secrets))

    def change_masker(self, masker: Masker) -> None:
        self._masking.change(masker)

    def feed(self, data: bytes, now: float) -> Iterator[str]:
        *complete, self._pending = (self._pending + self._masking.feed(data)).split(b"\n")
        for line in complete:
            if b"\r" in line or len(line) > MAX_LINE_BYTES:
                yield from self._decode_pieces(_visible_part(line.rstrip(b"\r")))
            else:
                yield line.decode(errors="replace")
        if b"\r" in self._pending[:-1]:
            yield from self._note_progress(now)
        if len(self._pending) > MAX_LINE_BYTES:
            yield from self._cut_pending()

    def end(self) -> Iterator[str]:
        """What is left without a newline."""
        self._pending += self._masking.end()
        yield from self.interrupt()

    def interrupt(self) -> Iterator[str]:
        """What there is of a line, before a message that comes in between. What may be the begin of a secret waits for
        the rest of it."""
        *complete, pending = self._pending.rstrip(b"\r").split(b"\n")
        self._pending = b""
        for line in (*complete, *([pending] if pending else [])):
            yield from self._decode_pieces(_visible_part(line))

    def _note_progress(self, now: float) -> Iterator[str]:
        """Of text that is overwritten, the last state is kept, and passed on once in a while."""
        before, _, current = self._pending[:-1].rpartition(b"\r")
        overwritten, current = _visible_part(before), current + self._pending[-1:]
        self._pending = overwritten + b"\r" + current
        if now >= self._next_progress and overwritten:
            self._next_progress, self._pending = now + PROGRESS_SECONDS, current
            yield from self._decode_pieces(overwritten)

    def _cut_pending(self) -> Iterator[str]:
        *pieces, self._pending = _cut(self._pending)
        yield from (piece.decode(errors="replace") for piece in pieces)

    def _decode_pieces(self, line: bytes) -> Iterator[str]:
        yield from (piece.decode(errors="replace") for piece in _cut(line))


def _cut(line: bytes) -> Iterator[bytes]:
    """Pieces of limited length, at least one."""
    while len(line) > MAX_LINE_BYTES:
        cut = _find_cut(line)
        yield line[:cut]
        line = line[cut:]
    yield line


def _visible_part(line: bytes) -> bytes:
    """What a terminal would show of it in the end."""
    return line.rpartition(b"\r")[2]


def _find_cut(line: bytes) -> int:
    """Where to cut a line, which is not within a character."""
    cut = MAX_LINE_BYTES
    while cut > MAX_LINE_BYTES - 4 and line[cut] & 0xC0 == 0x80:
        cut -= 1
    return cut


class MessageLog:
    """Writes messages of the runner, and the output of tools, to the log of a task."""

    def __init__(self, log: TaskLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._output = OutputLines()
        self._masker = Masker(())
        log.end_line()  # an earlier process may have been killed while it wrote

    def mask(self, secrets: Iterable[str]) -> None:
        """Masks these values in what engines log, whether they mask them or not."""
        self._masker = Masker(secrets)
        self._output.change_masker(self._masker)

    def conceal(self, text: str) -> str:
        """A text for others, such as the message of an error, which may quote what a tool has said: masked like the
        log."""
        return self._masker.mask(text.encode(errors="replace")).decode(errors="replace")

    def log(self, data: bytes) -> None:
        """Appends output of tools, for engines."""
        self._append([*self._output.feed(data, self._clock.monotonic())], INFO)

    def log_message(self, message: str, level: str = INFO) -> None:
        """Appends a line of the runner itself."""
        self._append([*self._output.interrupt()], INFO)
        self._append([message.encode(errors="replace").decode()], level)

    def end_output(self) -> None:
        """Engines log nothing any more: nothing follows that could be the rest of a secret."""
        self._append([*self._output.end()], INFO)

    def _append(self, messages: list[str], level: str) -> None:
        if messages:
            described = json.encode({"time": timestamp(self._clock.now()), "level": level})
            begin = described.removesuffix(b"}") + b',"message":'
            self._log.append(b"".join([begin + json.encode(each) + b"}\n" for each in messages]))


def new_task_id() -> str:
    return uuid4().hex


class RunningTask(MessageLog):
    """Implements `TaskContext`. `on_step` is called before each step."""

    def __init__(self, task_id: str, log: TaskLog, clock: Clock, on_step: Callable[[str], None]) -> None:
        super().__init__(log, clock)
        self._task_id = task_id
        self._on_step = on_step
        self._is_cancelled = False
        self._expired_steps = 0
        self._calls: dict[str, Callable[[], None]] = {}

    @property
    def task_id(self) -> str:
        return self._task_id

    @property
    def is_cancelled(self) -> bool:
        return self._is_cancelled or self._expired_steps > 0

    def mark_cancelled(self) -> None:
        """Another task takes the place of this one. To be called before the cancellation."""
        self._is_cancelled = True

    def note_wait(self, what: str) -> None:
        """The task waits for others; this is not a step, and has no deadline."""
        self.log_message(what)
        self._on_step(what)

    def call_at(self, step: str, action: Callable[[], None]) -> None:
        """Calls a function when the engine has come to a step."""
        self._calls[step] = action

    @asynccontextmanager
    async def step(self, name: str, seconds: float) -> AsyncIterator[None]:
        if name in self._calls:
            self._calls[name]()
        self._on_step(name)
        began = self._clock.monotonic()
        self.log_message(f"step {name}")
        async with self._deadline(name, seconds):
            yield
        self.log_message(f"step {name} took {self._clock.monotonic() - began:.1f} s")

    @asynccontextmanager
    async def _deadline(self, name: str, seconds: float) -> AsyncIterator[None]:
        """Like `asyncio.timeout`, but `is_cancelled` is true before the block sees the cancellation."""
        task = asyncio.current_task()
        assert task is not None
        cancelling, has_expired = task.cancelling(), False

        def expire() -> None:
            nonlocal has_expired
            has_expired = True
            self._expired_steps += 1
            task.cancel()

        timer = asyncio.get_running_loop().call_later(seconds, expire)
        try:
            yield
        except asyncio.CancelledError:
            if has_expired and task.uncancel() <= cancelling:
                message = f"step {name} did not end within {seconds:g} s"
                raise EngineError(Reason.STEP_TIMED_OUT, message, name) from None
            raise
        except EngineError as error:
            error.step = error.step or name
            raise
        finally:
            timer.cancel()
            self._expired_steps -= has_expired
