"""Public names that have changed appear only where the alias is declared, and in docs/upgrades.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.cli import FORMER_NAMES as FORMER_COMMANDS
from fairlead.controllers.former_reasons import FORMER_REASONS
from fairlead.settings import ALIASES, OTHER_VARIABLE_ALIASES, flag, variable

ROOT = Path(__file__).resolve().parents[2]
UPGRADING = ROOT / "docs" / "upgrades.md"
DOCUMENTS = [
    *sorted(set((ROOT / "docs").rglob("*.md")) - {UPGRADING}),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
]
SOURCES = sorted((ROOT / "fairlead").rglob("*.py"))

SETTING_NAMES = {*ALIASES, *OTHER_VARIABLE_ALIASES}
REASONS = {reason for reason in FORMER_REASONS if re.fullmatch(r"([A-Z][a-z]+){2,}", reason)}
"""Without single words such as Busy, which mean other things elsewhere."""
FILES = {"seal.keys", "seal.done", "knowledge.json"}
METRICS = {"fairlead_event_loop_hold_seconds", "fairlead_event_loop_hold_max_seconds"}
ANNOTATIONS = {"service.sh/cut-off", "service.sh/cut", "service.sh/token-refused"}
FORMER_NAMES = frozenset(
    {
        *SETTING_NAMES,
        *map(flag, SETTING_NAMES),
        *map(variable, SETTING_NAMES),
        *(f"fairlead {command}" for command in FORMER_COMMANDS),
        *REASONS,
        *FILES,
        *METRICS,
        *ANNOTATIONS,
    }
)
PATTERN = re.compile(
    rf"(?<![\w/.-])(?:{'|'.join(map(re.escape, sorted(FORMER_NAMES, key=len, reverse=True)))})(?![\w-])"
)

DECLARED_IN = {
    "fairlead/app/agent.py": {"knowledge.json"},
    "fairlead/controllers/former_reasons.py": REASONS,
    "fairlead/core/crypto/key_file.py": {"seal.keys", "seal.done"},
    "fairlead/core/folder_security.py": {"seal.keys", "knowledge.json"},
    "fairlead/settings/__init__.py": set(OTHER_VARIABLE_ALIASES),
    "fairlead/settings/declarations.py": set(ALIASES),
}
"""The modules that declare former names, and which."""


def strings(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def former_names(path: Path) -> list[tuple[int, str]]:
    text = path.read_text()
    lines = strings(text) if path.suffix == ".py" else enumerate(text.splitlines(), 1)
    return [(line, name) for line, content in lines for name in PATTERN.findall(content)]


def test_the_code_contains_former_names_only_where_they_are_declared() -> None:
    found = {str(path.relative_to(ROOT)): {name for _, name in former_names(path)} for path in SOURCES}
    assert {path: names for path, names in found.items() if names} == DECLARED_IN


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_use_the_current_names(path: Path) -> None:
    assert former_names(path) == []


def test_every_former_name_is_listed_for_upgrades() -> None:
    page = UPGRADING.read_text()
    derived = {*map(flag, SETTING_NAMES), *map(variable, ALIASES), *OTHER_VARIABLE_ALIASES}
    assert [name for name in sorted(FORMER_NAMES - derived) if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    "line", ["run `fairlead seal status`", "--audit-refused=1", "FAIRLEAD_SEAL_KEYS=x", "| False | `NoConfig` |"]
)
def test_a_former_name_is_found(line: str) -> None:
    assert len(PATTERN.findall(line)) == 1


@pytest.mark.parametrize("line", ["fairlead sealant", "audit_max_days", "my-knowledge.json", "service.sh/cut-offs"])
def test_names_that_only_look_similar_pass(line: str) -> None:
    assert PATTERN.findall(line) == []
