"""What commands print: tables for people, JSON and YAML for programs.

Everything that came from a server may have been written by somebody else, so nothing of it reaches a terminal as a
control character, and rich's markup is off. No column is ever cut; at a terminal that is wide enough for the others,
the last one is folded. rich is imported with the first table: kubectl runs `fairlead token` before each of its own
commands, and waits for it.
"""

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fairlead.core import json, yaml
from fairlead.core.objects import Object

if TYPE_CHECKING:
    from rich.table import Table

UNLIMITED = 10_000
GAP = 3
LEAST = 20
"""Columns of a terminal below which folding makes no text readable."""


class Output(StrEnum):
    """What `-o` accepts."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class NamedOutput(StrEnum):
    """What `-o` accepts where objects are shown that can be looked up again by kind and name."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def print_data(value: Any, output: Output) -> None:
    """A value for programs. Who manages which field is left out, as kubectl leaves it out."""
    shown = _without_managed_fields(value)
    encoded = yaml.encode(shown) if output is Output.YAML else json.encode_pretty(shown)
    sys.stdout.write(encoded.decode())


def print_list(items: Sequence[Object], output: Output) -> None:
    """Objects for programs, wrapped as kubectl wraps them."""
    print_data({"apiVersion": "v1", "kind": "List", "items": list(items)}, output)


def print_name(kind: str, name: str) -> None:
    """One line as kubectl has it: `project/demo`."""
    print(plain(f"{kind.lower()}/{name}"), flush=True)


def print_event(type: str, obj: Object, output: Output) -> None:
    """One line of JSON, or one document of YAML; at once, as whoever reads it may be waiting."""
    shown = {"type": type, "object": _without_managed_fields(obj)}
    encoded = b"---\n" + yaml.encode(shown) if output is Output.YAML else json.encode(shown) + b"\n"
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


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], nothing: str) -> None:
    """Rows for people; where there are none, `nothing` says so on stderr."""
    from rich.table import Table
    from rich.text import Text

    if not rows:
        note(nothing)
        return
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = column_widths(headers, cells)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for number, header in enumerate(headers, 1):
        # A name that is folded cannot be copied.
        table.add_column(header, overflow="fold", no_wrap=number < len(headers))
    for row in cells:
        table.add_row(*map(Text, row))
    _print(table, sum(widths[:-1]) + GAP * len(widths[:-1]) + min(widths[-1], LEAST))


def column_widths(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    cells = ([plain(cell) for cell in row] for row in rows)
    return [max(map(cell_len, column)) for column in zip(headers, *cells, strict=True)]


def print_row(row: Sequence[str], widths: Sequence[int]) -> None:
    """One more row below a table that is printed already."""
    from rich.cells import cell_len

    cells = [plain(cell) for cell in row]
    padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
    print((" " * GAP).join(padded).rstrip(), flush=True)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """One thing for people: what it is called, and what it is."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, GAP, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, Text(plain(value)))
    _print(table)


def note(text: str) -> None:
    """A remark for people, out of the way of what programs read."""
    print(plain(text), file=sys.stderr)


def _print(table: "Table", needed: int = 0) -> None:
    """To a terminal that has room for it, folded to fit; to anything else in whole lines, without blanks at the end."""
    from rich.console import Console

    console = Console(markup=False, emoji=False, highlight=False)
    if console.is_terminal and needed <= console.width:
        console.print(table)
        return
    console.width = UNLIMITED
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def plain(text: str) -> str:
    """The text with its control characters spelled out."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
