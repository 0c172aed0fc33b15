"""Tours: files of shell commands that are run, one after the other, against two servers.

A file of the folder `tours` is a tour. A command begins with `$ ` at the start of a line and goes on up to the next
line that begins with `$ `, `? `, `! ` or `# `. Lines with `# ` are comments. A line with `? ` says why the output of
the next command differs between the servers, one with `! ` why its exit code does.

Each tour has a folder and a namespace of its own on each server. Its commands run in that folder, so they can write
files for each other.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("tours")
COMMAND_SECONDS = 60
_START = re.compile(r"^(?=[$?!#] )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a tour, and why its output or exit code differs (empty: it has to be the same)."""

    line: int
    text: str
    difference: str = ""
    has_other_code: bool = False


@dataclass(frozen=True, slots=True)
class Tour:
    name: str
    commands: tuple[Command, ...]

    @property
    def namespace(self) -> str:
        return f"tour-{self.name}".replace("_", "-")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command did: its exit code and what it wrote."""

    code: int
    output: str
    error: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where commands run: a folder, the namespace, and the programs and kubeconfig for one server."""

    folder: Path
    programs: Path
    kubeconfig: Path

    def run(self, command: str) -> Answer:
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, error = process.communicate(timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, error = process.communicate()
        return Answer(process.returncode, output, error)

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.kubeconfig),
            "LC_ALL": "C.UTF-8",
            "GOGC": "off",  # kubectl lives for a tenth of a second
        }


def read_tours(names: Sequence[str] = ()) -> list[Tour]:
    """The tours with these names, or all of them."""
    files = {path.stem: path for path in sorted(FOLDER.glob("*.tour"))}
    if unknown := [name for name in names if name not in files]:
        raise ValueError(f"there are no tours {unknown}; there are {list(files)}")
    return [parse_tour(name, files[name].read_text(encoding="utf-8")) for name in names or files]


def parse_tour(name: str, text: str) -> Tour:
    return Tour(name, tuple(_parse_commands(text)))


def _parse_commands(text: str) -> Iterator[Command]:
    line, difference, mark = 1, "", ""
    for part in _START.split(text):
        content = part[2:].strip()
        if part.startswith(("? ", "! ")):
            difference, mark = " ".join(content.split()), part[0]
        elif part.startswith("$ "):
            yield Command(line, content, difference, mark == "!")
            difference, mark = "", ""
        line += part.count("\n")
