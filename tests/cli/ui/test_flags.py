"""Commands whose flags are one value."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from fairlead.cli.ui.flags import options_from


@dataclass(frozen=True, slots=True)
class Inner:
    size: Annotated[int, typer.Option("--size")] = 3


@dataclass(frozen=True, slots=True)
class Outer:
    name: Annotated[str, typer.Argument()]
    inner: Inner = Inner()
    loud: Annotated[bool, typer.Option("--loud")] = False


def run(*arguments: str) -> tuple[int, list[Outer]]:
    seen: list[Outer] = []
    app = typer.Typer()

    @app.command()
    @options_from(Outer)
    def command(given: Outer) -> None:
        """Say something."""
        seen.append(given)

    return CliRunner().invoke(app, arguments).exit_code, seen


def test_a_value_is_made_of_the_flags_also_of_those_inside() -> None:
    assert run("x") == (0, [Outer("x")])
    assert run("x", "--size", "5", "--loud") == (0, [Outer("x", Inner(5), True)])


def test_what_is_required_stays_required_and_types_are_checked() -> None:
    assert run() == (2, [])
    assert run("x", "--size", "many") == (2, [])


def test_the_help_is_that_of_the_function() -> None:
    @options_from(Outer)
    def command(given: Outer) -> None:
        """Say something."""

    assert command.__doc__ == "Say something."
