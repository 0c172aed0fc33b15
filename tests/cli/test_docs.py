"""docs/cli.md has every command and every flag, and names no flag that does not exist."""

import re
from collections.abc import Iterator

import pytest
from typer.core import TyperCommand, TyperGroup, TyperOption

from fairlead.cli import COMMANDS, load_command
from tests.cli.conftest import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text()
UNDOCUMENTED = {
    *("up", "serve", "agent", "install", "uninstall", "doctor", "support-bundle", "encryption-key", "demo"),
}
"""Commands that have pages of their own; this page does not mention them."""


def iterate_commands(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    if isinstance(command, TyperGroup):
        for name, each in command.commands.items():
            yield from iterate_commands(each, (*path, name))
    elif isinstance(command, TyperCommand):
        yield path, command


ALL = dict(each for entry in COMMANDS for each in iterate_commands(load_command(entry.name), (entry.name,)))
DOCUMENTED = {path: command for path, command in ALL.items() if path[0] not in UNDOCUMENTED}


def get_long_flags(command: TyperCommand) -> set[str]:
    options = (each for each in command.params if isinstance(each, TyperOption) and not each.hidden)
    return {flag for option in options for flag in (*option.opts, *option.secondary_opts) if flag.startswith("--")}


@pytest.mark.parametrize("path", list(DOCUMENTED), ids=" ".join)
def test_every_command_is_on_the_page(path: tuple[str, ...]) -> None:
    assert f"fairlead {' '.join(path)}" in PAGE


def test_every_command_in_an_example_exists_with_its_flags() -> None:
    examples = re.findall(r"fairlead ((?:[a-z-]+ ?)+)([^`\n]*)", PAGE)
    checked = 0
    for words, rest in examples:
        names = tuple(words.split())
        path = next((names[:length] for length in (2, 1) if names[:length] in ALL), None)
        if path is None:
            continue
        checked += 1
        unknown = set(re.findall(r"(?<!\S)--[a-z-]+", rest)) - get_long_flags(ALL[path]) - {"--help"}
        assert not unknown, f"fairlead {' '.join(path)} has no {unknown}"
    assert checked > 30


def test_every_flag_is_on_the_page() -> None:
    used = {flag for command in DOCUMENTED.values() for flag in get_long_flags(command)}
    assert {flag for flag in used if not re.search(rf"(?<!\S)[`(]*{flag}(?![a-z-])", PAGE)} == set()
