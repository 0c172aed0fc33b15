"""The services of Compose files beside a workspace, as the runner sees them: which there are, their logs, and how they
end. They are started in the holder (`inside/services.py`)."""

import os
from collections.abc import Mapping
from typing import Any

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.inside.services import LABEL, container_name
from fairlead.runner.engines.devcontainer.isolation.holder import INSIDE_TARGET, PYTHON, Holder
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, read_json, write_json
from fairlead.runner.engines.devcontainer.settings import Settings

PREPARE_SERVICES = (
    *(PYTHON, "-ISc"),
    f"import sys; sys.path.insert(0, {os.path.dirname(INSIDE_TARGET)!r}); "
    "from inside.services import main; sys.exit(main(sys.argv[1:]))",
)
"""Runs the command that follows when the images of all services are there."""
STOP_SECONDS = 10
MAX_LOG_LINES = 2000
MAX_LOG_BYTES = 512 << 10
READ_LOG = f'"$@" 2>&1 | tail -c {MAX_LOG_BYTES}'
MAX_SHOWN = 32
LIST_FAILED = "ps --all --filter=status=exited --format={{.Names}}\t{{.ExitCode}}"


def note_services(folder: WorkspaceFolder, plan: Mapping[str, Any] | None) -> None:
    names = [each["name"] for each in plan["services"]] if plan is not None else []
    if names or folder.services.exists():
        write_json(folder.services, names)


def list_services(folder: WorkspaceFolder) -> list[str]:
    return read_json(folder.services) or []


async def stop_services(settings: Settings, folder: WorkspaceFolder, holder: Holder) -> None:
    """All at once, after the workspace itself. Databases write what they have in memory."""
    if names := [container_name(each) for each in list_services(folder)]:
        await holder.run(settings.podman, "stop", "--ignore", f"--time={STOP_SECONDS}", *names)


async def describe_failed(folder: WorkspaceFolder, holder: Holder) -> list[str]:
    """The services that have ended although they should run."""
    names = {container_name(each): each for each in list_services(folder)}
    if not names:
        return []
    found = await holder.run("/usr/bin/podman", *LIST_FAILED.split(" "), f"--filter=label={LABEL}")
    described = []
    for line in found.output.splitlines()[:MAX_SHOWN]:
        name, _, code = line.partition("\t")
        if name in names and code != "0":
            described.append(f"service {names[name]}: it has ended with code {code[:8]}; its log says why")
    return described


async def read_log(settings: Settings, folder: WorkspaceFolder, holder: Holder, service: str) -> bytes:
    """The last that a service has printed. Raises EngineError."""
    known = list_services(folder)
    if service not in known:
        what = f"it has {', '.join(known)}" if known else "it has none"
        raise EngineError(Reason.NOT_RUNNING, f"the workspace has no service {service[:100]!r}; {what}")
    command = (settings.podman, "logs", f"--tail={MAX_LOG_LINES}", container_name(service))
    found = await holder.run("/bin/sh", "-c", READ_LOG, "log", *command, max_output_bytes=2 * MAX_LOG_BYTES)
    return found.output.encode()
