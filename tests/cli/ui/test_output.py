"""fairlead.cli.ui.output: tables at a terminal keep values that users copy in one piece."""

import re

import pytest

from fairlead.cli.ui.output import format_cell, print_table

HEADERS = ("NAME", "REASON")
ROW = ("a-name-of-some-length", "one two three four five six seven eight nine ten")


def print_rows(capsys: pytest.CaptureFixture[str], *rows: tuple[str, str]) -> list[str]:
    print_table(HEADERS, rows, "")
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    return [line.rstrip() for line in text.splitlines()]


def set_terminal_width(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", str(columns))


def test_the_last_column_is_folded_to_fit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    set_terminal_width(monkeypatch, 48)
    header, first, *rest = print_rows(capsys, ROW)
    assert header.split() == ["NAME", "REASON"]
    assert first == "a-name-of-some-length   one two three four five"
    assert [line.strip() for line in rest] == ["six seven eight nine ten"]


def test_a_terminal_that_is_too_narrow_gets_unwrapped_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_terminal_width(monkeypatch, 30)
    assert print_rows(capsys, ROW)[1:] == ["   ".join(ROW)]


def test_output_that_is_not_a_terminal_gets_unwrapped_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TTY_COMPATIBLE", raising=False)
    monkeypatch.setenv("COLUMNS", "48")
    assert print_rows(capsys, ROW)[1:] == ["   ".join(ROW)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0, "0.0"),
        (False, "false"),
        (True, "true"),
        (None, "-"),
        ("", "-"),
        ([], "-"),
        ({}, "-"),
        ("a", "a"),
    ],
)
def test_zero_and_false_are_values_of_a_cell(value: object, text: str) -> None:
    assert format_cell(value) == text
