"""Versions of charts, and the ranges that select one of them. Pure.

Charts have semantic versions. What Helm accepts as `--version` selects the same version here: nothing for the newest
release, a version, part of one (`1.2`, `1.x`), comparisons (`>=1.2 <2`), `~1.2`, `^1.2` and `1.2 - 1.4`. Pre-releases
are selected only if the range names one. tests/controllers/helm/test_versions.py compares with Helm itself, which
differs for `^*` and `<=*`: here, these are all releases.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

MAX_VERSION_LENGTH = 256

_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_SUFFIX = rf"(?:-(?P<prerelease>{_IDENTIFIERS}))?(?:\+{_IDENTIFIERS})?"
_version = re.compile(rf"v?(?P<numbers>\d{{1,18}}(?:\.\d{{1,18}}){{0,2}}){_SUFFIX}", re.ASCII)
_strict_version = re.compile(rf"\d{{1,18}}(?:\.\d{{1,18}}){{2}}{_SUFFIX}", re.ASCII)

_PART = r"(?:\d{1,18}|[xX*])"
_PARTIAL = rf"v?(?P<parts>{_PART}(?:\.{_PART}){{0,2}}){_SUFFIX}"
_UNNAMED_PARTIAL = re.sub(r"\?P<\w+>", "?:", _PARTIAL)
_term = re.compile(rf"\s*(?P<operator>[<>]=?|=[<>]?|~>?|\^|)\s*{_PARTIAL}(?=\s|$)", re.ASCII)
_hyphen_range = re.compile(rf"({_UNNAMED_PARTIAL})\s+-\s+({_UNNAMED_PARTIAL})", re.ASCII)

Core = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """`core` has three numbers. Versions that differ only in their build metadata are equal."""

    core: Core
    prerelease: str = ""
    order: tuple[object, ...] = field(init=False, repr=False, compare=False)
    """A key that sorts versions by precedence: a pre-release comes before its release, and numbers in it come before
    words. Built once: each term of a range compares it."""

    def __post_init__(self) -> None:
        identifiers = tuple(
            (0, int(each), "") if each.isdigit() else (1, 0, each) for each in self.prerelease.split(".") if each
        )
        order = (*self.core, (0, identifiers) if self.prerelease else (1, ()))
        object.__setattr__(self, "order", order)


def parse_version(text: str) -> Version | None:
    """As leniently as Helm reads versions: `v1` is 1.0.0."""
    found = _version.fullmatch(text) if len(text) <= MAX_VERSION_LENGTH else None
    if found is None:
        return None
    numbers = [int(each) for each in found["numbers"].split(".")]
    return Version((*numbers, *(0,) * (3 - len(numbers))), found["prerelease"] or "")


def is_strict_version(text: str) -> bool:
    """Whether a text is a complete semantic version, as tags of charts in registries are."""
    return len(text) <= MAX_VERSION_LENGTH and bool(_strict_version.fullmatch(text))


@dataclass(frozen=True, slots=True)
class VersionRange:
    terms: Sequence[Callable[[Version], bool]]
    has_prerelease: bool
    """Whether one of the terms names a pre-release. Otherwise, none is selected."""

    def __contains__(self, version: Version) -> bool:
        if version.prerelease and not self.has_prerelease:
            return False
        return all(is_match(version) for is_match in self.terms)


def parse_range(text: str) -> VersionRange | None:
    """The range of versions that a text stands for; an empty one stands for all releases. None if it is not valid."""
    text = _hyphen_range.sub(r">=\1 <=\2", text.strip()) or "*"
    terms = []
    has_prerelease = False
    position = 0
    while position < len(text):
        found = _term.match(text, position)
        if found is None:
            return None
        numbers = _concrete_numbers(found["parts"])
        prerelease = found["prerelease"] or ""
        terms.append(_build_term(found["operator"], numbers, prerelease))
        has_prerelease = has_prerelease or bool(prerelease)
        position = found.end()
    return VersionRange(terms, has_prerelease)


def _concrete_numbers(parts: str) -> Core:
    """The numbers before the first wildcard: (1, 2) of `1.2`, `1.2.x` and `1.2.*`."""
    numbers = []
    for each in parts.split("."):
        if not each.isdigit():
            break
        numbers.append(int(each))
    return tuple(numbers)


def _build_term(operator: str, given: Core, prerelease: str) -> Callable[[Version], bool]:
    """`given` are the numbers of the range, three at most."""
    bound = Version((*given, *(0,) * (3 - len(given))), prerelease)
    is_complete = len(given) == 3
    match operator:
        case "" | "=" if is_complete:
            return lambda version: version.order == bound.order
        case "" | "=" | "~" | "~>":
            prefix = _tilde_prefix(given)
        case "^":
            prefix = _caret_prefix(given)
        case ">" if given and not is_complete:
            return lambda version: version.core[: len(given)] > given
        case ">":
            return lambda version: version.order > bound.order
        case "<":
            return lambda version: version.order < bound.order
        case ">=" | "=>":
            return lambda version: version.order >= bound.order
        case _ if is_complete:  # <=
            return lambda version: version.order <= bound.order
        case _:
            return lambda version: version.core[: len(given)] <= given
    return lambda version: version.order >= bound.order and version.core[: len(prefix)] == prefix


def _tilde_prefix(given: Core) -> Core:
    """The numbers that must not change: the major and the minor one, as far as they are given."""
    return () if given == (0, 0, 0) else given[:2]


def _caret_prefix(given: Core) -> Core:
    """Up to the first number that is not zero."""
    for length, number in enumerate(given, 1):
        if number:
            return given[:length]
    return given


def find_best(versions: Iterable[str], requested: str) -> str | None:
    """The version that is written exactly as requested, otherwise the newest in the range. None if there is none."""
    available = list(versions)
    if requested and requested in available:
        return requested
    allowed = parse_range(requested)
    if allowed is None:
        return None
    parsed = ((text, parse_version(text)) for text in available)
    found = [(version.order, text) for text, version in parsed if version is not None and version in allowed]
    return max(found, key=lambda each: each[0])[1] if found else None
