"""What a life consists of: requests, watches with requests inside, and races of two requests. All of it is plain JSON.

Paths, headers and bodies contain variables. `$run` is another word in every play, so that lives never see each other's
objects; `$rv`, `$uid` and `$owner` are what an earlier request of the same life has captured.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Json = Any

CAPTURES: Mapping[str, tuple[str, ...]] = {"object": ("uid", "rv"), "owner": ("owner",)}
"""What a request may capture: the uid and the version of an object, or the uid of an object that will be an owner."""

WAITS = ("gone", "collected")
"""What a request may wait for: that the object does not exist, or that the garbage collector has done its part."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `text` is a body that is not JSON; `wait` repeats a GET until it holds; `capture` keeps values."""

    method: str
    path: str
    body: Json = None
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    capture: str = ""
    wait: str = ""


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch that is open while the inner requests run, until the event of the object `last` arrives."""

    path: str
    during: tuple[Request, ...]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Race:
    """Two requests at the same time. The answers have to be those of one of the two orders."""

    left: Request
    right: Request


Step = Request | Watch | Race


@dataclass(frozen=True, slots=True)
class Life:
    """Steps in order. `last` is a clean object of the same collection, which ends each watch; it has its own name."""

    name: str
    kind: str
    collection: str
    last: Json
    steps: tuple[Step, ...]

    @property
    def has_race(self) -> bool:
        return any(isinstance(step, Race) for step in self.steps)

    def with_steps(self, steps: Iterator[Step] | tuple[Step, ...]) -> "Life":
        return replace(self, steps=tuple(steps))


def requests_of(life: Life) -> Iterator[Request]:
    """Every request of the life, those inside of watches and races as well."""
    for step in life.steps:
        if isinstance(step, Request):
            yield step
        elif isinstance(step, Watch):
            yield from step.during
        else:
            yield from (step.left, step.right)


def life_to_json(life: Life) -> Json:
    steps = [_step_to_json(step) for step in life.steps]
    return {"name": life.name, "kind": life.kind, "collection": life.collection, "last": life.last, "steps": steps}


def life_from_json(value: Json) -> Life:
    steps = tuple(_step_from_json(step) for step in value["steps"])
    return Life(value["name"], value["kind"], value["collection"], value["last"], steps)


def _step_to_json(step: Step) -> Json:
    if isinstance(step, Watch):
        inner = [_request_to_json(request) for request in step.during]
        return {"watch": step.path, "during": inner} | ({"headers": dict(step.headers)} if step.headers else {})
    if isinstance(step, Race):
        return {"race": [_request_to_json(step.left), _request_to_json(step.right)]}
    return _request_to_json(step)


def _step_from_json(value: Json) -> Step:
    if "watch" in value:
        return Watch(value["watch"], tuple(Request(**each) for each in value["during"]), value.get("headers", {}))
    if "race" in value:
        left, right = value["race"]
        return Race(Request(**left), Request(**right))
    return Request(**value)


def _request_to_json(request: Request) -> Json:
    optional = {"text": request.text, "capture": request.capture, "wait": request.wait, "headers": request.headers}
    body = {} if request.body is None else {"body": request.body}
    return {"method": request.method, "path": request.path} | body | {k: v for k, v in optional.items() if v}
