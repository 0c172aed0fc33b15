"""The first start of `fairlead up`: its output on a terminal and through a pipe, and the commands that it prints."""

import os
import pty
import re
import subprocess
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.clients.server import ROOT, start_server, stop_process

ANSI_COLORS = re.compile(r"\x1b\[[0-9;]*m")
LAST_LINE = "Ctrl-C stops the server."


@dataclass(frozen=True, slots=True)
class Greeting:
    """The output of a first `fairlead up`, where it was printed, and the data folder."""

    text: str
    medium: str
    data: Path

    @property
    def plain(self) -> str:
        return ANSI_COLORS.sub("", self.text)

    @property
    def commands(self) -> list[str]:
        """The suggested commands, as a user copies them."""
        block = self.plain.partition("Next, in another terminal:\n\n")[2].partition("\n\n")[0]
        return [line.strip() for line in block.splitlines()]


@pytest.fixture(scope="module")
def path_with_kubectl(component: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The PATH of a user who has kubectl."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "kubectl").symlink_to(component("kubectl"))
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture(scope="module", params=["terminal", "pipe"])
def greeting(
    request: pytest.FixtureRequest, path_with_kubectl: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Greeting]:
    """Printed on a narrow terminal, or into a pipe. The server runs until the end of the tests."""
    data = tmp_path_factory.mktemp("first") / "new data"
    reader, writer = pty.openpty() if request.param == "terminal" else os.pipe()
    if request.param == "terminal":
        termios.tcsetwinsize(writer, (24, 40))
    process = start_server("--data", str(data), "--port", "0", stdout=writer, PATH=path_with_kubectl)
    os.close(writer)
    try:
        with os.fdopen(reader, encoding="utf-8") as output:
            yield Greeting(read_greeting(output), request.param, data)
            stop_process(process)
        assert process.returncode == 0
    finally:
        stop_process(process)


def read_greeting(output: Iterator[str]) -> str:
    lines: list[str] = []
    for line in output:
        lines.append(line)
        if LAST_LINE in line:
            return "".join(lines)
    pytest.fail("the server ended too early: " + "".join(lines))


def test_the_greeting_has_url_key_and_kubeconfig(greeting: Greeting) -> None:
    kubeconfig = greeting.data / "admin.kubeconfig"
    config = yaml.safe_load(kubeconfig.read_text())
    url = config["clusters"][0]["cluster"]["server"].removesuffix("/kubernetes/management")
    lines = greeting.plain.splitlines()
    assert lines[0].endswith(f" is ready at {url}")
    assert [line for line in lines if config["users"][0]["user"]["token"] in line]
    assert f"  kubeconfig  {kubeconfig}" in lines


def test_a_terminal_gets_colors_and_a_pipe_does_not(greeting: Greeting) -> None:
    assert (greeting.plain != greeting.text) is (greeting.medium == "terminal")


def test_commands_can_be_copied_from_a_narrow_terminal(greeting: Greeting) -> None:
    """A line that the server wrapped would be copied as two lines."""
    assert greeting.commands[0] == f"export KUBECONFIG='{greeting.data}/admin.kubeconfig'"


def test_the_three_commands_work_as_printed(greeting: Greeting, path_with_kubectl: str, tmp_path: Path) -> None:
    assert len(greeting.commands) == 3
    result = subprocess.run(
        ["sh", "-e", "-c", "\n".join(greeting.commands)],
        cwd=ROOT,
        env={"PATH": path_with_kubectl, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    created, header, row = result.stdout.splitlines()
    assert created == "app.management.service.sh/ingress-nginx created"
    assert header.split()[:2] == ["NAME", "DISPLAY"]
    assert row.split()[:3] == ["ingress-nginx", "Ingress", "NGINX"]
