"""fairlead.cli.ui.flags: commands whose flags become one dataclass."""

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
    calls: list[Outer] = []
    app = typer.Typer()

    @app.command()
    @options_from(Outer)
    def command(options: Outer) -> None:
        """Print a greeting."""
        calls.append(options)

    return CliRunner().invoke(app, arguments).exit_code, calls


def test_flags_of_nested_dataclasses_are_read() -> None:
    assert run("x") == (0, [Outer("x")])
    assert run("x", "--size", "5", "--loud") == (0, [Outer("x", Inner(5), True)])


def test_required_arguments_stay_required_and_types_are_checked() -> None:
    assert run() == (2, [])
    assert run("x", "--size", "many") == (2, [])


def test_the_help_is_the_docstring_of_the_function() -> None:
    @options_from(Outer)
    def command(options: Outer) -> None:
        """Print a greeting."""

    assert command.__doc__ == "Print a greeting."
