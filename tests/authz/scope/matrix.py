"""Reads the decision table in matrix.md: the specified decisions, independent of the code.

The file has one table with the scope of each column, and several with the decisions. A row applies to the verbs that it
names; a row for `others` applies to all verbs that no other row of the same request names.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.core.scope import Scope

MATRIX = Path(__file__).with_name("matrix.md")

ALLOW, DENY, FILTERED = "✓", "·", "filtered"
OTHERS = "others"

Row = tuple[str, str]
"""A request, and one of its verbs."""


@dataclass(frozen=True, slots=True)
class Table:
    """The scopes by column as JSON documents, and the cells of each row by column."""

    scope_documents: dict[str, Any]
    rows: dict[Row, dict[str, str]]

    @property
    def scopes(self) -> dict[str, Scope | None]:
        return {column: Scope.parse(scope) for column, scope in self.scope_documents.items()}

    def find_row(self, request: str, verb: str) -> Row:
        for candidate in ((request, verb), (request, OTHERS)):
            if candidate in self.rows:
                return candidate
        raise LookupError(f"{MATRIX.name} has no decision about {verb}: {request}; add a row to one of its tables")


def read_table(path: Path = MATRIX) -> Table:
    scope_documents: dict[str, Any] = {}
    rows: dict[Row, dict[str, str]] = {}
    for header, *lines in _parse_tables(path.read_text(encoding="utf-8")):
        if header[:2] == ["column", "scope"]:
            scope_documents = {line[0]: json.loads(line[1].strip("`")) for line in lines}
        elif header[:2] == ["request", "verbs"]:
            for row, cells in _parse_decisions(header, lines):
                assert row not in rows, f"{path.name} has two decisions about {row}"
                rows[row] = cells
    return Table(scope_documents, rows)


def _parse_decisions(header: list[str], lines: list[list[str]]) -> Iterator[tuple[Row, dict[str, str]]]:
    for line in lines:
        cells = dict(zip(header[2:], line[2:], strict=True))
        for verb in line[1].split(","):
            yield (line[0], verb.strip().strip("`")), cells


def _parse_tables(text: str) -> Iterator[list[list[str]]]:
    """Every table of a page as rows of cells, without the line below its header."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
        yield [rows[0], *rows[2:]]
