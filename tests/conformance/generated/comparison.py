"""Where two plays of a life differ: the first difference of each answer, as a path with both values.

Answers are normalized, so what is compared has to be equal, with one exception: where the reference fails itself (a
status of 500), any rejection (400 to 499) is as good. Other exceptions are rules in `allowed.json`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

Json = Any
Answer = dict[str, Json]

ALLOWED = Path(__file__).with_name("allowed.json")
ABSENT = "<absent>"
_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference: the number of the answer, the path in it, what the reference has there and what we have."""

    step: int
    path: str
    expected: Json
    got: Json

    def __str__(self) -> str:
        return (
            f"answer {self.step} {self.path}\n    expected {_shorten(self.expected)}\n    got      {_shorten(self.got)}"
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """An allowed difference: patterns of the kinds and of the path, of both values as JSON, and the mechanism."""

    name: str
    kind: str
    path: str
    expected: str
    got: str
    why: str

    def covers(self, kind: str, difference: Difference) -> bool:
        pairs = (
            (self.kind, kind),
            (self.path, difference.path),
            (self.expected, json.dumps(difference.expected, sort_keys=True)),
            (self.got, json.dumps(difference.got, sort_keys=True)),
        )
        return all(re.search(pattern, text) for pattern, text in pairs)


@cache
def allowed_rules() -> tuple[Rule, ...]:
    rules = json.loads(ALLOWED.read_text(encoding="utf-8"))
    return tuple(Rule(**{"kind": "", "path": "", "expected": "", "got": "", **rule}) for rule in rules)


def compare(expected: Sequence[Answer], got: Sequence[Answer]) -> Iterator[Difference]:
    """Every difference, in the order of the answers."""
    if len(expected) != len(got):
        yield Difference(0, "number of answers", len(expected), len(got))
        return
    for step, (one, other) in enumerate(zip(expected, got, strict=True), start=1):
        for path, left, right in _answer_differences(one, other):
            yield Difference(step, path, left, right)


def find_difference(
    kind: str, alternatives: Sequence[Sequence[Answer]], got: Sequence[Answer], rules: Sequence[Rule]
) -> Difference | None:
    """The first difference that no rule allows, or None if the answers are those of one of the alternatives."""
    found = None
    for expected in alternatives:
        differences = (each for each in compare(expected, got) if not any(rule.covers(kind, each) for rule in rules))
        first = next(differences, None)
        if first is None:
            return None
        if found is None or first.step > found.step:
            found = first
    return found


def _answer_differences(expected: Answer, got: Answer) -> Iterator[tuple[str, Json, Json]]:
    one, other = expected.get("status", 0), got.get("status", 0)
    if one >= _SERVER_ERROR and 400 <= other < _SERVER_ERROR:
        return
    if one != other:
        reason = (got.get("body") or {}).get("reason") if isinstance(got.get("body"), dict) else None
        yield "status", one, f"{other} {reason}" if reason else other
        return
    yield from _tree_differences(expected, got, "")


def _tree_differences(expected: Json, got: Json, path: str) -> Iterator[tuple[str, Json, Json]]:
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in sorted({*expected, *got}):
            at = f"{path}.{key}" if path else key
            yield from _tree_differences(expected.get(key, ABSENT), got.get(key, ABSENT), at)
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, (one, other) in enumerate(zip(expected, got, strict=True)):
            yield from _tree_differences(one, other, f"{path}[{index}]")
    elif type(expected) is not type(got) or expected != got:
        yield path, expected, got


def _shorten(value: Json, limit: int = 1500) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]}…"
