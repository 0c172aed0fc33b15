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


MAX_COMPARISONS = 64
"""Of the end of a chunk with a secret. After that, it is read byte by byte, which takes a time that is known."""


class SecretValue:
    """Finds a value, in a time that does not depend on how often its parts are repeated in it, or in what is printed:
    who prints may have chosen both."""

    def __init__(self, value: bytes) -> None:
        self.value = value
        self._borders: list[int] = []

    def find(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Where it is. Places that overlap by a multiple of its period are one."""
        start = data.find(self.value)
        while start >= 0:
            end = self._find_end(data, start)
            yield start, end
            start = data.find(self.value, end - len(self.value) + 1)

    def _find_end(self, data: bytes, start: int) -> int:
        """Of the values from here on that each begin within the one before, after one period."""
        end = start + len(self.value)
        period = len(self.value) - self._list_borders()[-1]
        size = period if period < len(self.value) else 0
        while size >= period:
            is_repeated = end + size <= len(data) and data[end : end + size] == data[end - period : end - period + size]
            end += size if is_repeated else 0
            size = 2 * size if is_repeated else size // period // 2 * period
        return end

    def find_begin(self, data: bytes, limit: int) -> int:
        """The first position before the limit from which on all that is left is the begin of this value; the limit if
        there is none."""
        value = self.value
        position = data.find(value[:1], max(0, len(data) - len(value) + 1))
        comparisons = 0
        while 0 <= position < limit:
            if value.startswith(data[position : position + SHORTEST]):
                if value.startswith(data[position:]):
                    return position
                comparisons += 1
                if comparisons > MAX_COMPARISONS:
                    return min(limit, self._read_begin(data, position))
            position = data.find(value[:1], position + 1)
        return limit

    def _read_begin(self, data: bytes, position: int) -> int:
        """As `find_begin`, from this position on. What is left is shorter than the value."""
        borders = self._list_borders()
        length = 0
        for byte in data[position:]:
            while length and byte != self.value[length]:
                length = borders[length - 1]
            if byte == self.value[length]:
                length += 1
        return len(data) - length

    def _list_borders(self) -> list[int]:
        """For each begin of the value, how long the longest shorter one is that it ends with (Knuth, Morris, Pratt)."""
        if not self._borders:
            value = self.value
            borders = [0]
            length = 0
            for byte in value[1:]:
                while length and byte != value[length]:
                    length = borders[length - 1]
                if byte == value[length]:
                    length += 1
                borders.append(length)
            self._borders = borders
        return self._borders


class Masker:
    """Replaces the values, and each line of those with several lines, also as they are written in JSON."""

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part.strip() for value in secrets for part in (value, *value.splitlines())}
        forms = {form.encode(errors="replace") for part in parts for form in (part, json.dumps(part)[1:-1])}
        values = sorted((form for form in forms if len(form) >= SHORTEST), key=len, reverse=True)
        self._values = [SecretValue(each) for each in values]

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
        for start, end in sorted(place for value in self._values for place in value.find(data)):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged

    def find_begin(self, data: bytes) -> int:
        """The first position from which on all that is left is the begin of a longer secret; the end if there is
        none."""
        first = len(data)
        for value in self._values:
            first = value.find_begin(data, first)
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
