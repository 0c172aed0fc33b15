"""The rules of the house that a machine can check.

Imports between rooms are import-linter's contracts in `pyproject.toml`, which `make check` checks. What depends on
single files (drivers, the HTTP server) or on how code is written is read from the syntax trees here. Each rule is a
function from one source file to its breaches, so that the second half of this page can show each rule a breach and see
it noticed: a rule that lets everything pass would look just like a tidy house.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("fairlead", "bench")
EVERYTHING = (*PRODUCT, "tests")

STANDS_ALONE = {Path("tests/conformance/replay.py")}
"""Tools that came with a kit and are kept as they came."""

MAX_PARAMETERS = 6

VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "base", "manager", "managers", "misc"}

# Spelled in two halves: this file obeys its own rule.
REMINDER = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b")

# A package from outside, and the modules (with all below them) that alone may import it.
HOMES = {
    "sqlite3": ("fairlead.storage.sqlite",),
    "asyncpg": ("fairlead.storage.postgres",),
    "psycopg": ("fairlead.storage.postgres",),
    "grpc": ("fairlead.storage.etcd",),
    "granian": ("fairlead.server.http.http_server",),
}


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file: where it is, seen from the project's root, and what it says."""

    path: Path
    text: str

    @property
    def module(self) -> str:
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @property
    def functions(self) -> "Sequence[Function]":
        return _find_functions(self)


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    line: int
    parameters: int
    """Without `self` and `cls`."""


Rule = Callable[[Source], Iterator[str]]


@cache
def _find_functions(source: Source) -> Sequence[Function]:
    """Cached, because parsing takes most of the time of a rule."""
    nodes = (node for node in statements(source.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return tuple(map(_describe, nodes))


def _describe(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return Function(node.name, node.lineno, len(names) - (names[:1] in (["self"], ["cls"])))


def sources(*folders: str) -> list[Source]:
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    found = [Source(path.relative_to(ROOT), path.read_text(encoding="utf-8")) for path in paths]
    return [source for source in found if source.path not in STANDS_ALONE]


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Every statement of a file, at any depth. `ast.walk` would also visit all expressions, which have none."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        children = getattr(node, name, None)
        if isinstance(children, list):  # the body of a lambda or of a conditional expression is none
            for child in children:
                if isinstance(child, ast.stmt):
                    yield child
                yield from statements(child)


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every absolutely imported module with its line, wherever in the file the import stands."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.lineno, node.module


def find_misplaced_imports(source: Source) -> Iterator[str]:
    if not any(name in source.text for name in HOMES):
        return
    for line, name in imported(source.tree):
        homes = HOMES.get(name.partition(".")[0])
        if homes and not any(source.module == home or source.module.startswith(home + ".") for home in homes):
            yield f"{source.path}:{line}: imports {name}; only {' and '.join(homes)} may"


def find_packed_assignments(source: Source) -> Iterator[str]:
    """One assignment for each value that is computed: a reader finds each name at the start of a line."""
    for node in statements(source.tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Tuple)
            and isinstance(node.targets[0], ast.Tuple)
        ):
            computed = [each for each in node.value.elts if any(isinstance(part, ast.Call) for part in ast.walk(each))]
            if len(computed) > 1:
                yield f"{source.path}:{node.lineno}: {len(computed)} calls in one assignment; write one for each"


def find_starred_tuples(source: Source) -> Iterator[str]:
    """Arguments that are wrapped in a tuple take fewer lines, and nothing says which parameter each of them is."""
    if "(*(" not in source.text and "*[" not in source.text and " *(" not in source.text:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            for each in node.args:
                if isinstance(each, ast.Starred) and isinstance(each.value, ast.Tuple | ast.List):
                    yield f"{source.path}:{each.lineno}: a literal is unpacked into arguments; write the arguments"


def crowded_functions(source: Source) -> Iterator[str]:
    """Written functions only: the fields of a dataclass are no parameters that anybody reads in a row."""
    for function in source.functions:
        count = function.parameters
        if count > MAX_PARAMETERS:
            yield f"{source.path}:{function.line}: {function.name} takes {count} parameters; make a value of them"


def vague_names(source: Source) -> Iterator[str]:
    vague = VAGUE_NAMES.intersection(source.path.with_suffix("").parts)
    if vague:
        yield f"{source.path}: `{vague.pop()}` names no idea; say what is inside"


def reminders(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), start=1):
        if REMINDER.search(line):
            yield f"{source.path}:{number}: do it now, or write an issue"


def find_partials_in_classes(source: Source) -> Iterator[str]:
    """Python 3.14 passes the instance to a `functools.partial` that is an attribute of a class; earlier ones do not."""
    if "partial(" not in source.text:
        return
    for node in statements(source.tree):
        for each in node.body if isinstance(node, ast.ClassDef) else ():
            value = each.value if isinstance(each, ast.Assign | ast.AnnAssign) else None
            if isinstance(value, ast.Call) and ast.unparse(value.func) in ("partial", "functools.partial"):
                yield f"{source.path}:{each.lineno}: a partial is no method in each Python; wrap it in staticmethod()"


def breaches(rule: Rule, *folders: str) -> str:
    found = sources(*folders)
    assert found, f"no Python files under {folders}: the rule would hold for want of code"
    return "\n".join(breach for source in found for breach in rule(source))


def test_drivers_and_the_http_server_are_imported_only_at_home() -> None:
    assert not breaches(find_misplaced_imports, "fairlead")


def test_each_value_has_an_assignment_of_its_own() -> None:
    assert not breaches(find_packed_assignments, *PRODUCT)


def test_arguments_are_not_packed() -> None:
    assert not breaches(find_starred_tuples, *PRODUCT)


def test_no_function_takes_more_than_six_parameters() -> None:
    assert not breaches(crowded_functions, *PRODUCT)


def test_every_module_name_says_what_is_inside() -> None:
    assert not breaches(vague_names, *EVERYTHING)


def test_no_class_has_a_partial_as_a_method() -> None:
    assert not breaches(find_partials_in_classes, *EVERYTHING)


def test_no_reminders_are_left_in_the_code() -> None:
    assert not breaches(reminders, *EVERYTHING)


CROWDED = "def f(a, b, c, d, e, f, g): ..."

BREACHES: list[tuple[Rule, str, str]] = [
    (find_misplaced_imports, "fairlead/registry/resource.py", "def f():\n    import sqlite3"),
    (find_misplaced_imports, "fairlead/storage/view/view.py", "from sqlite3 import dbapi2"),
    (find_misplaced_imports, "fairlead/storage/sqlite_like.py", "import sqlite3"),
    (find_misplaced_imports, "fairlead/server/api/watch.py", "import granian.rsgi"),
    (find_packed_assignments, "fairlead/app.py", "def f():\n    a, b = g(), h()"),
    (find_packed_assignments, "fairlead/app.py", "a, b, c = 1, g().x, [h()]"),
    (find_starred_tuples, "fairlead/app.py", "x = f(1, *(a, b))"),
    (find_starred_tuples, "fairlead/app.py", "async def g():\n    await f(*[a, b], c=1)"),
    (crowded_functions, "fairlead/app.py", f"try: ...\nexcept E:\n  match x:\n    case 1:\n      {CROWDED}"),
    (crowded_functions, "fairlead/app.py", f"class C:\n  for x in y: ...\n  else:\n    {CROWDED}"),
    (crowded_functions, "fairlead/app.py", f"try: ...\nfinally:\n  with x:\n    {CROWDED}"),
    (crowded_functions, "fairlead/app.py", "async def f(a, b, c, d, *, e, f, g): ..."),
    (find_partials_in_classes, "fairlead/app.py", "class C:\n    now = partial(datetime.now, UTC)"),
    (find_partials_in_classes, "fairlead/app.py", "def f():\n  class C:\n    f: F = functools.partial(g)"),
    (vague_names, "fairlead/server/utils.py", ""),
    (vague_names, "fairlead/common/__init__.py", ""),
    (reminders, "fairlead/app.py", "x = 1  # TO" + "DO: more"),
]

TIDY: list[tuple[Rule, str, str]] = [
    (find_misplaced_imports, "fairlead/storage/sqlite.py", "import sqlite3"),
    (find_misplaced_imports, "fairlead/server/http/http_server.py", "from granian.rsgi import Scope"),
    (find_packed_assignments, "fairlead/app.py", "a, b = b, a + 1\nc, d = f()\ne, f = 0, g()"),
    (find_starred_tuples, "fairlead/app.py", "f(*values, *(g(x) for x in y))\nz = (*a, *b)"),
    (crowded_functions, "fairlead/app.py", "class C:\n    def f(self, a, b, c, d, e, f): ..."),
    (find_partials_in_classes, "fairlead/app.py", "class C:\n    now = staticmethod(partial(datetime.now, UTC))"),
    (find_partials_in_classes, "fairlead/app.py", "now = partial(datetime.now, UTC)"),
    (vague_names, "fairlead/storage/database.py", ""),
    (reminders, "fairlead/app.py", "mastodon = 1"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BREACHES)
def test_a_breach_of_a_rule_is_noticed(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(Path(path), text)))


@pytest.mark.parametrize(("rule", "path", "text"), TIDY)
def test_a_tidy_file_is_left_alone(rule: Rule, path: str, text: str) -> None:
    assert not list(rule(Source(Path(path), text)))
