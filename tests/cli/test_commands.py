"""fairlead.cli: help, versions, settings errors, and when commands are imported."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead import __version__
from fairlead.cli import COMMANDS, make_app
from fairlead.settings import SETTINGS, flag

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def run_fairlead(*arguments: str, **variables: str) -> tuple[int, str]:
    result = CliRunner().invoke(make_app(), arguments, env={"COLUMNS": "200", "NO_COLOR": "1", **variables})
    return result.exit_code, result.output


def test_help_names_every_command_and_where_to_start() -> None:
    code, output = run_fairlead("--help")
    assert code == 0
    assert "Start with `fairlead up`" in output
    assert all(re.search(rf"^  {each.name} +{re.escape(each.summary)}$", output, re.MULTILINE) for each in COMMANDS)


def test_serve_has_a_flag_for_every_setting_with_its_default() -> None:
    code, output = run_fairlead("serve", "--help")
    assert code == 0
    assert "--config" in output
    text = " ".join(output.replace("│", " ").split()).replace("- ", "-")  # long words are wrapped at a hyphen
    for name, setting in SETTINGS.items():
        assert f"{flag(name)} " in text
        assert f"{setting.info.help}. Default: {setting.default_text}".replace("- ", "-") in text


def test_the_version_is_printed_in_three_ways() -> None:
    assert run_fairlead("version") == run_fairlead("--version") == (0, f"fairlead {__version__}\n")
    code, output = run_fairlead("version", "--json")
    assert (code, json.loads(output)["version"]) == (0, __version__)


def test_the_version_of_the_package_is_read_from_the_module() -> None:
    project = tomllib.loads(PROJECT.read_text())
    assert "version" not in project["project"] and project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"] == {"path": "fairlead/__init__.py"}


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


@pytest.mark.parametrize("name", [each.name for each in COMMANDS])
def test_every_command_has_a_help_with_both_flags(name: str) -> None:
    code, output = run_fairlead(name, "--help")
    assert code == 0
    assert output.startswith(f"Usage: fairlead {name} ")
    assert run_fairlead(name, "-h") == (code, output)


def complete_words(*words: str) -> list[str]:
    """What bash would suggest for the last word."""
    variables = {
        "_FAIRLEAD_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    command = [sys.executable, "-c", "from fairlead.cli import make_app; make_app()(prog_name='fairlead')"]
    environment = os.environ | variables
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()


def test_the_shell_completes_commands_and_subcommands_and_flags() -> None:
    assert complete_words("fairlead", "wh") == ["whoami", "who-can"]
    assert complete_words("fairlead", "key", "ro") == ["rotate"]
    assert "--overlap" in complete_words("fairlead", "key", "rotate", "--o")


SLOW_MODULES = ("httpx", "pydantic", "rich", "fairlead.app", "fairlead.server")
PRINT_MODULES = """
import json, sys
from fairlead.cli import make_app
for command in json.loads(sys.argv[1]):
    make_app()([*command.split(), "--help"], standalone_mode=False)
    print(json.dumps({command: sorted(sys.modules)}), file=sys.stderr)
"""


def test_help_imports_nothing_that_takes_long() -> None:
    """In one process, so a module counts against the first command that imports it; the list of all is first."""
    names = ["", *(each.name for each in COMMANDS)]
    command = [sys.executable, "-c", PRINT_MODULES, json.dumps(names)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    imported = {name: modules for line in result.stderr.splitlines() for name, modules in json.loads(line).items()}
    assert list(imported) == names
    assert "fairlead.cli.server" not in imported[""]
    slow = {name: set(modules).intersection(SLOW_MODULES) for name, modules in imported.items()}
    assert not {name: modules for name, modules in slow.items() if modules}


def test_starting_a_server_imports_no_other_command() -> None:
    code = (
        "import sys; from fairlead.cli import load_command; load_command('up');"
        "names = ('fairlead.cli.access.key', 'rich', 'httpx');"
        "print(*[name for name in names if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output == "\n"


def test_the_version_is_printed_without_what_typer_needs_for_flags() -> None:
    code = (
        "import sys; from fairlead.cli import make_app\n"
        "make_app()(['--version'], standalone_mode=False)\n"
        "print('pydantic' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output == f"fairlead {__version__}\nFalse\n"
