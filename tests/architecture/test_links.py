"""The relative links in README.md, docs/ and the other documents lead to files and headings that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def read_prose(path: Path) -> str:
    """The text without code blocks and inline code, in which brackets are not links."""
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(`+)(?!`)(?:(?!\1).)*\1", "code", text)


def list_anchors(path: Path) -> set[str]:
    """The anchors in the text, and those of the headings: lower case, without punctuation, hyphens for spaces."""
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    anchors = set(re.findall(r'<a id="([^"]+)"></a>', text))
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 1
        unique = anchor
        while unique in anchors:
            unique, number = f"{anchor}-{number}", number + 1
        anchors.add(unique)
    return anchors


def find_dead_links(path: Path) -> Iterator[str]:
    for link in LINK.findall(read_prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and anchor not in list_anchors(target):
            yield f"{link}: no such heading"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    assert list(find_dead_links(path)) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading, with `code`\n[a](#a-heading-with-code) [b](#b) [c](none.md) `[d](none.md)`\n")
    assert list(find_dead_links(page)) == ["#b: no such heading", "none.md: no such file"]
