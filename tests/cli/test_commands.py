"""fairlead.cli: help, versions, settings errors, and which command is loaded."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead import __version__
from fairlead.cli import COMMANDS, make_app, requested_command
from fairlead.settings import ALIASES, SETTINGS, flag

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def run_fairlead(*arguments: str, **variables: str) -> tuple[int, str]:
    result = CliRunner().invoke(make_app(), arguments, env={"COLUMNS": "200", "NO_COLOR": "1", **variables})
    return result.exit_code, result.output


def test_help_names_every_command_and_where_to_start() -> None:
    code, output = run_fairlead("--help")
    assert code == 0
    assert "Start with fairlead up" in output
    assert all(f" {name} " in output for name, _ in COMMANDS)


def test_serve_has_a_flag_for_every_setting_with_its_default() -> None:
    code, output = run_fairlead("serve", "--help")
    assert code == 0
    assert "--config" in output
    text = " ".join(output.replace("│", " ").split())
    for name, setting in SETTINGS.items():
        assert f"{flag(name)} " in text
        assert f"{setting.info.help}. Default: {setting.default_text}" in text


def test_former_names_of_settings_are_hidden_flags() -> None:
    output = run_fairlead("serve", "--help")[1]
    assert [alias for alias in ALIASES if f"{flag(alias)} " in output] == []
    for alias in ALIASES:
        assert run_fairlead("serve", flag(alias), "many") == (1, f"fairlead: {flag(alias)}: 'many' is not an integer\n")


def test_the_version_is_printed_in_three_ways() -> None:
    assert run_fairlead("version") == run_fairlead("--version") == (0, f"fairlead {__version__}\n")
    code, output = run_fairlead("version", "--json")
    assert (code, json.loads(output)["version"]) == (0, __version__)


def test_the_version_equals_that_of_the_package() -> None:
    assert tomllib.loads(PROJECT.read_text())["project"]["version"] == __version__


def test_an_invalid_setting_ends_the_command_with_one_line() -> None:
    assert run_fairlead("up", "--port", "many") == (1, "fairlead: --port: 'many' is not an integer\n")
    assert run_fairlead("serve", "--config", "/nowhere/fairlead.yaml") == (
        1,
        "fairlead: /nowhere/fairlead.yaml: no such file; create it, or leave out --config and FAIRLEAD_CONFIG\n",
    )


def test_an_unknown_environment_variable_stops_the_start() -> None:
    code, output = run_fairlead("up", FAIRLEAD_BODYLIMIT="5000")
    assert (code, output) == (
        1,
        "fairlead: unknown setting FAIRLEAD_BODYLIMIT; did you mean FAIRLEAD_BODY_LIMIT? Otherwise unset it\n",
    )


@pytest.mark.parametrize("name", [name for name, _ in COMMANDS])
def test_a_command_loaded_alone_shows_the_same_help(name: str) -> None:
    alone = CliRunner().invoke(make_app(name), [name, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert (alone.exit_code, alone.output) == run_fairlead(name, "--help")
    assert alone.exit_code == 0


def test_only_the_requested_command_is_loaded() -> None:
    assert requested_command(["up", "--json"], {}) == "up"
    assert [requested_command(arguments, {}) for arguments in ([], ["--help"], ["--version"], ["upp"])] == [None] * 4


def test_shell_completion_names_the_command_in_a_variable() -> None:
    bash = {"_FAIRLEAD_COMPLETE": "complete_bash", "COMP_WORDS": "fairlead key cr"}
    zsh = {"_FAIRLEAD_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "fairlead key cr"}
    assert [requested_command([], bash), requested_command([], zsh)] == ["key", "key"]
    assert requested_command([], bash | {"COMP_WORDS": "fairlead k"}) is None
    assert requested_command(["up"], {"COMP_WORDS": "other key"}) == "up"


def test_no_command_name_is_a_prefix_of_another() -> None:
    names = [name for name, _ in COMMANDS]
    assert not [(a, b) for a in names for b in names if a != b and b.startswith(a)]


def test_starting_a_server_imports_no_other_command() -> None:
    code = (
        "import sys; from fairlead.cli import make_app; make_app('up');"
        "names = ('fairlead.client', 'fairlead.cli.access.key', 'rich', 'httpx');"
        "print(*[name for name in names if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output == "\n"
