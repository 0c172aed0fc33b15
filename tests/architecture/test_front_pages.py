"""The docstring of a package is its front page: it names every module and package in it, so that a reader who looks for
something finds the file without a search."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path.parent for path in (ROOT / "fairlead").rglob("__init__.py"))


def find_unnamed(package: Path) -> list[str]:
    page = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    modules = [path.stem for path in package.glob("*.py") if path.stem != "__init__"]
    packages = [path.parent.name for path in package.glob("*/__init__.py")]
    return sorted(name for name in (*modules, *packages) if not re.search(rf"\b{re.escape(name)}\b", page))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_front_page_names_every_module(package: Path) -> None:
    unnamed = find_unnamed(package)
    place = package.relative_to(ROOT) / "__init__.py"
    assert not unnamed, f"{place}: add a line about {', '.join(unnamed)} to the docstring"


def test_a_module_without_a_line_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text('"""A package.\n\n- `named`, `inner/`\n"""\n')
    for name in ("named.py", "unnamed.py", "inner/__init__.py", "other/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert find_unnamed(tmp_path) == ["other", "unnamed"]
