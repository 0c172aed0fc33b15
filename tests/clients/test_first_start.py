"""Somebody starts the server for the first time, reads what it prints, and types that in."""

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

from tests.clients.server import ROOT, start, stop

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
LAST_LINE = "Ctrl-C stops the server."


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a fresh `fairlead up` shows, where it was shown, and the data folder that it was told to make."""

    text: str
    medium: str
    data: Path

    @property
    def plain(self) -> str:
        return COLOURS.sub("", self.text)

    @property
    def commands(self) -> list[str]:
        """The lines between the invitation and the blank line after them, as a person would copy them."""
        block = self.plain.partition("Next, in another terminal:\n\n")[2].partition("\n\n")[0]
        return [line.strip() for line in block.splitlines()]


@pytest.fixture(scope="module", params=["terminal", "pipe"])
def greeting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Greeting]:
    """On a narrow terminal, or handed on through a pipe. The server goes on running until the tests are over."""
    data = tmp_path_factory.mktemp("first") / "new data"
    reader, writer = pty.openpty() if request.param == "terminal" else os.pipe()
    if request.param == "terminal":
        termios.tcsetwinsize(writer, (24, 40))
    process = start("--data", str(data), "--port", "0", stdout=writer)
    os.close(writer)
    try:
        with os.fdopen(reader, encoding="utf-8") as shown:
            yield Greeting(read(shown), request.param, data)
            stop(process)
        assert process.returncode == 0
    finally:
        stop(process)


def read(shown: Iterator[str]) -> str:
    lines: list[str] = []
    for line in shown:
        lines.append(line)
        if LAST_LINE in line:
            return "".join(lines)
    pytest.fail("the server ended too early: " + "".join(lines))


def test_it_shows_address_key_and_kubeconfig(greeting: Greeting) -> None:
    kubeconfig = greeting.data / "admin.kubeconfig"
    config = yaml.safe_load(kubeconfig.read_text())
    url = config["clusters"][0]["cluster"]["server"].removesuffix("/kubernetes/management")
    lines = greeting.plain.splitlines()
    assert lines[0].endswith(f" is ready at {url}")
    assert [line for line in lines if config["users"][0]["user"]["token"] in line]
    assert f"  kubeconfig  {kubeconfig}" in lines


def test_a_terminal_gets_colours_and_a_pipe_none(greeting: Greeting) -> None:
    assert (greeting.plain != greeting.text) is (greeting.medium == "terminal")


def test_commands_can_be_copied_from_a_narrow_terminal(greeting: Greeting) -> None:
    """A line that the server breaks itself is two lines in the clipboard."""
    assert greeting.commands[0] == f"export KUBECONFIG='{greeting.data}/admin.kubeconfig'"


def test_the_three_commands_work_as_printed(
    greeting: Greeting, component: Callable[[str], Path], tmp_path: Path
) -> None:
    assert len(greeting.commands) == 3
    (tmp_path / "kubectl").symlink_to(component("kubectl"))
    done = subprocess.run(
        ["sh", "-e", "-c", "\n".join(greeting.commands)],
        cwd=ROOT,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    made, header, row = done.stdout.splitlines()
    assert made == "app.management.service.sh/ingress-nginx created"
    assert header.split()[:2] == ["NAME", "DISPLAY"]
    assert row.split()[:3] == ["ingress-nginx", "Ingress", "NGINX"]
