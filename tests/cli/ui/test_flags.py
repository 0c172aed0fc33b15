"""fairlead.cli.ui.flags: commands whose flags become one dataclass."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from fairlead.cli.ui.flags import options_from
from tests.harness.cli import CliFixture


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


@pytest.mark.parametrize(
    "words",
    [
        "get spaceinstances --project",
        "get spaceinstances --namespace",
        "delete spaceinstances --selector app=web --yes --project",
        "delete spaceinstances --selector app=web --yes --namespace",
        "workspace list --project",
        "space create dev --project",
        "space create dev --project demo --cluster",
        "vcluster migrate old --to other --from",
        "kubeconfig --project",
        "key create --user",
        "key create --project demo --project",
        "key list --team",
        "audit --user",
        "audit --project",
        "audit --name",
        "audit --resource",
        "whoami --context",
    ],
)
def test_an_empty_name_is_not_taken_for_none(user: CliFixture, words: str) -> None:
    result = user.run(*words.split(), "")
    assert (result.code, "the name is empty; leave the flag out" in result.err) == (2, True), result.err
    assert user.fake.requests == []
