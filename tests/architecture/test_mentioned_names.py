"""What the texts mention exists: the files named in documents and docstrings, and the names of code in documents for
developers. A rename that forgets a text fails here."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "fairlead"
SOURCES = [path for folder in ("fairlead", "tests", "bench", "scripts") for path in (ROOT / folder).rglob("*.py")]
FOLDERS = {ROOT / "docs", *(folder for path in SOURCES for folder in path.parents)}
DOCUMENTS = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))]
DOCUMENTS.remove(ROOT / "docs" / "upgrades.md")  # it lists names that are gone
DEVELOPER_DOCUMENTS = (ROOT / "docs" / "request-path.md", ROOT / "CONTRIBUTING.md")

EXAMPLES = frozenset(
    {
        "fairlead/kinds/clusters/region.py",
        "tests/kinds/clusters/test_region.py",
        "fairlead/storage/x.py",
        "ci_platform.py",
    }
)
"""Files that the documents tell the reader to create."""
FOREIGN_NAMES = frozenset({"SYS_ADMIN", "LINUX_IMMUTABLE"})

MODULE = re.compile(r"(?<![\w.*<>/-])[\w/-]*\w\.py\b")
LISTED = re.compile(r"^ *([a-z_0-9]+(?:\.py|/)?(?:,? [a-z_0-9]+(?:\.py|/)?)*) {2,}\S", re.MULTILINE)
"""The first column of the table of modules in the docstring of a package."""
FOLDER = re.compile(r"`((?:[a-z_]+/)+)`")
CODE_NAME = re.compile(
    r"`(?:[a-z_]+\.)*([A-Z]\w*[a-z]\w*(?:\.\w+)?|[A-Z]{2,}(?:_[A-Z]+)*|[a-z]+(?:_[a-z]+)+)(?:\(\))?`"
)
"""A class, with or without an attribute, a constant, or a function whose name has several words."""


TEST_NAMES = frozenset(path.name for path in SOURCES if path.is_relative_to(ROOT / "tests"))


def missing_files(text: str, folders: Iterable[Path]) -> Iterator[str]:
    """The mentioned modules that exist in none of the folders. A name without a folder may be anywhere in the tests."""
    folders = tuple(folders)
    for mention in {*MODULE.findall(text)} - EXAMPLES:
        if mention not in TEST_NAMES and not any((folder / mention).exists() for folder in folders):
            yield mention


def missing_folders(text: str) -> Iterator[str]:
    """A table may name a folder below the package of its row, so the end of the path is enough."""
    for mention in {*FOLDER.findall(text)}:
        if not any(f"{folder}/".endswith(f"/{mention}") for folder in FOLDERS):
            yield mention


def missing_names(text: str, words: frozenset[str]) -> Iterator[str]:
    """The mentioned names of code of which a part occurs nowhere in the code."""
    for mention in {*CODE_NAME.findall(text)} - FOREIGN_NAMES:
        if not words.issuperset(mention.split(".")):
            yield mention


def missing_modules(docstring: str, existing: frozenset[str]) -> Iterator[str]:
    """The modules in the table of a package's docstring that the package does not have."""
    for names in LISTED.findall(docstring):
        yield from (
            name for name in re.split(",? ", names) if name.removesuffix(".py").removesuffix("/") not in existing
        )


@cache
def code_words() -> frozenset[str]:
    return frozenset(word for path in SOURCES for word in re.findall(r"\w+", path.read_text()))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_files_that_a_document_mentions_exist(document: Path) -> None:
    assert not [*missing_files(document.read_text(), (ROOT, PACKAGE))]


def test_the_files_that_docstrings_and_comments_mention_exist() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {mention}"
        for path in PACKAGE.rglob("*.py")
        for mention in missing_files(path.read_text(), (ROOT, *path.parents[: -len(ROOT.parts)]))
    }
    assert not missing


def test_the_modules_that_the_docstring_of_a_package_lists_exist() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in PACKAGE.rglob("__init__.py")
        for name in missing_modules(
            ast.get_docstring(ast.parse(path.read_text())) or "", frozenset(each.stem for each in path.parent.iterdir())
        )
    }
    assert not missing


@pytest.mark.parametrize("document", DEVELOPER_DOCUMENTS, ids=lambda path: path.name)
def test_the_folders_and_names_that_a_document_for_developers_mentions_exist(document: Path) -> None:
    text = document.read_text()
    assert not [*missing_folders(text)]
    assert not [*missing_names(text, code_words())]


def test_a_mention_of_something_that_is_gone_is_found() -> None:
    assert [*missing_files("see `registry/gone.py` and registry/kind.py", (PACKAGE,))] == ["registry/gone.py"]
    table = "A package.\n\nkind, gone_one.py    text\nsub/ gone_two        more text  here\n"
    assert [*missing_modules(table, frozenset({"kind", "sub"}))] == ["gone_one.py", "gone_two"]
    assert [*missing_folders("in `gone/` and in `storage/view/`")] == ["gone/"]
    words = frozenset({"Kind", "check", "build_auth"})
    text = "`Kind.check`, `Kind.gone`, `build_auth`, `gone_function()`, `GONE_VALUE`, `app.gone.Gone`, `spec`, `Kind`"
    assert sorted(missing_names(text, words)) == ["GONE_VALUE", "Gone", "Kind.gone", "gone_function"]
