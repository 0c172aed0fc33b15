"""Public names that have changed appear only where data of the first release is read, and in docs/upgrades.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.app.data_migrations import FORMER_REASONS

ROOT = Path(__file__).resolve().parents[2]
UPGRADING = ROOT / "docs" / "upgrades.md"
DOCUMENTS = [
    *sorted(set((ROOT / "docs").rglob("*.md")) - {UPGRADING}),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
]
SOURCES = sorted((ROOT / "fairlead").rglob("*.py"))

SETTINGS = {"cluster_sockets", "audit_days", "audit_days_min", "audit_refused", "watches_per_key", "seal_keys"}
REASONS = {reason for reason in FORMER_REASONS if re.fullmatch(r"([A-Z][a-z]+){2,}", reason)}
"""Without single words such as Busy, which mean other things elsewhere."""
COMMANDS = {"fairlead seal"}
FILES = {"seal.keys", "seal.done", "knowledge.json"}
METRICS = {"fairlead_event_loop_hold_seconds", "fairlead_event_loop_hold_max_seconds"}
ANNOTATIONS = {"service.sh/cut-off", "service.sh/cut", "service.sh/token-refused"}
FORMER_NAMES = frozenset(
    {
        *SETTINGS,
        *(f"--{name.replace('_', '-')}" for name in SETTINGS),
        *(f"FAIRLEAD_{name.upper()}" for name in SETTINGS),
        *COMMANDS,
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
    "fairlead/app/data_migrations.py": REASONS,
    "fairlead/core/crypto/encryption.py": {"seal.keys", "seal.done"},
    "fairlead/core/machine/folder_security.py": {"seal.keys"},
}
"""The modules that read data of the first release, and its names in them."""


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
    listed = {*COMMANDS, *REASONS, *FILES, *METRICS, *ANNOTATIONS, *SETTINGS - {"seal_keys"}, "FAIRLEAD_SEAL_KEYS"}
    assert [name for name in sorted(listed) if f"`{name}`" not in page] == []


def test_the_page_about_upgrades_has_the_table_of_reasons() -> None:
    section = UPGRADING.read_text().partition("### Reasons of conditions and Events")[2].partition("\n### ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|$", section, re.MULTILINE)) == FORMER_REASONS


@pytest.mark.parametrize(
    "line", ["run `fairlead seal status`", "--audit-refused=1", "FAIRLEAD_SEAL_KEYS=x", "| False | `NoConfig` |"]
)
def test_a_former_name_is_found(line: str) -> None:
    assert len(PATTERN.findall(line)) == 1


@pytest.mark.parametrize("line", ["fairlead sealant", "audit_max_days", "my-knowledge.json", "service.sh/cut-offs"])
def test_names_that_only_look_similar_pass(line: str) -> None:
    assert PATTERN.findall(line) == []
