"""Versions of templates and Apps: three numbers such as `1.4.0`, and patterns such as `1.4.x` that request one."""

import re
from collections.abc import Iterable

Version = tuple[int, int, int]
VersionPattern = tuple[int | None, int | None, int | None]
"""A version with None for each `x`."""

NEWEST_PATTERN = "x.x.x"
"""The pattern for the newest version."""

_PART = "([0-9]{1,9})"
_version = re.compile(rf"{_PART}\.{_PART}\.{_PART}", re.ASCII)
_WILD = "([0-9]{1,9}|x)"
_pattern = re.compile(rf"{_WILD}\.{_WILD}\.{_WILD}", re.ASCII)


def parse_version(text: str) -> Version | None:
    """The three numbers, or None if the text is not a version."""
    found = _version.fullmatch(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def parse_pattern(text: str) -> VersionPattern | None:
    """The three parts, or None if the text is not a pattern. Only a lower case `x` is a wildcard."""
    found = _pattern.fullmatch(text)
    return (_parse_part(found[1]), _parse_part(found[2]), _parse_part(found[3])) if found else None


def _parse_part(text: str) -> int | None:
    return None if text == "x" else int(text)


def is_match(pattern: VersionPattern, version: Version) -> bool:
    return all(wanted is None or wanted == part for wanted, part in zip(pattern, version, strict=True))


def best_match(pattern: VersionPattern, texts: Iterable[str]) -> str | None:
    """The newest version that matches the pattern, as written. Invalid versions are ignored."""
    found = [(version, text) for text in texts if (version := parse_version(text)) and is_match(pattern, version)]
    return max(found)[1] if found else None


def newest_version(texts: Iterable[str]) -> str | None:
    return best_match((None, None, None), texts)
