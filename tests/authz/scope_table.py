"""The decision table of docs/access-keys.md, read from the page itself: what is promised, and not what the code does.

The page has one table that says which scope each column stands for, and several with the decisions. A row counts for
the verbs that it names; one for `others` counts for all that no other row of the same request names.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.core.scope import Scope

PAGE = Path(__file__).resolve().parents[2] / "docs" / "access-keys.md"

ALLOW, DENY, CUT = "✓", "·", "cut"
OTHERS = "others"

Row = tuple[str, str]
"""A request, and one of its verbs."""


@dataclass(frozen=True, slots=True)
class Table:
    """The scopes by column, as values and as they are `written`, and the cells of each row by column."""

    written: dict[str, Any]
    rows: dict[Row, dict[str, str]]

    @property
    def scopes(self) -> dict[str, Scope | None]:
        return {column: Scope.parse(scope) for column, scope in self.written.items()}

    def row(self, request: str, verb: str) -> Row:
        for candidate in ((request, verb), (request, OTHERS)):
            if candidate in self.rows:
                return candidate
        raise LookupError(f"{PAGE.name} does not say who may {verb}: {request}; add a row to one of its tables")


def read_table(page: Path = PAGE) -> Table:
    written: dict[str, Any] = {}
    rows: dict[Row, dict[str, str]] = {}
    for header, *lines in _tables(page.read_text(encoding="utf-8")):
        if header[:2] == ["column", "scope"]:
            written = {line[0]: json.loads(line[1].strip("`")) for line in lines}
        elif header[:2] == ["request", "verbs"]:
            for row, cells in _decisions(header, lines):
                assert row not in rows, f"{page.name} decides twice about {row}"
                rows[row] = cells
    return Table(written, rows)


def _decisions(header: list[str], lines: list[list[str]]) -> Iterator[tuple[Row, dict[str, str]]]:
    for line in lines:
        cells = dict(zip(header[2:], line[2:], strict=True))
        for verb in line[1].split(","):
            yield (line[0], verb.strip().strip("`")), cells


def _tables(text: str) -> Iterator[list[list[str]]]:
    """Every table of a page as rows of cells, the line below its header left out."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
        yield [rows[0], *rows[2:]]
