"""Output of commands: tables, JSON and YAML on stdout, notes on stderr.

Text from the server is untrusted, so control characters are escaped and rich markup is off. Columns are never
truncated; if the terminal is wide enough for the others, the last column is folded. rich is imported lazily, because
kubectl waits for `fairlead token` before each of its commands.
"""

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fairlead.core import json, yaml
from fairlead.core.objects import Object

if TYPE_CHECKING:
    from rich.table import Table

UNLIMITED_WIDTH = 10_000
COLUMN_GAP = 3
MIN_LAST_COLUMN_WIDTH = 20
"""Minimum width of a folded last column; narrower text would be unreadable."""


class Output(StrEnum):
    """Values of `-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class NamedOutput(StrEnum):
    """Values of `-o` for objects that have a kind and a name."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def print_data(value: Any, output: Output) -> None:
    """Prints a value as JSON or YAML, without managedFields, like kubectl."""
    stripped = _without_managed_fields(value)
    encoded = yaml.encode(stripped) if output is Output.YAML else json.encode_pretty(stripped)
    sys.stdout.write(encoded.decode())


def print_list(items: Sequence[Object], output: Output) -> None:
    """Prints objects as a v1 List, like kubectl."""
    print_data({"apiVersion": "v1", "kind": "List", "items": list(items)}, output)


def print_name(kind: str, name: str) -> None:
    """Prints `kind/name` like `kubectl -o name`, such as `project/demo`."""
    print(escape_control(f"{kind.lower()}/{name}"), flush=True)


def print_event(type: str, obj: Object, output: Output) -> None:
    """Prints a watch event as one line of JSON or one YAML document, and flushes stdout."""
    event = {"type": type, "object": _without_managed_fields(obj)}
    encoded = b"---\n" + yaml.encode(event) if output is Output.YAML else json.encode(event) + b"\n"
    sys.stdout.write(encoded.decode())
    sys.stdout.flush()


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
        table.add_row(*map(Text, row))
    _print_rich_table(table, sum(widths[:-1]) + COLUMN_GAP * len(widths[:-1]) + min(widths[-1], MIN_LAST_COLUMN_WIDTH))


def column_widths(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    cells = ([escape_control(cell) for cell in row] for row in rows)
    return [max(map(cell_len, column)) for column in zip(headers, *cells, strict=True)]


def print_row(row: Sequence[str], widths: Sequence[int]) -> None:
    """Prints another row below a table that was printed with `widths`."""
    from rich.cells import cell_len

    cells = [escape_control(cell) for cell in row]
    padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
    print((" " * COLUMN_GAP).join(padded).rstrip(), flush=True)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Prints label-value rows for one object."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, COLUMN_GAP, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, Text(escape_control(value)))
    _print_rich_table(table)


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


def escape_control(text: str) -> str:
    """Escapes control characters."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
