"""Runs programs of the machine to their end, with bounds on what they print."""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from fairlead.core.json import Malformed, decode_body

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
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


async def run_program(
    command: Sequence[str],
    environment: Mapping[str, str],
    stdin: bytes = b"",
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    descriptors: Sequence[int] = (),
) -> Result:
    """Runs a program to its end, which inherits the descriptors. A caller that is cancelled leaves no process behind.

    The output goes to files, not to pipes: the name server of podman keeps the pipes that podman had, so they would
    have no end. And asyncio waits for ever if it is cancelled while it connects pipes."""
    with (
        _open_input(stdin) as given,
        _open_output(max_output_bytes) as output,
        _open_output(MAX_OUTPUT_BYTES) as errors,
    ):
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=given,
            stdout=output,
            stderr=errors,
            env=dict(environment),
            pass_fds=descriptors,
            start_new_session=True,
        )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise
        return Result(code, _read_end(output, max_output_bytes), _read_end(errors, MAX_ERROR_BYTES))


def _open_input(content: bytes) -> BinaryIO:
    file = os.fdopen(os.memfd_create("output", os.MFD_CLOEXEC), "w+b")
    file.write(content)
    file.seek(0)
    return file


def _open_output(size: int) -> BinaryIO:
    """A file in memory that cannot grow. What is not written yet takes up no memory."""
    file = os.fdopen(os.memfd_create("output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b", buffering=0)
    file.truncate(size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return file


def _read_end(file: BinaryIO, count: int) -> str:
    """The last bytes that the program wrote, which shares the position in the file."""
    end = os.lseek(file.fileno(), 0, os.SEEK_CUR)
    start = max(0, end - count)
    return os.pread(file.fileno(), end - start, start).decode(errors="replace")


def parse_json(text: str | bytes) -> Any:
    """None if it is not JSON, or nested too deeply: programs in a holder print what the workspace likes."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def parse_object(text: str | bytes) -> dict[str, Any] | None:
    """None if it is not a JSON object."""
    parsed = parse_json(text)
    return parsed if isinstance(parsed, dict) else None


def parse_large_object(text: str | bytes) -> dict[str, Any] | None:
    """The same for more than a few kilobytes, in slices: to be called in a thread, where it lets others have the
    interpreter meanwhile."""
    try:
        parsed = decode_body(text.encode() if isinstance(text, str) else text)
    except Malformed:
        return None
    return parsed if isinstance(parsed, dict) else None


def last_line(text: str) -> str:
    """The text may be one of very many lines."""
    return text.rstrip().rpartition("\n")[2].strip() or "no message"
