"""The commands in README.md work as they are typed, one after the other, against a server of `fairlead up`."""

import html
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.cli.server.up import KEY_ADVICE
from tests.cli.conftest import ROOT, Fairlead
from tests.cli.server.test_up import read_ready_line, stop_process
from tests.runner.harness.podman import open_containers
from tests.runner.harness.real_engine import ENGINE, describe_containers

SECTIONS = ("## From `make up`", "## A member and a key", "## The same with kubectl", "## A workspace")

WORKSPACE = ("fairlead runner create", "fairlead workspace")
"""Needs a runner, with root and podman."""

DENIED = "fairlead key explain"
"""Shows a denied request, which is exit code 1."""


def list_commands() -> list[str]:
    """The commands after `$` in the code blocks of the sections. A line that ends in a backslash continues."""
    commands: list[str] = []
    for section in re.split(r"^(?=## )", (ROOT / "README.md").read_text(), flags=re.MULTILINE):
        if section.startswith(SECTIONS):
            for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL):
                commands += re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)
    return commands


def run_script(script: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "KUBE"))}
    return subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=inherited | environment, capture_output=True, text=True, check=False
    )


def build_script(commands: list[str], url: str, second: Path) -> str:
    """A script that stops at the first command that fails. `second` is the data folder of the second server."""
    lines = ["set -euo pipefail"]
    for each in commands:
        command = each.replace("https://127.0.0.1:8443", url).replace("./second", str(second))
        if command.startswith("fairlead user create"):
            command = command.replace("fairlead user create ada", "fairlead user create ada --no-password")
        lines.append(f"! {command}" if command.startswith(DENIED) else command)
    return "\n".join(lines)


def search_path(component: Callable[[str], Path]) -> str:
    """The PATH of a user who has followed the README: with kubectl and fairlead."""
    return ":".join(map(str, (component("kubectl").parent, Path(sys.executable).parent, "/usr/bin", "/bin")))


def test_the_commands_work_as_typed(fairlead: Fairlead, tmp_path: Path, component: Callable[[str], Path]) -> None:
    environment = {"HOME": str(tmp_path), "PATH": search_path(component)}
    process = fairlead("up", "--port", "0", "--json", **environment, XDG_DATA_HOME="")
    url = read_ready_line(process)["url"]
    second = fairlead("up", "--port", "0", "--data", str(tmp_path / "second"), "--json", **environment)
    read_ready_line(second)
    commands = [each for each in list_commands() if not each.startswith(WORKSPACE)]
    assert len(commands) > 15
    result = run_script(build_script(commands, url, tmp_path / "second"), environment)
    assert result.returncode == 0, result.stderr
    assert "app.management.service.sh/ingress-nginx created" in result.stdout
    assert "ci may not get secrets in service-p-other" in result.stdout
    assert "ada is now a member of the project demo, with the role user" in result.stderr
    assert "the space dev is Ready" in result.stderr
    assert "configmap/hello created" in result.stdout
    stop_process(process)
    stop_process(second)


@pytest.mark.timeout(180)
def test_the_workspace_runs(fairlead: Fairlead, tmp_path: Path, component: Callable[[str], Path]) -> None:
    commands = [each for each in list_commands() if each.startswith(WORKSPACE)]
    assert len(commands) == 4
    environment = {"HOME": str(tmp_path), "PATH": search_path(component)}
    kubeconfig = tmp_path / ".local/share/fairlead/admin.kubeconfig"
    with open_containers() as containers:
        containers.import_image("localhost/debian:12")
        process = fairlead("up", "--port", "0", "--json", **environment, XDG_DATA_HOME="")
        read_ready_line(process)
        prepare = (f"fairlead login --kubeconfig {kubeconfig}", "fairlead project create demo", commands.pop(0))
        result = run_script("\n".join(("set -e", *prepare)), environment)
        assert result.returncode == 0, result.stderr
        flags = ("--json", "--engine", ENGINE, "--state", str(containers.folder / "runner"))
        variables = {**environment, **describe_containers(containers), "XDG_CONFIG_HOME": ""}
        runner = fairlead("runner", "start", "local", *flags, **variables)
        read_ready_line(runner)
        result = run_script("\n".join(("set -e", *commands)), environment)
        assert result.returncode == 0, result.stderr
        assert "the workspace desk is running" in result.stderr
        assert re.search(r"^status +Running$", result.stdout, re.MULTILINE)
        assert "the workspace desk is stopped" in result.stderr
        stop_process(runner)
        stop_process(process)


def test_the_picture_shows_what_up_prints_today(
    fairlead: Fairlead, tmp_path: Path, component: Callable[[str], Path]
) -> None:
    """`scripts/draw_first_session.py` draws it again."""
    picture = (ROOT / "docs" / "first-session.svg").read_text()
    texts = (html.unescape(each).replace("\xa0", " ") for each in re.findall(r"<text[^>]*>([^<]*)</text>", picture))
    drawn = {each.strip() for each in texts}
    process = fairlead("up", "--port", "0", "--data", str(tmp_path / "data"), PATH=search_path(component))
    printed = []
    for line in process.stdout or ():
        printed.append(line.strip())
        if line.startswith("Ctrl-C"):
            break
    stop_process(process)
    of_this_server = (
        "Fairlead ",
        "console ",
        "access key ",
        "kubeconfig ",
        "export ",
        "kubectl apply ",
        "fairlead admin reset",
        "helm ",
    )
    assert {each for each in printed if each and not each.startswith(of_this_server)} - drawn == set()
    assert KEY_ADVICE.split()[0] in " ".join(drawn)
    assert "http" not in picture.replace("http://www.w3.org/", "").replace("https://127.0.0.1:8443", "")
