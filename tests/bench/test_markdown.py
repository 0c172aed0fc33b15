"""Tests of `bench/markdown.py`: the tables of a result replace those in a document."""

from pathlib import Path

import orjson
import pytest

from bench.figures import Compared, Reading
from bench.lines import build_document, lines
from bench.markdown import BEGIN, END, main, replace_tables
from tests.bench.test_aims import build_result

ROOT = Path(__file__).resolve().parents[2]


def test_the_tables_are_read_from_the_readings_and_replace_those_in_the_document(tmp_path: Path) -> None:
    row = Compared(
        "GET", "requests/s", False, [Reading(50, 3, 9)], [Reading(100, 1, 9)], None, {"kube": [Reading(5, 1, 90)]}
    )
    result = build_result(row)
    result_file, document = tmp_path / "bench.json", tmp_path / "document.md"
    result_file.write_bytes(orjson.dumps(build_document(result, lines(result))))
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    main(result_file, document)
    text = document.read_text()
    assert text.startswith(f"before\n{BEGIN}\n\n|  | fairlead | ceiling |") and text.endswith(f"|\n\n{END}\nafter\n")
    assert "old" not in text
    assert "| GET, requests/s | 50.0 | 100 | 50% (50% to 50%) |" in text
    assert "| GET, requests/s | 50.0 | 5.00 | 10.0 |" in text
    main(result_file, document)
    assert document.read_text() == text


def test_a_document_without_marks_is_rejected() -> None:
    with pytest.raises(ValueError, match="no lines"):
        replace_tables("text", "tables")


def test_the_documentation_has_the_marks() -> None:
    assert replace_tables((ROOT / "docs" / "performance.md").read_text(), "tables")
