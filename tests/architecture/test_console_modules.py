"""The console sends nothing that no page uses: exports, texts, icons and classes of stylesheets have a user."""

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath

import pytest

from fairlead.authn.sign_on_policy import SignOnReason
from fairlead.console.build import find_static_graph, load_build

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "fairlead" / "console" / "static"
MODULES = {path.relative_to(STATIC).as_posix(): path.read_text() for path in sorted(STATIC.rglob("*.js"))}
SCRIPTS = "\n".join(MODULES.values())
TESTS = "\n".join(path.read_text() for path in sorted((ROOT / "tests" / "console").rglob("*.*js")))
TEXTS = [path for path in MODULES if path.startswith("texts/")]

PAGES = re.findall(r'import\("([^"]+)"\)', MODULES["pages/routes.js"])
MAX_LINE = 120
MAX_PAGE_BYTES, MAX_BYTES = 200_000, 600_000
"""Of a page that is opened first, and of all pages together: as sent, not compressed."""

VIEW_FUNCTIONS = frozenset({"show", "above", "summary", "tabs", "actions"})
"""What modules of pages export for the tables that import them, such as pages/object-views.js."""

LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|//[^\n]*', re.DOTALL)
EXPORT = re.compile(r"^export (?:default )?(?:async )?(?:function\*?|const|let|class) ([\w$]+)", re.MULTILINE)
MORE_CONSTANTS = re.compile(r'^export const (\w+ = "[^"]*"(?:, \w+ = "[^"]*")+);', re.MULTILINE)
STATIC_IMPORT = re.compile(r'^import \{([^}]+)\} from "([^"]+)"', re.MULTILINE)
DYNAMIC_IMPORT = re.compile(r'import\("([^"]+)"\)')


def resolve(path: str, address: str) -> str:
    return normpath(join(dirname(path), address))


def list_exports(source: str) -> set[str]:
    more = {part.split(" = ")[0] for match in MORE_CONSTANTS.findall(source) for part in match.split(", ")}
    return {*EXPORT.findall(source), *more}


def list_imported(path: str) -> Iterator[str]:
    """The names that other modules import from a module. Those of `import()` are all words of the importing module."""
    for other, source in MODULES.items():
        for names, address in STATIC_IMPORT.findall(source):
            if resolve(other, address) == path:
                yield from (name.split(" as ")[0].strip() for name in names.split(","))
        if any(resolve(other, address) == path for address in DYNAMIC_IMPORT.findall(source)):
            yield from (*re.findall(r"\w+", source), *VIEW_FUNCTIONS)


def list_keys(source: str) -> set[str]:
    """The keys of the object `T` of a module with texts, without those of objects inside of it."""
    body = LITERAL.sub('""', source[source.index("export const T = {") + len("export const T = ") :])
    keys, depth, is_key = set(), 0, False
    for token in re.findall(r"\w+(?=\s*[:,}])|[{}()\[\],]", body):
        if token in "{([":
            depth += 1
        elif token in "})]":
            depth -= 1
            if depth == 0:
                break
        elif token != "," and depth == 1 and is_key:
            keys.add(token)
        is_key = depth == 1 and token in "{,"
    return keys


@pytest.mark.parametrize("path", [path for path in MODULES if not path.startswith("texts/") and path != "main.js"])
def test_every_export_is_imported_elsewhere(path: str) -> None:
    used = {*list_imported(path), *re.findall(r"\w+", TESTS)}
    assert list_exports(MODULES[path]) <= used


@pytest.mark.parametrize("path", MODULES)
def test_every_imported_name_is_used(path: str) -> None:
    source = MODULES[path]
    imported = {
        name.split(" as ")[-1].strip() for names, _ in STATIC_IMPORT.findall(source) for name in names.split(",")
    }
    rest = STATIC_IMPORT.sub("", source)
    assert imported <= set(re.findall(r"[\w$]+", rest))


@pytest.mark.parametrize("path", TEXTS)
def test_every_text_is_shown_somewhere(path: str) -> None:
    users = [
        source
        for other, source in MODULES.items()
        if path in (resolve(other, address) for _, address in STATIC_IMPORT.findall(source))
    ]
    named = {name for source in [*users, MODULES[path]] for name in re.findall(r"\bT\.(\w+)", source)}
    by_variable = {name for source in users if "T[" in source for name in re.findall(r'"(\w+)"', source)}
    assert (keys := list_keys(MODULES[path]))
    assert keys <= named | by_variable


def test_every_reason_of_a_failed_sign_on_has_a_text() -> None:
    source = MODULES["texts/sign-in.js"]
    reasons = source[source.index("reasons: {") : source.index("otherReason")]
    assert set(re.findall(r"^    (\w+):\s+\"", reasons, re.MULTILINE)) == {reason.value for reason in SignOnReason}


@pytest.mark.parametrize("page", sorted({resolve("pages/routes.js", each) for each in PAGES}))
def test_a_page_loads_little(page: str) -> None:
    files = {path: file.body for path, file in load_build().assets.items()}
    styles = {path for path in files if path.endswith(".css")}
    loaded = {*find_static_graph("main.js", files), *find_static_graph(page, files), *styles}
    assert sum(len(files[path]) for path in loaded) < MAX_PAGE_BYTES


def test_all_files_together_are_bounded() -> None:
    assert sum(len(file.body) for file in load_build().assets.values()) < MAX_BYTES


def test_every_icon_is_shown_somewhere() -> None:
    source = MODULES["widgets/common.js"]
    icons = re.findall(r'(\w+): "M', source[source.index("const ICONS") : source.index("};")])
    assert icons
    assert {name for name in icons if f'"{name}"' not in SCRIPTS} == set()


@pytest.mark.parametrize("file", sorted(STATIC.glob("styles/*.css")), ids=lambda file: file.name)
def test_every_class_of_a_stylesheet_is_given_to_an_element(file: Path) -> None:
    rules = re.sub(r'/\*.*?\*/|\{[^{}]*\}|"[^"]*"', "", file.read_text(), flags=re.DOTALL)
    classes = set(re.findall(r"\.([a-z][\w-]*)", rules))
    words = set(re.findall(r"[\w-]+", SCRIPTS))
    composed = {
        prefix + name for prefix in re.findall(r"([a-z]+-)\$\{", SCRIPTS) for name in re.findall(r'"(\w+)"', SCRIPTS)
    }
    assert classes <= words | composed


def test_no_line_of_the_console_is_long() -> None:
    """The formatter breaks code at 120 characters, but neither texts nor comments nor the page."""
    files = [path for path in sorted(STATIC.rglob("*")) if path.suffix in {".js", ".css", ".html"}]
    scripts = [
        path for folder in ("tests/console", "bench", "scripts/console") for path in (ROOT / folder).rglob("*.*js")
    ]
    long_lines = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in [*files, *scripts]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MAX_LINE
    ]
    assert len(files) > 100
    assert long_lines == []


@pytest.mark.parametrize("file", sorted(STATIC.glob("styles/*.css")), ids=lambda file: file.name)
def test_a_stylesheet_has_one_declaration_in_a_line(file: Path) -> None:
    packed = [line for line in file.read_text().splitlines() if re.search(r";\s*\S", line) and "/*" not in line]
    assert packed == []
