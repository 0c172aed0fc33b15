"""Suggestions for misspelt names: "did you mean".

`near_names` compares names of objects. A client may create many of them, so each comparison takes time proportional to
the length of the names, and not to its square. `nearest_word` compares with a few words that the server defines.
"""

import difflib
from collections.abc import Iterable, Sequence

MAX_DIFFERENCE = 2
"""How many neighbouring characters of near names may differ."""
MIN_COMMON = 2
"""How many characters near names have in common at least."""


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """The names that differ from `name` in one place only: in at most two neighbouring characters, or in the case."""
    return sorted(each for each in names if _is_near(name.lower(), each.lower()) and each != name)


def _is_near(one: str, other: str) -> bool:
    if abs(len(one) - len(other)) > MAX_DIFFERENCE:
        return False
    start = _common_length(one, other)
    rest, other_rest = one[start:], other[start:]
    end = _common_length(rest[::-1], other_rest[::-1])
    different = max(len(rest), len(other_rest)) - end
    return different <= MAX_DIFFERENCE and start + end >= MIN_COMMON


def _common_length(one: str, other: str) -> int:
    """The length of the common prefix."""
    return next(
        (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(map(len, (one, other)))
    )


def nearest_word(word: str, words: Sequence[str]) -> str:
    """The shortest word that contains `word` in the singular, else the one that is most like it; empty if none is."""
    stem = word.lower().removesuffix("s")
    containing = sorted((each for each in words if stem in each.lower()), key=len)
    found = containing or difflib.get_close_matches(word, words, n=1)
    return found[0] if found else ""


MIN_SIMILARITY = 0.5
"""Of a name to one that is suggested for it: `audits` to `audit.level`, but not `nonsense` to `groupMappings`."""


def suggest_name(name: str, known: Iterable[str], advice: str) -> str:
    """The end of a message about a name that is unknown: the one that is most like it, and what to do otherwise."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=MIN_SIMILARITY)
    return f"did you mean {near[0]}? Otherwise {advice}" if near else advice


def did_you_mean(suggestion: str) -> str:
    """The end of a message; empty without a suggestion."""
    return f'; did you mean "{suggestion}"?' if suggestion else ""
