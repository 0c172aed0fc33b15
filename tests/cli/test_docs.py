"""docs/cli.md is held against the commands: none is missing, and no flag is made up."""

import re
from collections.abc import Iterator

import pytest
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from fairlead.cli import FORMER_NAMES, make_app
from tests.cli.conftest import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text()
STARTING = {"up", "serve", "agent", "encryption-key", *FORMER_NAMES}
"""Commands with pages of their own, and former names, which the page does not mention."""


def commands(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    if isinstance(command, TyperGroup):
        for name, each in command.commands.items():
            yield from commands(each, (*path, name))
    elif isinstance(command, TyperCommand):
        yield path, command


ALL = dict(commands(get_command(make_app())))
TALKING = {path: command for path, command in ALL.items() if path[0] not in STARTING}


def flags(command: TyperCommand) -> set[str]:
    options = (each for each in command.params if isinstance(each, TyperOption))
    return {flag for option in options for flag in (*option.opts, *option.secondary_opts) if flag.startswith("--")}


@pytest.mark.parametrize("path", list(TALKING), ids=" ".join)
def test_every_command_is_on_the_page(path: tuple[str, ...]) -> None:
    assert f"fairlead {' '.join(path)}" in PAGE


def test_every_command_that_an_example_types_exists_with_its_flags() -> None:
    typed = re.findall(r"fairlead ((?:[a-z-]+ ?)+)([^`\n]*)", PAGE)
    seen = 0
    for words, rest in typed:
        names = tuple(words.split())
        path = next((names[:length] for length in (2, 1) if names[:length] in ALL), None)
        if path is None:
            continue
        seen += 1
        unknown = set(re.findall(r"(?<!\S)--[a-z-]+", rest)) - flags(ALL[path]) - {"--help"}
        assert not unknown, f"fairlead {' '.join(path)} has no {unknown}"
    assert seen > 30


def test_every_flag_is_on_the_page() -> None:
    used = {flag for command in TALKING.values() for flag in flags(command)}
    assert {flag for flag in used if not re.search(rf"(?<!\S)[`(]*{flag}(?![a-z-])", PAGE)} == set()
