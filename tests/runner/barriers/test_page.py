"""The tables of docs/runner-isolation.md: their tests exist, and what fails without its barrier is what is tested."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.runner.barriers.rows import ENGINES, ROWS, Row

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/runner-isolation.md"
ATTACKERS = "| attacker | asset | barrier | test |"
FAILING = "| without | tests that fail |"
FILE = re.compile(r"`([\w/]+\.py)`")


def read_table(header: str) -> list[list[str]]:
    """The cells of its rows."""
    lines = PAGE.read_text().partition(header)[2].splitlines()[2:]
    rows = [line for line in lines[: lines.index("")] if line.startswith("|")]
    assert rows, f"{PAGE.name} has no table {header}"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in rows]


@cache
def read_test_names(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(each for each in functions if each.startswith("test_"))


def find_file(name: str) -> Path:
    """A name without a folder is one of the tests of engines."""
    folders = (ROOT,) if "/" in name else (ROOT / ENGINES, *(ROOT / ENGINES).iterdir())
    found = [folder / name for folder in folders if (folder / name).is_file()]
    assert len(found) == 1, f"{name} is {len(found)} files"
    return found[0]


@pytest.mark.parametrize("cells", read_table(ATTACKERS), ids=lambda cells: cells[0])
def test_each_attacker_of_the_table_has_tests(cells: list[str]) -> None:
    attacker, _, _, tests = cells
    names = FILE.findall(tests)
    assert names, f"{attacker}: no file of tests"
    assert re.sub(r"`[^`]*`", "", tests).count("/") == 0, f"{attacker}: a folder says too little"
    assert [name for name in names if not read_test_names(find_file(name))] == []


def describe(row: Row) -> str:
    """How the page names a test: by what it tries, or as the code does."""
    function, has_parameter, parameter = row.test.rpartition("::")[2].partition("[")
    is_probe = has_parameter and len(parameter.split()) > 1
    return parameter.removesuffix("]") if is_probe else f"`{function}`"


def test_the_page_lists_what_fails_without_its_barrier() -> None:
    listed = dict(read_table(FAILING))
    assert listed.keys() == {" and ".join(row.without) for row in ROWS}
    missing = [describe(row) for row in ROWS if describe(row) not in listed[" and ".join(row.without)]]
    assert missing == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_test_that_should_fail_exists(row: Row) -> None:
    file, _, test = row.test.partition("::")
    assert test.partition("[")[0] in read_test_names(ROOT / file)
