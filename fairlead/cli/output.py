"""What commands print: tables for people, JSON and YAML for programs.

Everything that came from a server may have been written by somebody else, so nothing of it reaches a terminal as a
control character, and rich's markup is off. Where the output is no terminal, no column is ever cut.
"""

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.core import json, yaml
from fairlead.core.objects import Object

UNLIMITED = 10_000


class Output(StrEnum):
    """What `-o` accepts."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def print_data(value: Any, output: Output) -> None:
    """A value for programs."""
    encoded = yaml.encode(value) if output is Output.YAML else json.encode_pretty(value)
    sys.stdout.write(encoded.decode())


def print_list(items: Sequence[Object], output: Output) -> None:
    """Objects for programs, wrapped as kubectl wraps them."""
    print_data({"apiVersion": "v1", "kind": "List", "items": list(items)}, output)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], nothing: str) -> None:
    """Rows for people; where there are none, `nothing` says so on stderr."""
    if not rows:
        note(nothing)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    _print(table)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """One thing for people: what it is called, and what it is."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 3, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, Text(plain(value)))
    _print(table)


def note(text: str) -> None:
    """A remark for people, out of the way of what programs read."""
    print(plain(text), file=sys.stderr)


def _print(table: Table) -> None:
    """To a terminal as it likes it; to anything else without the blanks that fill up a column."""
    console = Console(markup=False, emoji=False, highlight=False)
    if console.is_terminal:
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
