"""The page about the security model tells the truth: every limit on it exists and has that value."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.settings import SETTINGS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "security-model.md"
ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<limit>[0-9][^|]*) \| `(?P<by>[A-Za-z_.]+)` \| (?P<then>[^|]+) \|$", re.M)
UNITS = {"": 1, "s": 1, "B": 1, "KiB": 1024, "MiB": 1024**2}
NO_LIMIT = frozenset({"shutdown_drain", "shutdown_grace"})
"""Settings in the group of limits that bound nothing that a client can do."""


def rows() -> Iterator[tuple[str, str, str]]:
    for found in ROW.finditer(PAGE.read_text(encoding="utf-8")):
        yield found["what"], found["limit"], found["by"]


def value_of(name: str) -> object:
    if name in SETTINGS:
        return SETTINGS[name].default
    module, _, constant = name.rpartition(".")
    return getattr(importlib.import_module(f"fairlead.{module}"), constant)


@pytest.mark.parametrize(("what", "limit", "by"), list(rows()))
def test_a_limit_has_the_value_that_the_page_says(what: str, limit: str, by: str) -> None:
    number, _, unit = limit.partition(" ")
    assert float(number.replace(",", "")) * UNITS[unit] == value_of(by), what


def test_every_row_of_a_table_of_limits_is_understood() -> None:
    limits = PAGE.read_text(encoding="utf-8").partition("\n## Limits\n")[2]
    lines = [line for line in limits.splitlines() if line.startswith("| ") and not line.startswith("| what ")]
    assert len(lines) == len(list(rows())) > 60


def test_every_setting_that_is_a_limit_is_on_the_page() -> None:
    named = {by for _, _, by in rows()}
    limits = {name for name, each in SETTINGS.items() if each.info.group == "Limits"} - NO_LIMIT
    assert limits <= named


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / target).resolve().exists(), target
