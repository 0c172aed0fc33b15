"""Puts the tables of a result into a document, between two marks:

python -m bench.markdown docs/performance.json docs/performance.md
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import orjson

from bench.lines import Line
from bench.table import Grid, build_grid, build_peer_grid, list_peers

BEGIN, END = "<!-- tables of the benchmark -->", "<!-- end of the tables -->"


def build_markdown(lines: list[Line]) -> str:
    """The table beside the ceiling, and one beside each peer."""
    grids = [build_grid(lines), *(build_peer_grid(lines, name) for name in list_peers(lines))]
    return "\n\n".join("\n".join(_render(grid)) for grid in grids)


def _render(grid: Grid) -> Iterator[str]:
    yield _join_cells(grid.headings)
    yield _join_cells(["---", *("---:" for _ in grid.headings[1:])])
    yield from map(_join_cells, grid.rows)


def _join_cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def replace_tables(document: str, tables: str) -> str:
    """Replaces what is between the marks. Raises ValueError for a document without them."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the document has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def main(result_file: Path, document_file: Path) -> None:
    lines = msgspec.convert(orjson.loads(result_file.read_bytes())["lines"], list[Line])
    document_file.write_text(replace_tables(document_file.read_text(), build_markdown(lines)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
