"""The console sends nothing that no page uses: exports, texts, icons and classes of stylesheets have a user."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from posixpath import dirname, join, normpath

import pytest

from fairlead.authn.sign_on_policy import SignOnReason
from fairlead.console.build import VENDORED, StaticFile, find_static_graph, load_build

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "fairlead" / "console" / "static"
VENDOR = STATIC / "vendor"
MODULES = {
    path.relative_to(STATIC).as_posix(): path.read_text()
    for path in sorted(STATIC.rglob("*.js"))
    if path.parent != VENDOR
}
SCRIPTS = "\n".join(MODULES.values())
TESTS = "\n".join(path.read_text() for path in sorted((ROOT / "tests" / "console").rglob("*.*js")))
TEXTS = [path for path in MODULES if path.startswith("texts/")]

PAGES = re.findall(r'import\("([^"]+)"\)', MODULES["pages/routes.js"])
MAX_LINE = 120
MAX_FIRST_VISIT, MAX_PAGE = 100_000, 60_000
"""Compressed bytes of a page that is opened first, and of the modules that it alone needs."""
MAX_BYTES = 650_000
"""Of all pages together, as sent and not compressed, without what others wrote."""

VIEW_FUNCTIONS = frozenset({"show", "above", "title", "summary", "tabs", "actions"})
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
        name.split(" as ")[-1].strip()
        for names, _ in STATIC_IMPORT.findall(source)
        for name in names.split(",")
        if name.strip()
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
def count_compressed(paths: Iterable[str], files: Mapping[str, StaticFile]) -> int:
    return sum(len(files[path].compressed or files[path].body) for path in paths)


@pytest.mark.parametrize("page", sorted({resolve("pages/routes.js", each) for each in PAGES}))
def test_a_page_loads_little(page: str) -> None:
    """Neither the editor nor what a page loads later is part of it."""
    build = load_build()
    sources = {path: file.body for path, file in build.assets.items()}
    shell = {*find_static_graph("main.js", sources), *(path for path in sources if path.endswith(".css"))}
    own = {*find_static_graph(page, sources)} - shell
    first = count_compressed(shell | own, build.assets) + len(build.pages[0].compressed or build.pages[0].body)
    assert first < MAX_FIRST_VISIT
    assert count_compressed(own, build.assets) < MAX_PAGE
    assert not {path for path in shell | own if path.startswith(VENDORED)}


def test_all_files_together_are_bounded() -> None:
    assert (
        sum(len(file.body) for path, file in load_build().assets.items() if not path.startswith(VENDORED)) < MAX_BYTES
    )


def test_the_editor_is_the_one_that_its_sources_make() -> None:
    """`scripts/vendor-editor.sh` makes it of the locked packages; their licences are beside it."""
    lines = (ROOT / "scripts" / "editor" / "SHA256SUMS").read_text().splitlines()
    digests = {name: digest for digest, name in (line.split() for line in lines)}
    assert digests == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir()}
    packages = json.loads((ROOT / "scripts" / "editor" / "package-lock.json").read_text())["packages"]
    shipped = {
        f"{name.removeprefix('node_modules/')} {package['version']}"
        for name, package in packages.items()
        if name and not package.get("dev")
    }
    assert shipped <= set((VENDOR / "codemirror.txt").read_text().splitlines())


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
    files = [
        path for path in sorted(STATIC.rglob("*")) if path.suffix in {".js", ".css", ".html"} and path.parent != VENDOR
    ]
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
