"""Runs podman for the engine itself: without the shim, and with arguments that no repository chose."""

import asyncio
import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.grant import RUNNER_LABEL, UID_LABEL
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.shim import PATH

MAX_OUTPUT_BYTES = 16 << 20
"""What a program can write to each of its outputs: the server of a repository may send messages without end. A program
that writes more gets an error."""
MAX_ERROR_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    output: str
    errors: str
    """The last of what the program wrote there."""


@dataclass(frozen=True, slots=True)
class Podman:
    settings: Settings

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": PATH, "HOME": str(self.settings.state_folder), **self.settings.podman_environment}

    async def run(self, *arguments: str, stdin: bytes = b"") -> Result:
        """Runs a command of podman to its end.

        Podman may start the name server of its networks, which inherits the environment of podman, and outlives it. So
        secrets are passed by `stdin`, never by the environment."""
        return await run_program([self.settings.podman, *arguments], self.environment, stdin)

    async def expect(self, *arguments: str) -> str:
        """The output of a command that is expected to succeed."""
        result = await self.run(*arguments)
        if result.code != 0:
            raise EngineError(Reason.ENGINE_UNAVAILABLE, f"podman {arguments[0]} failed: {last_line(result.errors)}")
        return result.output

    async def find_containers(self, uid: str = "") -> list[dict[str, Any]]:
        """Containers of this runner, or of one workspace, in whatever state."""
        label = f"{UID_LABEL}={uid}" if uid else f"{RUNNER_LABEL}={self.settings.runner}"
        listed = await self.expect("ps", "--all", "--format", "json", "--filter", f"label={label}")
        return [dict(each) for each in json.loads(listed or "[]") or []]

    async def inspect(self, container: str) -> dict[str, Any] | None:
        result = await self.run("container", "inspect", container)
        found = json.loads(result.output or "[]") if result.code == 0 else []
        return dict(found[0]) if found else None

    async def remove(self, kind: Sequence[str], names: Sequence[str]) -> None:
        """Removes what exists of the names, for example `("volume", "rm", "--force")`."""
        if names:
            await self.run(*kind, *names)


async def run_program(command: Sequence[str], environment: Mapping[str, str], stdin: bytes = b"") -> Result:
    """Runs a program to its end. A caller that is cancelled leaves no process behind.

    The output goes to files, not to pipes: the name server of podman keeps the pipes that podman had, so they would
    have no end. And asyncio waits for ever if it is cancelled while it connects pipes."""
    with _open_input(stdin) as given, _open_output() as output, _open_output() as errors:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=given, stdout=output, stderr=errors, env=dict(environment)
        )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        return Result(code, _read_end(output, MAX_OUTPUT_BYTES), _read_end(errors, MAX_ERROR_BYTES))


def _open_input(content: bytes) -> BinaryIO:
    file = os.fdopen(os.memfd_create("podman", os.MFD_CLOEXEC), "w+b")
    file.write(content)
    file.seek(0)
    return file


def _open_output() -> BinaryIO:
    """A file in memory that cannot grow. What is not written yet takes up no memory."""
    file = os.fdopen(os.memfd_create("podman", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b", buffering=0)
    file.truncate(MAX_OUTPUT_BYTES)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return file


def _read_end(file: BinaryIO, count: int) -> str:
    """The last bytes that the program wrote, which shares the position in the file."""
    end = os.lseek(file.fileno(), 0, os.SEEK_CUR)
    start = max(0, end - count)
    return os.pread(file.fileno(), end - start, start).decode(errors="replace")


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
