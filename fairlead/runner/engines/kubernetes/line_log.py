"""Copies output into the log of a task, line by line, with secrets masked."""

from collections.abc import Iterable

from fairlead.runner.engines.contract import TaskContext
from fairlead.runner.engines.masking import Masker

MAX_LINE_BYTES = 64 * 1024
"""A longer line is cut in pieces: it would fill the memory."""


class LineLog:
    def __init__(self, task: TaskContext, secrets: Iterable[str]) -> None:
        self._task = task
        self._masker = Masker(secrets)
        self._pending = b""
        self.last_line = ""
        """The last one that was not empty."""

    def feed(self, data: bytes) -> None:
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self._write(line)
        if len(self._pending) > MAX_LINE_BYTES:
            self.end()

    def end(self) -> None:
        """Writes a line that has no end."""
        line, self._pending = self._pending, b""
        if line:
            self._write(line)

    def _write(self, line: bytes) -> None:
        masked = self._masker.mask(line)
        self._task.log(masked + b"\n")
        self.last_line = masked.decode(errors="replace").strip() or self.last_line
