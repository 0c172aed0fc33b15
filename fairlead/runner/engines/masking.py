"""Masks secrets in the output of programs, and writes it to logs.

What is printed arrives in chunks, and a secret may be in two of them. So the end of a chunk waits for the next one, as
long as it may be the begin of a secret.
"""

import json
from collections.abc import Iterable, Iterator

from fairlead.runner.engines.contract import TaskContext

MASK = b"********"
SHORTEST = 4
"""Shorter values would mask ordinary words, and are no secrets."""


class Masker:
    """Replaces the values, and each line of those with several lines, also as they are written in JSON."""

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part.strip() for value in secrets for part in (value, *value.splitlines())}
        forms = {form.encode(errors="replace") for part in parts for form in (part, json.dumps(part)[1:-1])}
        self._values = sorted((form for form in forms if len(form) >= SHORTEST), key=len, reverse=True)

    def mask(self, data: bytes) -> bytes:
        """For what is complete."""
        parts: list[bytes] = []
        position = 0
        for start, end in self.find_secrets(data):
            parts += (data[position:start], MASK)
            position = end
        return b"".join((*parts, data[position:]))

    def find_secrets(self, data: bytes, masked: int = 0) -> list[tuple[int, int]]:
        """Where they are. Those that overlap are one. The first `masked` bytes count as a part of one."""
        merged = [(0, masked)] if masked else []
        for start, end in sorted(self._find_values(data)):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged

    def _find_values(self, data: bytes) -> Iterator[tuple[int, int]]:
        for value in self._values:
            start = data.find(value)
            while start >= 0:
                yield start, start + len(value)
                start = data.find(value, start + 1)

    def find_begin(self, data: bytes) -> int:
        """The first position from which on all that is left is the begin of a longer secret; the end if there is
        none."""
        first = len(data)
        for value in self._values:
            position = data.find(value[:1], max(0, len(data) - len(value) + 1))
            while 0 <= position < first:
                if value.startswith(data[position : position + SHORTEST]) and value.startswith(data[position:]):
                    first = position
                else:
                    position = data.find(value[:1], position + 1)
        return first


class StreamMasker:
    """Masks a stream of chunks. What waits is shorter than the longest secret."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = b""
        self._masked = 0
        """How much of what waits belongs to a secret that was passed on as masked: another one may begin within it."""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on by now."""
        data = self._held + data
        return self._pass_on(data, self._masker.find_begin(data))

    def end(self) -> bytes:
        """What is left at the end of the stream."""
        return self._pass_on(self._held, len(self._held))

    def change(self, masker: Masker) -> None:
        """Masks other secrets from now on."""
        self._masker = masker

    def _pass_on(self, data: bytes, stop: int) -> bytes:
        parts: list[bytes] = []
        position = 0
        for start, end in self._masker.find_secrets(data, self._masked):
            is_passed_on = start == 0 and self._masked > 0
            if start >= stop and not is_passed_on:
                break
            parts.append(data[position:start])
            if not is_passed_on:
                parts.append(MASK)
            position = end
        parts.append(data[position:stop])
        self._held = data[stop:]
        self._masked = max(0, position - stop)
        return b"".join(parts)


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
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self._write(line)

    def _end_line(self) -> None:
        line, self._pending = self._pending, b""
        if line:
            self._write(line)

    def _write(self, line: bytes) -> None:
        self._task.log(line + b"\n")
        self.last_line = line.decode(errors="replace").strip() or self.last_line
