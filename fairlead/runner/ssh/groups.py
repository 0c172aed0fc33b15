"""The control group of a process for SSH: what it may use of the machine, also if it is taken over.

Limits of a process (`confinement.py`) do not count all that it can make the kernel keep, such as shared memory. Each
process has a group of its own, which ends with it. What is not empty then is removed with the next one. A runner that
was killed leaves empty ones, which the next removes when it starts.
"""

import asyncio
import contextlib
import hashlib
import itertools
import os
import re
import time
from collections.abc import Sequence

import structlog

from fairlead.runner.engines.contract import EngineError
from fairlead.runner.engines.devcontainer.isolation.cgroups import (
    create_group,
    describe_limits,
    list_groups,
    remove_group,
)

PREFIX = "fairlead-ssh"
MEMORY_BYTES = 1 << 30
"""256 channels with 2 MiB that the client may send before anything takes them, and as much again."""
PROCESSES = 16
"""The process itself, and those that start it."""
CPU_MICROSECONDS = 100_000
"""Of a tenth of a second: one core, as it has one thread."""
CLOSE_SECONDS = 5.0
NAME = re.compile(rf"{PREFIX}-([0-9]+)-[0-9a-f]+-[0-9]+")

_numbers = itertools.count()
_used: set[str] = set()
"""Names of the groups of this process that are not closed."""
log = structlog.get_logger(__name__)


def open_group(uid: str) -> tuple[str, ...]:
    """The folders of a new group for the process of a workspace; none where the runner may not create any."""
    remove_unused_groups()
    place = hashlib.sha256(uid.encode()).hexdigest()[:12]
    name = f"{PREFIX}-{os.getpid()}-{place}-{next(_numbers)}"
    _used.add(name)
    try:
        return create_group(name, describe_limits(MEMORY_BYTES, PROCESSES, CPU_MICROSECONDS))
    except (OSError, EngineError) as error:
        log.warning("a process for SSH has no control group", uid=uid, error=str(error))
        _used.discard(name)
        remove_group(name)
        return ()


async def close_group(folders: Sequence[str]) -> None:
    """When everything in it has ended. The kernel takes a moment to forget a process that was killed."""
    _used.difference_update(os.path.basename(folder) for folder in folders)
    deadline = time.monotonic() + CLOSE_SECONDS
    for folder in folders:
        while not _remove(folder) and time.monotonic() < deadline:  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.02)


def _remove(folder: str) -> bool:
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    return not os.path.exists(folder)


def remove_unused_groups() -> None:
    """Those that are empty, of runners that are gone, and of this one if they are closed."""
    for name in list_groups(PREFIX):
        found = NAME.fullmatch(name)
        if found is not None and _is_unused(name, int(found[1])):
            remove_group(name)


def _is_unused(name: str, runner: int) -> bool:
    return name not in _used if runner == os.getpid() else not os.path.exists(f"/proc/{runner}")
