"""Measures how work grows with its input: four times as much input must take about four times as much work.

It counts calls of functions in Python and C, lines of Python, and comparisons and hashes of `Word`s. Only copies of
large values are measured as time, as they cannot be counted.
"""

import sys
from collections.abc import Callable
from time import thread_time
from types import FrameType
from typing import Any

FACTOR = 4
LIMIT = 6
"""For four times the input: enough for sorting, not for quadratic work."""


class Word(str):
    """A text that counts how often it is compared or hashed."""

    __slots__ = ()
    uses = 0

    def __eq__(self, other: object) -> bool:
        Word.uses += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        Word.uses += 1
        return str.__hash__(self)


def build_words(begin: str, count: int) -> list[str]:
    return [Word(f"{begin}{index}") for index in range(count)]


def count_work(function: Callable[[], object]) -> int:
    """Returns how much work a function does."""
    count = 0

    def lines(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return lines

    def calls(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before, tracer, profiler = Word.uses, sys.gettrace(), sys.getprofile()
    sys.settrace(lines)
    sys.setprofile(calls)
    try:
        function()
    finally:
        sys.setprofile(profiler)
        sys.settrace(tracer)
    return count + Word.uses - before


def assert_linear(make: Callable[[int], Callable[[], object]], size: int = 200) -> None:
    """`make` returns the function to measure for an input of a size."""
    small, large = count_work(make(size)), count_work(make(FACTOR * size))
    assert large <= LIMIT * small, f"{FACTOR} times the input took {large / small:.1f} times the work: {small}, {large}"


def cpu_time(function: Callable[[], object]) -> float:
    """Returns the least CPU time of three runs, for work in C that cannot be counted. Use wide margins."""

    def once() -> float:
        begin = thread_time()
        function()
        return thread_time() - begin

    return min(once() for _ in range(3))
