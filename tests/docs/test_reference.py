"""The reference pages and drawings are what the code gives today: `make reference` and scripts/draw_concepts.py."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fairlead.kinds import KINDS
from fairlead.registry.kind import MANAGEMENT_GROUP
from scripts.draw_concepts import DRAWINGS, FOLDER
from scripts.reference import ROOT, build_reference
from scripts.reference.audit_annotations import ANNOTATIONS
from scripts.reference.kinds import iterate_rows
from scripts.reference.tables import replace_setting_rows
from scripts.reference.text import escape
from tests.docs.audit_annotations import find_audit_annotations

NOT_OF_EVENTS = {"service.sh/git-host"}
"""Annotations of objects, in modules that also annotate events."""


@pytest.fixture(scope="module")
def pages() -> Mapping[Path, str]:
    return build_reference()


def test_all_pages_are_current(pages: Mapping[Path, str]) -> None:
    found = {path: path.read_text() for path in pages if path.exists()}
    outdated = [str(path.relative_to(ROOT)) for path, text in pages.items() if found.get(path) != text]
    assert outdated == [], "the code has changed; run: make reference"


def test_no_page_is_left_of_a_kind_that_is_gone(pages: Mapping[Path, str]) -> None:
    assert {*(ROOT / "docs" / "reference").rglob("*.md")} - pages.keys() == set(), "run: make reference"


def test_every_field_of_every_kind_is_on_a_page(pages: Mapping[Path, str]) -> None:
    for kind in KINDS:
        if kind.group == MANAGEMENT_GROUP:
            name = f"{kind.name.lower()}.md" if kind.persisted else "requests.md"
            text = pages[ROOT / "docs" / "reference" / "kinds" / name]
            paths = [row[0] for field, schema in kind.fields.items() for row in iterate_rows(field, schema)]
            assert [path for path in paths if path not in text and f"Fields of {path.strip('`')}" not in text] == []


def test_texts_of_the_code_cannot_break_a_table() -> None:
    assert escape("a|b <c> `d|e` [f]") == r"a\|b \<c\> <code>d&#124;e</code> \[f\]"


def test_a_setting_without_a_row_is_named_with_what_to_do() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    without = "\n".join(line for line in page.splitlines() if not line.startswith("| `port` |"))
    with pytest.raises(SystemExit, match=r"no row for port; add `\| `port` \| `--port` \|` to a table"):
        replace_setting_rows(without)
    with pytest.raises(SystemExit, match="rows for gone, which are no settings"):
        replace_setting_rows(page + "| `gone` | `--gone` | | | | |\n")
    assert (
        replace_setting_rows(page.replace("| `port` | `--port` | `FAIRLEAD_PORT` |", "| `port` | `--port` | x |"))
        == page
    )


def test_every_annotation_of_audit_events_is_declared() -> None:
    assert find_audit_annotations() - NOT_OF_EVENTS == ANNOTATIONS.keys()


@pytest.mark.parametrize("name", sorted(DRAWINGS))
def test_a_drawing_is_current(name: str) -> None:
    assert (FOLDER / name).read_text() == DRAWINGS[name]().render(), "run: .venv/bin/python scripts/draw_concepts.py"
