"""The shortest life that still shows a difference: without requests, then without parameters, headers and fields."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.conformance.generated.steps import Life, Race, Request, Step, Watch

Json = Any
MAX_ATTEMPTS = 400


class _Attempts:
    """Counts how often a smaller life was played, and says no once it was too often."""

    def __init__(self, differs: Callable[[Life], bool], limit: int) -> None:
        self._differs, self._left = differs, limit

    def still_differs(self, life: Life) -> bool:
        self._left -= 1
        return self._left >= 0 and self._differs(life)


def shrink(life: Life, differs: Callable[[Life], bool], limit: int = MAX_ATTEMPTS) -> Life:
    """The smallest life found for which `differs` holds. It is asked at most `limit` times."""
    attempts = _Attempts(differs, limit)
    while True:
        smaller = _first(_smaller_lives(life), attempts)
        if smaller is None:
            return life
        life = smaller


def _first(lives: Iterator[Life], attempts: _Attempts) -> Life | None:
    return next((life for life in lives if attempts.still_differs(life)), None)


def _smaller_lives(life: Life) -> Iterator[Life]:
    """Lives that lack something, the most first: half of the steps, one step, a part of one step."""
    count = len(life.steps)
    size = count // 2
    while size >= 1:
        for start in range(count - size, -1, -size):
            yield life.with_steps(life.steps[:start] + life.steps[start + size :])
        size //= 2
    for index, step in enumerate(life.steps):
        for smaller in _smaller_steps(step):
            yield life.with_steps((*life.steps[:index], smaller, *life.steps[index + 1 :]))


def _smaller_steps(step: Step) -> Iterator[Step]:
    if isinstance(step, Watch):
        for index, request in enumerate(step.during):
            before, after = step.during[:index], step.during[index + 1 :]
            yield replace(step, during=before + after)
            yield from (replace(step, during=(*before, smaller, *after)) for smaller in _smaller_requests(request))
    elif isinstance(step, Race):
        yield step.left
        yield step.right
        yield from (replace(step, left=smaller) for smaller in _smaller_requests(step.left))
        yield from (replace(step, right=smaller) for smaller in _smaller_requests(step.right))
    else:
        yield from _smaller_requests(step)


def _smaller_requests(request: Request) -> Iterator[Request]:
    path, _, query = request.path.partition("?")
    parameters = query.split("&") if query else []
    for index in range(len(parameters)):
        rest = parameters[:index] + parameters[index + 1 :]
        yield replace(request, path=f"{path}?{'&'.join(rest)}" if rest else path)
    for name in request.headers:
        if name != "Content-Type":
            yield replace(request, headers={key: value for key, value in request.headers.items() if key != name})
    if request.capture:
        yield replace(request, capture="")
    if request.wait:
        yield replace(request, wait="")
    for body in _smaller_values(request.body):
        yield replace(request, body=body)


def _smaller_values(value: Json) -> Iterator[Json]:
    """The value without one field or entry, at any depth; outer ones first."""
    if isinstance(value, dict):
        for key in value:
            yield {name: each for name, each in value.items() if name != key}
        for key, inner in value.items():
            yield from ({**value, key: smaller} for smaller in _smaller_values(inner))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield value[:index] + value[index + 1 :]
        for index, inner in enumerate(value):
            yield from ([*value[:index], smaller, *value[index + 1 :]] for smaller in _smaller_values(inner))
