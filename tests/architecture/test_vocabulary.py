"""Plain words: identifiers and texts say what an engineer who knows Kubernetes would search for.

The lists are short on purpose. They hold words that were once used here for something that has an established name.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Set
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "fairlead").rglob("*.py"))
DOCUMENTS = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))]
DOCUMENTS.remove(ROOT / "docs" / "upgrades.md")  # it lists names that are gone
DEVELOPMENT_FILES = [
    *(ROOT / name for name in ("Makefile", "pyproject.toml", ".ci/run", "SECURITY.md")),
    *(path for folder in ("scripts", "examples") for path in sorted((ROOT / folder).iterdir()) if path.is_file()),
]
"""Files with texts for developers and users that are neither Python modules of the product nor documents."""

IDENTIFIER_WORDS = frozenset(
    {
        *("asked", "asker", "ears", "entrance", "errand", "everybody", "far", "glimpse", "heard", "keeper", "kept"),
        *("judgement", "knowledge", "lasting", "minting", "nearby", "nobody", "oneself", "people", "rehearse"),
        *("resealing", "rouse", "seal", "sealed", "sealing", "sieve", "somebody", "sought", "standing", "stir"),
        *("stranger", "strangers", "told", "trouble", "undone", "whoever", "wish"),
    }
)
"""Words that no identifier contains: in the tables of the documentation they have other names."""

TEST_WORDS = frozenset(
    {
        *(
            "anybody",
            "asked",
            "asker",
            "desk",
            "ears",
            "entrance",
            "equip",
            "errand",
            "everybody",
            "furnish",
            "glimpse",
        ),
        *("heard", "hears", "judgement", "keeper", "knowledge", "meddled", "mend", "mended", "minting", "nobody"),
        *("notebook", "office", "oneself", "people", "realm", "rehearse", "resealing", "rouse", "ruled", "sieve"),
        *("somebody", "sought", "stir", "stranger", "strangers", "told", "town", "whoever", "wish"),
        "world",
    }
)
"""Words that no function, class, parameter or variable of the tests, benchmarks and scripts contains."""

TEXT_WORDS = re.compile(
    r"\b(?:whoever|whomever|somebody|nobody|everybody|oneself|rehearses?|rehearsal|asker|in vain|mend(?:s|ed)?"
    r"|(?:re)?seal(?:s|ed|ing)?|entrances?|strangers?|judgements?|knowledge)\b",
    re.IGNORECASE,
)
"""Words that no message, docstring, comment or document contains."""
ALIAS = re.compile(r'"(?:seal|sealed|seal_keys|seal-key|seal\.keys|seal\.done|knowledge\.json)"')
"""Names of earlier versions that still work, or that are stored: a text may be one of them."""


def split_words(identifier: str) -> list[str]:
    """The words of an identifier, in lower case: `_FarSocket` and `far_socket` have the same two."""
    identifier = identifier.replace("world_writable", "")  # the name of a file mode
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", identifier)]


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that a file introduces: functions, classes, parameters, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Every string and comment with such a word in its file, with its line."""
    if not TEXT_WORDS.search(source):  # a tenth of the time that reading the tokens takes
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT) and not ALIAS.fullmatch(token.string):
            yield token.start[0], token.string


def identifier_breaches(path: str, source: str, words: Set[str] = IDENTIFIER_WORDS) -> list[str]:
    module = [word for word in split_words(Path(path).stem) if word in words]
    found = [f"{path}: the module's name contains {word!r}" for word in module]
    if words.isdisjoint(split_words(source)):  # a tenth of the time that parsing takes
        return found
    for line, name in identifiers(ast.parse(source)):
        found += [f"{path}:{line}: {name} contains {word!r}" for word in split_words(name) if word in words]
    return found


def text_breaches(path: str, lines: Iterator[tuple[int, str]]) -> list[str]:
    return [f"{path}:{line}: {match[0]!r}" for line, text in lines for match in TEXT_WORDS.finditer(text)]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_identifier_uses_an_invented_word() -> None:
    assert [breach for path in SOURCES for breach in identifier_breaches(relative(path), path.read_text())] == []


def test_no_identifier_of_a_test_uses_an_invented_word() -> None:
    paths = [path for folder in ("tests", "bench", "scripts") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert paths
    assert [
        breach for path in paths for breach in identifier_breaches(relative(path), path.read_text(), TEST_WORDS)
    ] == []


def test_no_text_of_the_product_uses_an_invented_word() -> None:
    assert [breach for path in SOURCES for breach in text_breaches(relative(path), texts(path.read_text()))] == []


def test_no_document_uses_an_invented_word() -> None:
    documents = ((path, enumerate(path.read_text().splitlines(), 1)) for path in (*DOCUMENTS, *DEVELOPMENT_FILES))
    assert [breach for path, lines in documents for breach in text_breaches(relative(path), iter(lines))] == []


@pytest.mark.parametrize(
    "source",
    [
        "class FarSocket: ...",
        "def told() -> None: ...",
        "def check(asked: str) -> None: ...",
        "for each_told in (): ...",
        "self.sieve = 1",
        "KEPT = 1",
        "_LONGEST_TOLD: int = 3",
        "seal_keys = 1",
        "strangers = 1",
    ],
)
def test_an_invented_word_in_an_identifier_is_found(source: str) -> None:
    assert len(identifier_breaches("fairlead/x.py", source)) == 1


def test_an_invented_word_in_the_name_of_a_module_is_found() -> None:
    assert identifier_breaches("fairlead/controllers/far_names.py", "") != []


@pytest.mark.parametrize(
    "source", ['x = "mend it"', '"""Whoever asks."""', "# nobody knows", 'f"{1} asked in vain"', '"a sealed value"']
)
def test_an_invented_word_in_a_text_is_found(source: str) -> None:
    assert len(text_breaches("fairlead/x.py", texts(source))) == 1


@pytest.mark.parametrize("source", ["safari = 1", "def recommend() -> None: ...", 'x = "amended"', 'x = "seal.keys"'])
def test_words_that_only_look_similar_pass(source: str) -> None:
    assert identifier_breaches("fairlead/x.py", source) == text_breaches("fairlead/x.py", texts(source)) == []
