"""kubectl with a kubeconfig and a home folder of its own."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

SECONDS = 30


@dataclass(frozen=True, slots=True)
class Kubectl:
    """`kubectl("get", "apps")` returns the output of the command; `expect_failure(...)` returns its error."""

    program: Path
    kubeconfig: Path
    home: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str, body: str = "") -> str:
        """The output of a command that must succeed. `body` is its standard input, for `-f -`."""
        done = self._run(arguments, body)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def expect_failure(self, *arguments: str, body: str = "") -> str:
        """Returns the error of a command that must fail."""
        done = self._run(arguments, body)
        assert done.returncode != 0, f"kubectl {' '.join(arguments)} succeeded:\n{done.stdout}{done.stderr}"
        assert done.stderr.strip(), "it failed without saying why"
        return done.stderr

    def expect_diff(self, *arguments: str, body: str = "") -> str:
        """The output of a `diff` that must find something, which it says with the exit code 1."""
        done = self._run(arguments, body)
        assert done.returncode == 1 and not done.stderr, f"kubectl {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def expect_warnings(self, *arguments: str, body: str = "") -> str:
        """What a command that must succeed writes beside its output."""
        done = self._run(arguments, body)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stderr

    def run(self, *arguments: str, body: str = "") -> "subprocess.CompletedProcess[str]":
        """What came of a command that says something with its exit code."""
        return self._run(arguments, body)

    def get_json(self, *arguments: str) -> Any:
        """`get ... -o json`, decoded."""
        return json.loads(self("get", *arguments, "-o", "json"))

    def get_names(self, *arguments: str) -> list[str]:
        """The names of what `get` finds, in its order."""
        return [line.rpartition("/")[2] for line in self("get", *arguments, "-o", "name").splitlines()]

    def get_rows(self, *arguments: str) -> list[list[str]]:
        """The table that `get` prints, header first, cut where its columns begin."""
        return split_columns(self("get", *arguments))

    def wait_for_event(self, name: str) -> None:
        """Waits for the first Event about the object, which is created after the change."""
        about = f"involvedObject.name={name}"
        with self.watching("get", "events", "--watch", "--no-headers", "--field-selector", about) as process:
            assert process.stdout is not None
            assert process.stdout.readline()

    @contextmanager
    def watching(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """A command that goes on until it is killed; its output is there to be read meanwhile."""
        process = subprocess.Popen(
            [str(self.program), *arguments], env=self._environment(), stdout=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def with_variable(self, name: str, value: str) -> "Kubectl":
        return replace(self, variables={**self.variables, name: value})

    def _run(self, arguments: tuple[str, ...], body: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(self.program), *arguments],
            env=self._environment(),
            input=body,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def _environment(self) -> dict[str, str]:
        """An empty home, without the configuration and discovery cache of the user.

        kubectl lives for a tenth of a second here, and a third of that would go into collecting garbage.
        """
        ours = {"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig), "GOGC": "off"}
        return ours | dict(self.variables)


def split_columns(table: str) -> list[list[str]]:
    """Lines in columns: kubectl pads each column to its widest cell, so the header's words tell where cells begin."""
    lines = table.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+( \S+)*", lines[0])]
    ends = [*starts[1:], None]
    return [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in lines]


def minor_version(program: Path) -> int:
    """The middle number of a kubectl's version."""
    output = subprocess.run([str(program), "version", "--client", "-o", "json"], capture_output=True, check=True).stdout
    return int(re.sub(r"\D", "", json.loads(output)["clientVersion"]["minor"]))
