"""`server/` is generic: no module of it knows a kind of the product. What it has to know comes from features.

import-linter checks that it imports neither `kinds` nor `storage`. Here, its constants and the names that it imports
are checked for the words of the product: a path, a label or the plural of a kind would be such a constant.
"""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "fairlead/server").rglob("*.py"))

WORDS = {"accesskey", "app", "project", "runner", "space", "virtualcluster", "workspace"}
"""Words of the product, in the singular."""

EXEMPT = {
    ("audit/events.py", "accesskey"): "the name of the key in `user.extra`, which is part of the format of events",
    ("audit/redaction.py", "accesskey"): "names of fields and subresources that may have a credential, in any API",
    ("http/http_server.py", "app"): "the ASGI application",
}


def find_product_words(source: str) -> set[str]:
    return {word for text in list_names(ast.parse(source)) for word in split_words(text) if word in WORDS}


def list_names(tree: ast.Module) -> Iterator[str]:
    """Imported modules and names, constants, and texts of one word: paths, labels, keys. No sentences or docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.Name) and node.id.isupper():
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not re.search(r"\s", node.value):
            yield node.value


def split_words(text: str) -> Iterator[str]:
    """The words of a name or path, and each pair of them as one: `ACCESS_KEYS` has `access`, `key` and `accesskey`."""
    parts = [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text)]
    words = [*parts, *(first + second for first, second in pairwise(parts))]
    for word in words:
        yield word
        yield word.removesuffix("s")
        yield word.removesuffix("instances").removesuffix("instance")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_server_knows_no_words_of_the_product(path: Path) -> None:
    module = path.relative_to(ROOT / "fairlead/server").as_posix()
    found = {word for word in find_product_words(path.read_text(encoding="utf-8")) if (module, word) not in EXEMPT}
    assert not found, f"server/{module}: {', '.join(sorted(found))} belongs into a feature (features/contract.py)"


@pytest.mark.parametrize(("module", "word"), EXEMPT)
def test_each_exception_is_needed(module: str, word: str) -> None:
    assert word in find_product_words((ROOT / "fairlead/server" / module).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE", "space"),
        ("from fairlead.authn.access_keys import Pepper", "accesskey"),
        ("from fairlead.signin.x import VirtualClusterPaths", "virtualcluster"),
        ('PATH = "/kubernetes/project/"', "project"),
        ('plural = "virtualclusterinstances"', "virtualcluster"),
        ('plural = "spaceinstances"', "space"),
        ('RUNNERS = "x"', "runner"),
        ('match x:\n    case ["project", name]:\n        pass', "project"),
        ('label = "service.sh/workspace"', "workspace"),
    ],
)
def test_a_word_of_the_product_is_noticed(source: str, word: str) -> None:
    assert word in find_product_words(source)


def test_sentences_and_other_words_are_not() -> None:
    source = '"""About a project."""\nraise ValueError("an access key is missing")\nNAMESPACE = "namespaces"'
    assert find_product_words(source) == set()
