"""Versions of templates: three numbers such as `1.4.0`, and patterns of them in which a part may be `x`.

Pure. Templates are checked with it, admission and the instance controller find with it what an instance is made from.
"""

import re
from collections.abc import Iterable

Version = tuple[int, int, int]
Pattern = tuple[int | None, int | None, int | None]
"""A version with None for each `x`."""

NEWEST = "x.x.x"
"""The pattern of whoever always wants the newest."""

_PART = "([0-9]{1,9})"
_version = re.compile(rf"{_PART}\.{_PART}\.{_PART}", re.ASCII)
_WILD = "([0-9]{1,9}|x)"
_pattern = re.compile(rf"{_WILD}\.{_WILD}\.{_WILD}", re.ASCII)


def parse_version(text: str) -> Version | None:
    """The three numbers, or None if the text is no version."""
    found = _version.fullmatch(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def parse_pattern(text: str) -> Pattern | None:
    """The same for a pattern. Only a lower case `x` stands for any number."""
    found = _pattern.fullmatch(text)
    return (_part(found[1]), _part(found[2]), _part(found[3])) if found else None


def _part(text: str) -> int | None:
    return None if text == "x" else int(text)


def matches(pattern: Pattern, version: Version) -> bool:
    return all(wanted is None or wanted == part for wanted, part in zip(pattern, version, strict=True))


def best_match(pattern: Pattern, texts: Iterable[str]) -> str | None:
    """The newest of these versions that fits the pattern, as it is written there. What is no version fits nothing."""
    found = [(version, text) for text in texts if (version := parse_version(text)) and matches(pattern, version)]
    return max(found)[1] if found else None


def newest(texts: Iterable[str]) -> str | None:
    return best_match((None, None, None), texts)
