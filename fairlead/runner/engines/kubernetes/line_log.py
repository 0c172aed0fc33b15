"""Copies output into the log of a task, line by line, with secrets masked."""

from collections.abc import Iterable

from fairlead.runner.engines.contract import TaskContext
from fairlead.runner.engines.masking import Masker, StreamMasker

MAX_LINE_BYTES = 64 * 1024
"""A longer line is cut in pieces: it would fill the memory."""


class LineLog:
    def __init__(self, task: TaskContext, secrets: Iterable[str]) -> None:
        self._task = task
        self._masking = StreamMasker(Masker(secrets))
        self._pending = b""
        self.last_line = ""
        """The last one that was not empty."""

    def feed(self, data: bytes) -> None:
        self._add(self._masking.feed(data))
        if len(self._pending) > MAX_LINE_BYTES:
            self._end_line()

    def end(self) -> None:
        """Writes a line that has no end."""
        self._add(self._masking.end())
        self._end_line()

    def _add(self, data: bytes) -> None:
        """All lines at once: a Pod may print thousands of them in each chunk, and each write opens a file."""
        lines, newline, self._pending = (self._pending + data).rpartition(b"\n")
        if newline:
            self._write(lines)

    def _end_line(self) -> None:
        line, self._pending = self._pending, b""
        if line:
            self._write(line)

    def _write(self, lines: bytes) -> None:
        self._task.log(lines + b"\n")
        last = lines.rstrip().rpartition(b"\n")[2]
        self.last_line = last.decode(errors="replace").strip() or self.last_line
