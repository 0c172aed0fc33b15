"""Lines of the log of a task: JSON objects with a message. Messages of other runners may be plain lines.

`step NAME` says that a step begins, and `step NAME took 1.5 s` that it has ended.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.core import json
from fairlead.core.body_errors import Malformed

_STEP = re.compile(r"step ([A-Z]\w*)(?: took (\d+(?:\.\d+)?) s)?")
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()][0-9A-Z]|[=>])")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A message without colours. `seconds` is None unless it is the end of a step."""

    message: str
    step: str = ""
    seconds: float | None = None


class LineSplitter:
    """Assembles the lines of a log from chunks, which may end anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[LogLine]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            yield parse_line(line)

    def finish(self) -> Iterator[LogLine]:
        """The last line, if it has no end."""
        rest, self._rest = self._rest, b""
        if rest:
            yield parse_line(rest)


def parse_line(line: bytes) -> LogLine:
    message = _ESCAPE_SEQUENCE.sub("", _read_message(line)).rstrip()
    message = message.rpartition("\r")[2]  # what a terminal would show of progress
    match = _STEP.fullmatch(message)
    if match is None:
        return LogLine(message)
    return LogLine(message, match[1], float(match[2]) if match[2] else None)


def _read_message(line: bytes) -> str:
    try:
        entry = json.decode(line) if line.startswith(b"{") else None
    except Malformed:
        entry = None
    message = entry.get("message") if isinstance(entry, dict) else None
    return message if isinstance(message, str) else line.decode(errors="replace")
