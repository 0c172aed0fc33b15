"""docs/walks.md names files of the code: each of them exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/walks.md").read_text(encoding="utf-8")
FILES = sorted(set(re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)))


def test_the_page_has_five_ways() -> None:
    assert len(re.findall(r"^## ", PAGE, re.MULTILINE)) == 5 and len(FILES) > 80


@pytest.mark.parametrize("path", FILES)
def test_each_file_exists(path: str) -> None:
    assert (ROOT / "fairlead" / path).exists()
