"""Generates JSON values: odd ones for any field, and ones that nearly match a schema."""

from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

Path = tuple[str | int, ...]


def nest(depth: int, inner: Any = None) -> Any:
    """Builds objects and lists, nested in turn."""
    for level in range(depth):
        inner = {"n": inner} if level % 2 else [inner]
    return inner


ODD_TEXTS = (
    *("", " ", "x", "\x00", "\x7f", "\n", "a\r\nb", "é", "\u202e", "\ufeff", "\U0001f4a9", "x" * 300, "y" * 20_000),
    *("-", "null"),
    *("0001-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "2016-12-31T23:59:60Z"),
    "2020-02-30T00:00:00Z",
    *("2020-01-01t00:00:00z", "2020-01-01T00:00:00." + "9" * 40 + "Z", "2020-01-01", "T", "AAE=", "AAE", "===="),
    *("1Gi", "1e400Gi"),
    *("Ready", "True", "../../x", "https://[::1", "http://a:99999999/", "{{ .Values }}", "%s%n", "'; --", "<script>"),
    *("$(id)", "*"),
)  # fmt: skip
ODD_NUMBERS = (
    0,
    -1,
    1,
    2**31,
    -(2**31) - 1,
    2**53,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64,
    10**30,
    1.5,
    -0.0,
    1e308,
    5e-324,
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, [], {}, [None], [[]], [{}], {"": ""}, {"a": None}, {"x": {"y": [1, "2", None]}}, ["a", "a"]),
    [1, "a"],
    *({"$patch": "delete"}, {"$patch": "nope"}, {"$retainKeys": ["a"]}, [{"$patch": "replace"}], {"key": "a" * 70}),
    {"-": "-"},
    *(nest(20), nest(150), nest(195), nest(260), [0] * 500, {f"k{n}": n for n in range(300)}),
)  # fmt: skip


def choose_odd_value(random: Random) -> Any:
    return deepcopy(random.choice(random.choice((ODD_TEXTS, ODD_NUMBERS, ODD_VALUES))))


def iter_paths(value: Any, prefix: Path = ()) -> Iterator[Path]:
    """The path of every value inside a value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in children:
        yield (*prefix, step)
        yield from iter_paths(child, (*prefix, step))


def iter_values(value: Any) -> Iterator[Any]:
    """Every value inside a value."""
    for path in iter_paths(value):
        yield get_parent(value, path)[path[-1]]


def get_parent(value: Any, path: Path) -> Any:
    for step in path[:-1]:
        value = value[step]
    return value


def generate_value(random: Random, schema: dict[str, Any], depth: int = 0) -> Any:
    """Generates a value of roughly the right shape, in which some values are odd."""
    if random.random() < 0.04:
        return choose_odd_value(random)
    if "allOf" in schema:
        return {}
    match schema.get("type"):
        case "object" if "properties" in schema:
            names = [name for name in schema["properties"] if depth < 6 and random.random() < 0.4]
            return {name: generate_value(random, schema["properties"][name], depth + 1) for name in names}
        case "object":
            inner = schema.get("additionalProperties") or {}
            return {
                random.choice(("a", "b-c", "example.com/d")): generate_value(random, inner, depth + 1) for _ in range(2)
            }
        case "array":
            return [generate_value(random, schema["items"], depth + 1) for _ in range(random.choice((0, 1, 1, 2, 3)))]
        case "integer" | "number":
            return random.choice(ODD_NUMBERS)
        case "boolean":
            return random.random() < 0.5
        case "string":
            return random.choice((*schema.get("enum", ()), "a", "b", "fuzz", *random.sample(ODD_TEXTS, 2)))
    return choose_odd_value(random)
