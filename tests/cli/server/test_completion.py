"""`fairlead completion`: the scripts, run by the real shells against a server."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from fairlead.cli import COMMANDS, load_command, make_app
from fairlead.cli.server.completion import SCRIPTS, Shell
from fairlead.cli.ui import completion
from fairlead.cli.ui.completion import complete_names, complete_namespaces, complete_paths
from fairlead.client.contexts import Login, save_contexts
from fairlead.client.login_sessions import LoginSession, save_session
from tests.cli.test_docs import ALL
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object, list_response

BASH = """
source "$1"
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_fairlead_completion fairlead "" ""
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
compdef() {{ }}
_describe() {{ print -l -- "${{(@P)2}}" }}
_files() {{ print FILES }}
source "$1"
words=({words}) CURRENT=$#words
_fairlead
"""
FISH = """
source $argv[1]
complete -C (string join -- ' ' {words})
"""

PATIENT_PROGRAM = """
from fairlead.__main__ import main
from fairlead.cli.ui import completion
completion.COMPLETION_TIMEOUT = completion.COMPLETION_DEADLINE = 60
main()
"""
"""The console script, on a machine that may be busy."""

Complete = Callable[..., list[str]]


@pytest.fixture(params=[Shell.BASH, *(pytest.param(each, marks=pytest.mark.long) for each in (Shell.ZSH, Shell.FISH))])
def complete(
    request: pytest.FixtureRequest, user: CliFixture, component: Callable[[str], Path], tmp_path: Path
) -> Complete:
    """`complete("fairlead", "cluster", "")` returns what the shell offers for the last word, and prints no error."""
    shell, script = request.param, tmp_path / "script"
    script.write_text(SCRIPTS[shell])
    program = tmp_path / "bin" / "fairlead"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{PATIENT_PROGRAM}")
    program.chmod(0o755)
    template = {Shell.BASH: BASH, Shell.ZSH: ZSH, Shell.FISH: FISH}[shell]

    def run(*words: str, **variables: str) -> list[str]:
        text = template.format(words=" ".join(f"'{word}'" for word in words))
        arguments = ["-c", text, "test", str(script)] if shell is not Shell.FISH else ["-c", text, str(script)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")} | {
            "HOME": str(tmp_path),
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(user.home / "config"),
            **variables,
        }
        options = ["--norc"] if shell is Shell.BASH else ["-f"] if shell is Shell.ZSH else ["--no-config"]
        done = subprocess.run(
            [str(component(shell)), *options, *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.stderr == ""
        return [line for line in done.stdout.splitlines() if line]

    return run


def names(entries: list[str]) -> list[str]:
    """Without descriptions: zsh separates them with a colon, fish with a tabulator."""
    return [entry.replace("\t", ":").partition(":")[0] for entry in entries]


def test_commands_flags_and_names_are_completed(user: CliFixture, complete: Complete) -> None:
    clusters = list_response(build_object("berlin"), build_object("bern"), build_object("paris"))
    user.fake.on("GET", f"{M}/clusters", clusters, clusters)
    assert {"cluster", "completion"} <= set(names(complete("fairlead", "c")))
    assert names(complete("fairlead", "cluster", "show", "be")) == ["berlin", "bern"]
    assert "--kube-context" in names(complete("fairlead", "cluster", "add", "--kube"))


def test_without_a_server_nothing_is_completed_and_nothing_is_printed(user: CliFixture, complete: Complete) -> None:
    assert user.contexts_file.exists()
    user.contexts_file.write_text(user.contexts_file.read_text().replace(user.fake.url, "https://127.0.0.1:1"))
    assert names(complete("fairlead", "cluster", "show", "be")) in ([], ["FILES"])


def test_a_completion_ends_when_the_server_takes_too_long(
    user: CliFixture, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The whole of it: not even a name server can hold it up."""
    program = """
import sys, time
from fairlead.cli.ui import completion
completion.COMPLETION_DEADLINE = 0.2
completion.resolve_login = lambda context: time.sleep(100)
from fairlead.cli import main
sys.argv = ["fairlead"]
main()
"""
    variables = {"_FAIRLEAD_COMPLETE": "complete_bash", "COMP_WORDS": "fairlead cluster show ", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_objects_of_projects_are_completed_with_their_project(
    user: CliFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user.home / "config"))
    spaces = [build_object("dev"), build_object("test"), build_object("elsewhere")]
    for space, namespace in zip(spaces, ("service-p-demo", "service-p-shop", "default"), strict=True):
        space["metadata"]["namespace"] = namespace
    user.fake.on("GET", f"{M}/spaceinstances", list_response(*spaces), list_response(*spaces))
    context = typer.Context(get_command(make_app()))
    assert complete_paths("spaceinstances")(context, "") == ["demo/dev", "shop/test"]
    assert complete_paths("spaceinstances")(context, "sh") == ["shop/test"]
    assert complete_namespaces(context, "") == []  # the server of this test has no discovery
    assert completion.COMPLETION_VARIABLE not in os.environ


def test_names_that_would_garble_the_terminal_or_be_flags_are_not_offered(
    user: CliFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user.home / "config"))
    offered = ["a;b", "berlin", "z\u00fcrich"]
    dropped = ["--all", "-f", "a\tb", "a\nb", "a\x1b[2J", "a\x7f", "a\u202eb", "a\u0085b", ""]
    clusters = list_response(*map(build_object, (*offered, *dropped)))
    user.fake.on("GET", f"{M}/clusters", clusters, clusters)
    assert complete_names("clusters")(typer.Context(get_command(make_app())), "") == offered


@pytest.mark.parametrize(("age", "offered"), [(10, ["berlin"]), (590, []), (700, [])])
def test_a_completion_does_not_refresh_the_key_of_a_login(
    user: CliFixture, monkeypatch: pytest.MonkeyPatch, age: float, offered: list[str]
) -> None:
    """If it ended in between, the new refresh token would be lost, and the login with it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user.home / "config"))
    login = Login(user.fake.url, "", Path(user.fake.ca_file).read_text(), session="test")
    save_contexts(user.contexts_file, user.load_contexts().with_login("test", login))
    issued = time.time() - age
    save_session("test", LoginSession(user.fake.url, "stored-key", "refresh-token", issued, issued + 600))
    user.fake.on("GET", f"{M}/clusters", list_response(build_object("berlin")))
    assert complete_names("clusters")(typer.Context(get_command(make_app())), "") == offered
    assert [each.headers["authorization"] for each in user.fake.requests] == ["Bearer stored-key"] * len(offered)


REFERENCES = {"cluster", "project", "space", "virtual_cluster", "context", "template", "runner", "team", "app"}
"""Parameters that name an existing object, unless the command creates or configures it."""
NOT_COMPLETED = {
    *(("agent", "cluster"), ("install agent", "cluster"), ("runner start", "context")),  # no login is needed there
    ("vcluster import", "virtual_cluster"),  # a name in a server that is not connected
}


def test_every_parameter_that_names_an_object_is_completed() -> None:
    missing = {
        (" ".join(path), each.name)
        for path, command in ALL.items()
        for each in command.params
        if each.name in REFERENCES and getattr(each, "_custom_shell_complete", None) is None
    }
    assert missing - NOT_COMPLETED == set()


def test_the_command_prints_the_script(user: CliFixture) -> None:
    for shell in Shell:
        assert user.run("completion", shell).out == SCRIPTS[shell]
    assert user.run("completion", "tcsh").code == 2
    assert "completion" in {entry.name for entry in COMMANDS}
    assert load_command("completion").epilog
