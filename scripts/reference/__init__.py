"""Writes the reference pages of docs/ from the code: `make reference`, or `python -m scripts.reference`.

    kinds.py     docs/reference/kinds/: the kinds and their fields, from the schemas that OpenAPI serves
    commands.py  docs/reference/commands.md: the commands and their flags
    tables.py    tables in pages that are otherwise written by hand: settings, audit annotations

A test compares the result with the pages, so a change of the code without `make reference` fails.
"""

from pathlib import Path

from scripts.reference.commands import build_commands_page
from scripts.reference.kinds import build_kind_pages
from scripts.reference.tables import build_tables

ROOT = Path(__file__).resolve().parents[2]
GENERATED = "<!-- Written by `make reference` from the code; do not edit. -->\n\n"


def build_reference() -> dict[Path, str]:
    """The contents of all pages that are generated, or contain something generated."""
    docs = ROOT / "docs"
    pages = {docs / "reference" / "kinds" / name: text for name, text in build_kind_pages(ROOT).items()}
    pages[docs / "reference" / "commands.md"] = build_commands_page()
    return {path: GENERATED + text for path, text in pages.items()} | build_tables(docs)
