"""No module imports itself through others: neither in Python nor in the JavaScript of the console.

An import inside a function counts, and so does `import()`: it delays a circle, and does not break it. Imports for types
alone (`if TYPE_CHECKING`) do not count.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from posixpath import dirname, join, normpath

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONSOLE = ROOT / "fairlead" / "console" / "static"
JAVASCRIPT_IMPORT = re.compile(r'(?:^(?:import|export)\s[^;]*?from\s|^import\s|\bimport\()"(\.[^"]+)"', re.MULTILINE)

JAVASCRIPT_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)

Graph = Mapping[str, Set[str]]


def python_modules() -> dict[str, str]:
    """The source of each module by its name."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "fairlead").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return found


def javascript_modules() -> dict[str, str]:
    return {path.relative_to(CONSOLE).as_posix(): path.read_text() for path in sorted(CONSOLE.rglob("*.js"))}


def python_graph(modules: Mapping[str, str]) -> Graph:
    return {name: set(_python_imports(ast.parse(source), modules)) - {name} for name, source in modules.items()}


def _python_imports(tree: ast.AST, modules: Mapping[str, str]) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in modules)
        elif isinstance(node, ast.ImportFrom):
            package = node.module or ""
            inner = (f"{package}.{each.name}" for each in node.names)
            yield from (each if each in modules else package for each in inner)
        else:
            yield from _python_imports(node, modules)


def javascript_graph(modules: Mapping[str, str]) -> Graph:
    graph: dict[str, Set[str]] = {}
    for name, source in modules.items():
        addresses = JAVASCRIPT_IMPORT.findall(JAVASCRIPT_COMMENT.sub("", source))
        graph[name] = {normpath(join(dirname(name), address)) for address in addresses}
    return graph


def find_circle(graph: Graph) -> list[str]:
    """The modules of one circle, in the order of their imports; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_python_modules_form_no_circle() -> None:
    graph = python_graph(python_modules())
    assert len(graph) > 500 and any(graph.values())
    assert find_circle(graph) == []


def test_modules_of_the_console_form_no_circle() -> None:
    graph = javascript_graph(javascript_modules())
    imported = set[str]().union(*graph.values())
    assert imported <= graph.keys() and "pages/object.js" in imported
    assert find_circle(graph) == []


@pytest.mark.parametrize("source", ["import a.b", "from a import b", "def f():\n    from a.b import name"])
def test_a_circle_of_python_modules_is_found(source: str) -> None:
    modules = {"a": "", "a.b": "from a import c", "a.c": source}
    assert set(find_circle(python_graph(modules))) == {"a.b", "a.c"}


def test_an_import_for_types_is_no_circle() -> None:
    modules = {"a": "", "a.b": "import a.c", "a.c": "if TYPE_CHECKING:\n    import a.b"}
    assert find_circle(python_graph(modules)) == []


@pytest.mark.parametrize(
    "source",
    [
        'import { b } from "../b.js";',
        'import "../b.js";',
        'export { b } from "../b.js";',
        'const load = () => import("../b.js");',
        'import {\n  one,\n  two,\n} from "../b.js";',
    ],
)
def test_a_circle_of_javascript_modules_is_found(source: str) -> None:
    modules = {"b.js": 'import { c } from "./pages/c.js";', "pages/c.js": source}
    assert set(find_circle(javascript_graph(modules))) == {"b.js", "pages/c.js"}
