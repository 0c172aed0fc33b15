"""Which image of a workspace may become an archive for others: the one that its holder named before anything of the
repository ran there (`inside/announcement.py`), on a disk that nothing of it had written to before.

Everything that a holder says later may come from a build that has taken it over, through a fault of podman. So a
build can spoil only the image of the same Dockerfile, files, arguments and base images: others who use it would run
them, too.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fairlead.core.waiting import background_task
from fairlead.runner.engines.contract import EngineError
from fairlead.runner.engines.devcontainer.inside.announcement import LENGTH, PIPE, TAKEN
from fairlead.runner.engines.devcontainer.inside.build_key import KEY_LENGTH
from fairlead.runner.engines.devcontainer.isolation.holder import Holder
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, read_json, write_json

KEY = re.compile(rf"[0-9a-f]{{{KEY_LENGTH}}}")
MAX_SECONDS = 3600
"""For which a process waits for the name, if no runner ends it before."""


@asynccontextmanager
async def receive_key(folder: WorkspaceFolder, holder: Holder, is_wanted: bool) -> AsyncIterator[None]:
    """Notes the key that is named meanwhile. The body starts what names it."""
    is_new = folder.unused.exists()
    folder.unused.unlink(missing_ok=True)
    folder.build_key.unlink(missing_ok=True)
    if not is_wanted or not is_new:
        yield
        return
    await holder.expect("/usr/bin/mkfifo", "-m", "600", PIPE)
    async with background_task(_receive(folder, holder), "receive the key of a build"):
        yield


async def _receive(folder: WorkspaceFolder, holder: Holder) -> None:
    """The answer has the form of a key, and is on the disk, before the holder goes on. What no longer runs then cannot
    be made to say something else."""
    with suppress(EngineError, OSError):
        answer = await holder.expect("/usr/bin/timeout", str(MAX_SECONDS), "/usr/bin/head", "-c", str(LENGTH), PIPE)
        if KEY.fullmatch(answer.strip()):
            write_json(folder.build_key, answer.strip())
        await holder.expect("/usr/bin/touch", TAKEN)


def read_key(folder: WorkspaceFolder) -> str:
    """The key of the image that may be saved; empty if there is none."""
    key = read_json(folder.build_key)
    return key if isinstance(key, str) and KEY.fullmatch(key) else ""
