"""`make test` and `make test-more` have all tests between them, and none twice: see `tests/parts.py`."""

import ast
import subprocess
import sys

import pytest

from tests.parts import PARTS, PURPOSES, SELECTIONS, SMOKE, TESTS, Part, find_part, has_tests_of, is_selected

FILES = sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))


def read_test_names(file: str) -> list[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [f"{file}::{node.name}" for node in functions if node.name.startswith("test_")]


def test_every_test_is_in_exactly_one_of_the_two() -> None:
    assert SELECTIONS["test"] | SELECTIONS["more"] == set(Part)
    assert not SELECTIONS["test"] & SELECTIONS["more"]
    for file in FILES:
        for name in (file, *read_test_names(file)):
            part = find_part(name)
            assert sum(part in SELECTIONS[each] for each in ("test", "more")) == 1, name


def test_the_file_of_every_selected_test_is_collected() -> None:
    for file in FILES:
        for name in read_test_names(file):
            for selection in SELECTIONS:
                assert has_tests_of(file, selection) or not is_selected(name, selection), (name, selection)


def test_every_row_names_a_folder_or_a_file() -> None:
    assert not [row for row in PARTS if not (TESTS / row).exists()]


def test_every_exception_differs_from_the_row_of_its_folder() -> None:
    for row in PARTS:
        folder = row.rpartition("/")[0]
        assert not folder or find_part(folder) != PARTS[row], f"{row}: the row of its folder says the same"


@pytest.mark.parametrize("area", SMOKE)
def test_the_end_to_end_test_of_an_area_exists(area: str) -> None:
    file, _, test = SMOKE[area].partition("::")
    assert (TESTS / file).exists()
    assert not test or SMOKE[area] in read_test_names(file)


def test_every_folder_that_mirrors_no_package_says_what_it_is_for() -> None:
    packages = {path.name for path in (TESTS.parent / "fairlead").iterdir()}
    others = {row for row in PARTS if "/" not in row and (TESTS / row).is_dir()} - packages
    assert others - PURPOSES.keys() == {"architecture", "bench", "deploy", "docs", "harness", "scripts"}
    assert PURPOSES.keys() <= others | packages


def test_the_guide_for_contributors_has_the_same_purposes_and_end_to_end_tests() -> None:
    guide = (TESTS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [f"| `tests/{folder}` | {purpose} |" for folder, purpose in PURPOSES.items()]
    rows += [f"| {area} | `tests/{name}` |" for area, name in SMOKE.items()]
    assert not [row for row in rows if row not in guide.splitlines()]


def test_a_test_in_a_new_folder_needs_a_row() -> None:
    with pytest.raises(LookupError, match=r"tests/new/test_x.py is in no row of PARTS in tests/parts\.py"):
        find_part("new/test_x.py")


def test_the_longest_row_decides() -> None:
    assert find_part("runner/test_life.py") is Part.TEST
    assert find_part("runner/engines/test_limits.py::test_x[a/b]") is Part.MORE
    assert find_part("runner/engines/inside/test_shim.py::test_x") is Part.TEST


def test_a_row_is_no_prefix_of_another_name() -> None:
    assert find_part("client/test_x.py") is Part.PACKAGES
    assert find_part("clients/test_x.py") is Part.MORE
    assert find_part(SMOKE["gateways"] + "[parameter]") is Part.TEST
    assert find_part(SMOKE["gateways"] + "_more") is Part.MORE


def collect(*arguments: str) -> list[str]:
    """The tests without their parameters, whose order depends on what is named on the command line."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *arguments]
    result = subprocess.run(command, cwd=TESTS.parent, check=False, capture_output=True, text=True)
    assert result.returncode in (0, 5), result.stdout  # 5: there are none
    return [line.partition("[")[0] for line in result.stdout.splitlines() if "::" in line]


def test_pytest_collects_what_the_table_says() -> None:
    """In a folder that has tests of both: to import all folders takes a minute."""
    folder = "conformance"
    others = [f"--ignore=tests/{row}" for row in PARTS if row.partition("/")[0] != folder]
    test = collect(*others, "--part", "test")
    more = collect(*others, "--part", "more")
    named = collect(f"tests/{folder}", "--part", "test")
    assert test and more
    assert not set(test) & set(more)
    assert sorted(test + more) == sorted(named), "what is named on the command line runs whatever its part"
