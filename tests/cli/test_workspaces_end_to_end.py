"""A workspace as a user drives it: a real server, a real runner process and a real dev container."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead.runner.engines.devcontainer.layout import list_folders
from tests.cli.conftest import ROOT
from tests.cli.end_to_end import expect_success
from tests.harness.cli import CliFixture
from tests.harness.fake_server import FakeServer
from tests.harness.server_process import Server, running_server
from tests.runner.harness.podman import IMAGE, open_containers
from tests.runner.harness.real_engine import ENGINE, describe_containers

CONFIGURATION = {"image": IMAGE, "remoteUser": "dev", "postCreateCommand": "echo created by $(id -un)"}
WORKSPACE = ("dev", "--project", "web")


def log_in(server: Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> CliFixture:
    """The CLI, logged in as the administrator."""
    home.mkdir()
    cli = CliFixture(home, FakeServer(server.url, server.ca_file), monkeypatch)
    cli.save_login(key=server.key)
    return cli


@contextmanager
def started_runner(cli: CliFixture, state: Path, engine: str, **variables: str) -> Iterator[None]:
    """`fairlead runner start local`, which finds the server and its key with the login."""
    home = {"HOME": str(cli.home), "XDG_CONFIG_HOME": str(cli.home / "config")}
    command = [sys.executable, "-m", "fairlead", "runner", "start", "local", "--json", "--state", str(state)]
    process = subprocess.Popen(
        [*command, "--engine", engine], cwd=ROOT, env=os.environ | home | variables, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["runner"] == "local"
        yield
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def list_steps(text: str) -> list[str]:
    """The steps with a time, in the order in which they were shown."""
    return re.findall(r"^  (\w+) +[\dm.]+s$", text, re.MULTILINE)


@pytest.mark.timeout(180)
def test_a_workspace_is_created_from_a_repository_stopped_started_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_containers() as containers, running_server(tmp_path / "data") as server:
        cli = log_in(server, tmp_path / "home", monkeypatch)
        expect_success(cli.run("project", "create", "web"))
        assert "`fairlead runner start local`" in cli.run("runner", "create", "local").err
        url = containers.commit("demo", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION), "a": "first\n"})
        state = containers.folder / "runner"
        with started_runner(cli, state, ENGINE, **describe_containers(containers)):
            assert (state / "key").stat().st_mode & 0o777 == 0o600

            created = cli.run("workspace", "create", *WORKSPACE, url.removeprefix("file://"))
            assert created.code == 0, created.err
            assert list_steps(created.err)[:2] == ["Schedule", "Prepare"]
            assert {"Clone", "Build", "LifecycleCommands"} <= set(list_steps(created.err))
            assert "the workspace dev is running" in created.err
            assert "created by dev" in expect_success(cli.run("workspace", "logs", *WORKSPACE))
            shown = expect_success(cli.run("workspace", "show", *WORKSPACE))
            assert re.search(r"^status +Running$", shown, re.MULTILINE)
            assert f"file://{containers.repositories}/demo" in shown
            address = expect_success(cli.run("workspace", "open", *WORKSPACE, "--print"))
            assert re.fullmatch(r"vscode://vscode-remote/ssh-remote\+\S+/workspaces/dev\n", address)

            stopped = cli.run("workspace", "stop", *WORKSPACE)
            assert (stopped.code, list_steps(stopped.err)) == (0, ["Schedule", "Stop"])
            assert "is not running (Stopped)" in cli.run("workspace", "open", *WORKSPACE).err
            started = cli.run("workspace", "start", *WORKSPACE)
            assert started.code == 0, started.err
            assert "Clone" not in list_steps(started.err)
            deleted = cli.run("workspace", "delete", *WORKSPACE, "--yes")
            assert (deleted.code, deleted.err.splitlines()[-1]) == (0, "the workspace dev is deleted")
            assert [folder for state in containers.list_states() for folder in list_folders(state)] == []
