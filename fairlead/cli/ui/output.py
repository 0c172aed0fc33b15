"""Output of commands: tables, JSON, YAML and JSONPath on stdout, notes on stderr.

Text from the server is untrusted, so control characters are escaped and rich markup is off. Columns are never
truncated; if the terminal is wide enough for the others, the last column is folded. rich is imported lazily, because
kubectl waits for `fairlead token` before each of its commands.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from fairlead.cli.ui.jsonpath import InvalidTemplate, Template, parse_template
from fairlead.cli.ui.streams import write_data
from fairlead.core import json
from fairlead.core.objects import Object

if TYPE_CHECKING:
    from rich.table import Table

UNLIMITED_WIDTH = 10_000
COLUMN_GAP = 3
MIN_LAST_COLUMN_WIDTH = 20
"""Minimum width of a folded last column; narrower text would be unreadable."""

STATE_LABELS = frozenset({"phase", "state", "status", "online", "ready"})
"""Columns and labels with states, which are coloured on a terminal. rich honours NO_COLOR."""

STATE_STYLES = {
    **dict.fromkeys(("active", "initialized", "ready", "running", "true"), "green"),
    **dict.fromkeys(("deleting", "pending", "sleeping", "terminating", "waitingforrunner"), "yellow"),
    **dict.fromkeys(("disabled", "expired", "failed", "false"), "red"),
}


class Output(StrEnum):
    """Values of `-o` of commands that print something else than objects."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Format(StrEnum):
    """Output formats of objects."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"
    YAML = "yaml"
    JSONPATH = "jsonpath"


@dataclass(frozen=True, slots=True)
class ObjectOutput:
    """The value of `-o` of commands that print objects, which have a kind and a name."""

    format: Format
    template: Template | None = None

    @property
    def is_table(self) -> bool:
        return self.format in (Format.TABLE, Format.WIDE)


TABLE = ObjectOutput(Format.TABLE)


def parse_output(value: str | ObjectOutput) -> ObjectOutput:
    """Parses the value of `-o`. Used as a Typer parser, which also gets the default value."""
    if isinstance(value, ObjectOutput):
        return value
    name, equals, expression = value.partition("=")
    choices = [each.value for each in Format if each is not Format.JSONPATH]
    if not equals and name in choices:
        return ObjectOutput(Format(name))
    if name != Format.JSONPATH or not expression:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(choices)} and jsonpath=TEMPLATE")
    try:
        return ObjectOutput(Format.JSONPATH, parse_template(expression))
    except InvalidTemplate as error:
        raise typer.BadParameter(f"jsonpath: {error}") from None


def print_value(value: Any, output: ObjectOutput) -> None:
    """Prints a value as JSON or YAML, or the parts of it that a JSONPath selects."""
    if output.template is None:
        print_data(value, Output(output.format))
        return
    text = output.template.render(_without_managed_fields(value))
    if sys.stdout.isatty():
        text = re.sub(r"[^\n\t]", lambda match: escape_control(match[0]), text)
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def print_data(value: Any, output: Output) -> None:
    """Prints a value as JSON or YAML, without managedFields, like kubectl."""
    write_data(encode_data(value, output))


def encode_data(value: Any, output: Output) -> bytes:
    from fairlead.core import yaml

    stripped = _without_managed_fields(value)
    return yaml.encode(stripped) if output is Output.YAML else json.encode_pretty(stripped)


def build_list(items: Sequence[Object]) -> Object:
    """A v1 List, as kubectl prints objects."""
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def print_name(kind: str, name: str) -> None:
    """Prints `kind/name` like `kubectl -o name`, such as `project/demo`."""
    print(escape_control(f"{kind.lower()}/{name}"))


def print_event(type: str, obj: Object, output: Output) -> None:
    """Prints a watch event as one line of JSON or one YAML document."""
    from fairlead.core import yaml

    event = {"type": type, "object": _without_managed_fields(obj)}
    write_data(b"---\n" + yaml.encode(event) if output is Output.YAML else json.encode(event) + b"\n")


def _without_managed_fields(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if isinstance(items := value.get("items"), list):
        return value | {"items": [_without_managed_fields(each) for each in items]}
    if not isinstance(metadata := value.get("metadata"), dict):
        return value
    return value | {"metadata": {name: part for name, part in metadata.items() if name != "managedFields"}}


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], empty_message: str) -> None:
    """Prints a table; if there are no rows, prints `empty_message` on stderr instead."""
    from rich.table import Table
    from rich.text import Text

    if not rows:
        print_note(empty_message)
        return
    cells = [[escape_control(cell) for cell in row] for row in rows]
    widths = column_widths(headers, cells)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, COLUMN_GAP, 0, 0))
    for number, header in enumerate(headers, 1):
        # Folding would break copying of names, so only the last column is folded.
        table.add_column(header, overflow="fold", no_wrap=number < len(headers))
    for row in cells:
        table.add_row(*(Text(cell, _state_style(header, cell)) for header, cell in zip(headers, row, strict=True)))
    _print_rich_table(table, sum(widths[:-1]) + COLUMN_GAP * len(widths[:-1]) + min(widths[-1], MIN_LAST_COLUMN_WIDTH))


def column_widths(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    cells = ([escape_control(cell) for cell in row] for row in rows)
    return [max(map(cell_len, column)) for column in zip(headers, *cells, strict=True)]


def print_row(headers: Sequence[str], row: Sequence[str], widths: Sequence[int]) -> None:
    """Prints another row below a table that was printed with `widths`."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    line = Text()
    for header, cell, width in zip(headers, map(escape_control, row), widths, strict=True):
        line.append(cell, _state_style(header, cell)).append(" " * (width - cell_len(cell) + COLUMN_GAP))
    line.rstrip()
    Console(markup=False, emoji=False, highlight=False).print(line, soft_wrap=True)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Prints label-value rows for one object."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, COLUMN_GAP, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, Text(escape_control(value), _state_style(name, value)))
    _print_rich_table(table)


def _state_style(label: str, value: str) -> str:
    return STATE_STYLES.get(value.lower(), "") if label.lower() in STATE_LABELS else ""


def print_note(text: str) -> None:
    """Prints a message on stderr, so that stdout stays machine-readable."""
    print(escape_control(text), file=sys.stderr)


def _print_rich_table(table: "Table", needed: int = 0) -> None:
    """Folds the table to the width of a terminal that has `needed` columns; otherwise prints unfolded lines."""
    from rich.console import Console

    console = Console(markup=False, emoji=False, highlight=False)
    if console.is_terminal and needed <= console.width:
        console.print(table)
        return
    console.width = UNLIMITED_WIDTH
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def format_cell(value: Any) -> str:
    """A value of a field as a table cell; `-` if it is not set. Zero and false are values."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value in (None, "", [], {}) else str(value)


def escape_control(text: str) -> str:
    """Escapes control characters."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
