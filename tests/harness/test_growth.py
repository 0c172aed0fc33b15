"""tests.harness.growth: linear work passes, quadratic work fails."""

from collections.abc import Callable

import pytest

from tests.harness.growth import assert_linear, build_words


def test_linear_work_and_sorting_pass() -> None:
    assert_linear(lambda size: lambda: set(build_words("a", size)))
    assert_linear(lambda size: lambda: sorted(range(size), key=lambda each: -each))


def scan(size: int) -> Callable[[], object]:
    """A membership test in C inside a loop, where only comparisons can be counted."""
    names, others = tuple(build_words("a", size)), build_words("b", size)
    return lambda: [each for each in others if each in names]


def pairs(size: int) -> Callable[[], object]:
    return lambda: sum(1 for one in range(size) for other in range(size) if one == other)


@pytest.mark.parametrize("make", [scan, pairs])
def test_quadratic_work_fails(make: Callable[[int], Callable[[], object]]) -> None:
    with pytest.raises(AssertionError, match="times the work"):
        assert_linear(make, 50)
