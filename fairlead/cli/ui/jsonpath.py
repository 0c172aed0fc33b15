"""JSONPath templates as kubectl has them, for `-o jsonpath=` and `--sort-by`.

`{.items[*].metadata.name}`, `{range .items[*]}{.metadata.name}{"\\n"}{end}`, `{.items[?(@.kind=="App")].spec}`.
Text without braces is a path. A field that is missing is printed as nothing.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fairlead.core import json

BLOCK = re.compile(r"""\{((?:[^{}"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*)\}""")
STEP = re.compile(
    r"""(?P<deep>\.\.)?(?:\.?\[(?P<bracket>(?:[^\[\]"']|"[^"]*"|'[^']*'|\[[^\]]*\])*)\]|\.?(?P<name>(?:[^.\[\]\s\\]|\\.)+))"""
)
FILTER = re.compile(r"""\?\(\s*@(?P<path>[^=!<>]*?)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<operand>.+?)\s*)?\)""")
SLICE = re.compile(r"(-?\d+)?:(-?\d+)?(?::(-?\d+))?")
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class InvalidTemplate(ValueError):
    """A template that cannot be parsed. The message quotes the part."""


Step = Callable[[Any], Iterable[Any]]
"""From a value to the values that a part of a path selects in it."""


@dataclass(frozen=True, slots=True)
class Path:
    """A path. One with `$` starts at the whole value also inside of `range`."""

    steps: tuple[Step, ...]
    is_absolute: bool = False

    def select(self, value: Any) -> list[Any]:
        values = [value]
        for step in self.steps:
            values = [found for each in values for found in step(each)]
        return values


@dataclass(frozen=True, slots=True)
class Range:
    """The nodes between `{range PATH}` and `{end}`, for each selected value."""

    path: Path
    nodes: "tuple[Node, ...]"


Node = str | Path | Range


@dataclass(frozen=True, slots=True)
class Template:
    nodes: tuple[Node, ...]

    def render(self, value: Any) -> str:
        return "".join(_render(self.nodes, value, value))


def parse_template(text: str) -> Template:
    blocks = list(_split_blocks(text if "{" in text else f"{{{text}}}"))
    nodes = _parse_nodes(blocks, is_range=False)
    return Template(tuple(nodes))


def parse_path(text: str) -> Path:
    """Parses a single path: `.metadata.name`, `metadata.name` or `{.metadata.name}`."""
    return _parse_path(text.strip().removeprefix("{").removesuffix("}").strip())


def _render(nodes: Iterable[Node], value: Any, root: Any) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, str):
            yield node
            continue
        path = node.path if isinstance(node, Range) else node
        selected = path.select(root if path.is_absolute else value)
        if isinstance(node, Range):
            for each in selected:
                yield from _render(node.nodes, each, root)
        else:
            yield " ".join(map(_format, selected))


def _format(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.encode(value).decode()


def _split_blocks(text: str) -> Iterator[tuple[bool, str]]:
    """Literal text as (False, text), the content of braces as (True, content)."""
    position = 0
    for match in BLOCK.finditer(text):
        yield False, text[position : match.start()]
        yield True, match[1].strip()
        position = match.end()
    rest = text[position:]
    if "{" in rest or "}" in rest:
        raise InvalidTemplate(f"unmatched brace in {rest!r}")
    yield False, rest


def _parse_nodes(blocks: list[tuple[bool, str]], is_range: bool) -> list[Node]:
    """Parses and removes blocks, up to `{end}` in a range."""
    nodes: list[Node] = []
    while blocks:
        is_expression, text = blocks.pop(0)
        if not is_expression:
            nodes.append(text)
        elif text == "end":
            if not is_range:
                raise InvalidTemplate("{end} without {range}")
            return nodes
        elif text.startswith("range "):
            nodes.append(Range(_parse_path(text.removeprefix("range ").strip()), tuple(_parse_nodes(blocks, True))))
        elif text[:1] in ("'", '"'):
            nodes.append(re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), text[1:-1]))
        else:
            nodes.append(_parse_path(text))
    if is_range:
        raise InvalidTemplate("{range} without {end}")
    return nodes


def _parse_path(text: str) -> Path:
    is_absolute = text.startswith("$")
    rest = text[1:] if text[:1] in ("$", "@") else text
    steps: list[Step] = []
    position = 0
    while position < len(rest.rstrip(".")):
        match = STEP.match(rest, position)
        if match is None:
            raise InvalidTemplate(f"{text!r} is not a path; use the format .metadata.name")
        if match["deep"]:
            steps.append(_descend)
        steps.append(_parse_step(match["bracket"], match["name"], text))
        position = match.end()
    return Path(tuple(steps), is_absolute)


def _parse_step(bracket: str | None, name: str | None, text: str) -> Step:
    if name is not None:
        return _wildcard if name == "*" else _field(re.sub(r"\\(.)", r"\1", name))
    content = (bracket or "").strip()
    if content == "*":
        return _wildcard
    if match := FILTER.fullmatch(content):
        return _filter(_parse_path(match["path"]), match["operator"], _parse_operand(match["operand"]))
    if match := SLICE.fullmatch(content):
        return _slice(slice(*(int(part) if part else None for part in match.groups())))
    parts = [part.strip() for part in content.split(",")]
    if all(re.fullmatch(r"-?\d+", part) for part in parts):
        return _items([int(part) for part in parts])
    if all(re.fullmatch(r"'[^']*'|\"[^\"]*\"", part) for part in parts):
        fields = [_field(part[1:-1]) for part in parts]
        return lambda value: [found for each in fields for found in each(value)]
    raise InvalidTemplate(f"[{content}] in {text!r} is not an index, a slice, a quoted name or a filter")


def _parse_operand(text: str | None) -> Any:
    if text is None:
        return None
    if text[:1] in ("'", '"'):
        return text[1:-1]
    try:
        return json.decode(text.encode())
    except ValueError:
        raise InvalidTemplate(f"{text!r} in a filter is neither a quoted text nor a number") from None


def _field(name: str) -> Step:
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []


def _items(indexes: list[int]) -> Step:
    def select(value: Any) -> Iterable[Any]:
        count = len(value) if isinstance(value, list) else 0
        return [value[each] for each in indexes if -count <= each < count]

    return select


def _slice(bounds: slice) -> Step:
    return lambda value: value[bounds] if isinstance(value, list) else []


def _wildcard(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _descend(value: Any) -> Iterator[Any]:
    """The value and everything in it."""
    yield value
    for each in _wildcard(value):
        yield from _descend(each)


def _filter(path: Path, comparison: str | None, operand: Any) -> Step:
    def matches(value: Any) -> bool:
        found = path.select(value)
        if comparison is None:
            return bool(found)
        is_same_type = bool(found) and isinstance(found[0], type(operand)) and isinstance(operand, type(found[0]))
        return COMPARISONS[comparison](found[0], operand) if is_same_type else comparison == "!=" and bool(found)

    return lambda value: [each for each in _wildcard(value) if matches(each)]
