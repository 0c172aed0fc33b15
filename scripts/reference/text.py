"""Markdown for texts of the code."""

import html
import re
from collections.abc import Iterable


def escape(text: str) -> str:
    """A text as one line of a table: what is outside of inline code is no markup, and nothing ends the cell."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        code(part[1:-1]) if part.startswith("`") else re.sub(r"([\\<>*_|\[\]])", r"\\\1", part) for part in parts
    )


def code(text: str) -> str:
    """Inline code in a cell of a table. Renderers differ in how a pipe is escaped there, so it becomes HTML."""
    return f"<code>{html.escape(text, quote=False).replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table, of which the cells are Markdown already."""
    lines = [format_row(header), "|---" * len(header) + "|", *map(format_row, rows)]
    return "\n".join(lines) + "\n"


def format_row(cells: Iterable[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"
