"""Masks secrets in logs. Works on whole lines, so a secret cannot hide behind the end of a block of bytes."""

from collections.abc import Iterable

MASK = b"********"
SHORTEST = 4
"""Shorter values would mask ordinary words, and are no secrets."""


class Masker:
    """Replaces the values, and each line of those with several lines."""

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part.strip().encode() for value in secrets for part in (value, *value.splitlines())}
        self._values = sorted((part for part in parts if len(part) >= SHORTEST), key=len, reverse=True)

    def mask(self, line: bytes) -> bytes:
        for value in self._values:
            line = line.replace(value, MASK)
        return line
