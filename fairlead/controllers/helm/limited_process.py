"""Runs a program with limits: helm, and the programs that read what repositories send. Charts are untrusted, so memory,
CPU time and file size are limited, and a program that takes too long is terminated with its children."""

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

TERMINATION_GRACE_SECONDS = 10.0
"""Seconds from SIGTERM until SIGKILL."""
RESOURCE_LIMITS = {
    resource.RLIMIT_AS: 4 * 2**30,
    resource.RLIMIT_CPU: 120,
    resource.RLIMIT_FSIZE: 256 * 2**20,
}
"""Of one run: address space in bytes, CPU seconds, and file size in bytes."""


async def run_limited(
    command: Sequence[str], folder: Path, stderr_file: Path, environment: Mapping[str, str], seconds: float
) -> int:
    """Runs a command in a folder, and returns its exit code. Raises TimeoutError, and OSError, ValueError or
    RuntimeError if it cannot be run. Its errors go to a file instead of a pipe, so that they need no buffering here."""
    with stderr_file.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr.fileno(),
            cwd=folder,
            env=environment,
            start_new_session=True,  # so that its child processes can be killed with it
        )
        try:
            _set_resource_limits(process.pid)
            async with asyncio.timeout(seconds):
                return await process.wait()
        finally:
            await _terminate(process)


async def _terminate(process: asyncio.subprocess.Process) -> None:
    """Terminates the process group, with SIGTERM first: then helm marks the release as failed in the cluster, whereas
    a killed one leaves it pending."""
    try:
        if process.returncode is None:
            with suppress(ProcessLookupError, TimeoutError):
                os.killpg(process.pid, signal.SIGTERM)
                async with asyncio.timeout(TERMINATION_GRACE_SECONDS):
                    await process.wait()
    finally:  # also when the task is cancelled again during the grace period
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _set_resource_limits(pid: int) -> None:
    """Sets limits from outside: a `preexec_fn` can deadlock in a process with threads."""
    if sys.platform == "linux":
        for limit, maximum in RESOURCE_LIMITS.items():
            with suppress(ProcessLookupError):  # it has exited already
                _, hard = resource.prlimit(pid, limit)
                bound = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
                resource.prlimit(pid, limit, (bound, bound))
