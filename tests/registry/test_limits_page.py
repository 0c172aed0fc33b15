"""docs/limits.md lists every limit of registry/limits.py with its number, and no others."""

import re
from pathlib import Path

from fairlead.registry import limits
from fairlead.settings import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "limits.md"
_ROW = re.compile(r"^\| ([A-Z_]+) \| ([0-9,]+) \| ", re.MULTILINE)
_UNITS = {"KIB", "MIB", "MAX_NUMBER_CHARS", "MAX_VALUES"}


def test_the_page_shows_every_limit_with_its_number() -> None:
    rows = _ROW.findall(PAGE.read_text())
    shown = {name: int(number.replace(",", "")) for name, number in rows}
    table = {name: number for name, number in vars(limits).items() if name.isupper() and name not in _UNITS}
    assert shown == table
    assert len(rows) == len(table), "a limit has two rows"


def test_the_limits_on_stored_objects_are_the_defaults_of_their_settings() -> None:
    names = [name for name in vars(limits) if name.startswith("STORED_")]
    assert names
    assert {name: vars(limits)[name] for name in names} == {name: getattr(Settings(), name.lower()) for name in names}
