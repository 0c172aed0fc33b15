"""The services of Compose files, as the runner sees them: which there are, their logs, and how they end. One of them is
the workspace itself, the others are started beside it in the holder (`inside/services.py`)."""

import os
from collections.abc import Mapping
from typing import Any

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.grant import CONTAINER
from fairlead.runner.engines.devcontainer.inside.services import container_name
from fairlead.runner.engines.devcontainer.isolation.holder import INSIDE_TARGET, PYTHON, Holder
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, read_json, write_json
from fairlead.runner.engines.devcontainer.programs import last_line
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
GREETING = "Container started\n"
"""Of the CLI's own command in the container of the workspace."""
MAX_SHOWN = 32
MAX_LINE = 500
LIST_ENDED = ("ps", "--all", "--filter=status=exited", "--format={{.Names}}\t{{.ExitCode}}")


def note_services(folder: WorkspaceFolder, plan: Mapping[str, Any] | None) -> None:
    containers: dict[str, str] = {}
    if plan is not None:
        containers = {each["name"]: container_name(each["name"]) for each in plan["services"]}
        containers[plan["main"]["name"]] = CONTAINER
    if containers or folder.services.exists():
        write_json(folder.services, containers)


def list_containers(folder: WorkspaceFolder) -> dict[str, str]:
    """The containers of services, by the names of these; that of the workspace is one of them."""
    return read_json(folder.services) or {}


async def stop_services(settings: Settings, folder: WorkspaceFolder, holder: Holder) -> None:
    """All at once, after the workspace itself. Databases write what they have in memory."""
    if names := [each for each in list_containers(folder).values() if each != CONTAINER]:
        await holder.run(settings.podman, "stop", "--ignore", f"--time={STOP_SECONDS}", *names)


async def describe_failed(settings: Settings, folder: WorkspaceFolder, holder: Holder) -> list[str]:
    """The services that have ended although they should run."""
    services = {container: name for name, container in list_containers(folder).items()}
    ended = await _list_ended(settings, holder) if services else {}
    return [
        f"service {services[container]}: it has ended with code {code}; "
        f"`fairlead workspace logs --service {services[container]}` says why"
        for container, code in ended.items()
        if container in services and code != "0"
    ][:MAX_SHOWN]


async def explain_end(settings: Settings, folder: WorkspaceFolder, holder: Holder) -> str:
    """Why the container of the workspace does not run although it was started; empty if it has not ended."""
    code = (await _list_ended(settings, holder)).get(CONTAINER)
    if code is None:
        return ""
    service = next((name for name, container in list_containers(folder).items() if container == CONTAINER), "")
    what = f"the service {service}, which is the workspace," if service else "the container of the workspace"
    example = "`command: sleep infinity`" if service else "`sleep infinity`, or remove `overrideCommand`"
    said = last_line(await _read_log(settings, holder, CONTAINER))[-MAX_LINE:]
    return f"{what} has ended with code {code} ({said}); give it a command that stays, such as {example}"


async def read_log(settings: Settings, folder: WorkspaceFolder, holder: Holder, service: str) -> bytes:
    """The last that a service has printed. Raises EngineError."""
    containers = list_containers(folder)
    if service not in containers:
        what = f"it has {', '.join(containers)}" if containers else "it has no Compose files"
        raise EngineError(Reason.NOT_RUNNING, f"the workspace has no service {service[:100]!r}; {what}")
    return (await _read_log(settings, holder, containers[service])).encode()


async def _read_log(settings: Settings, holder: Holder, container: str) -> str:
    command = (settings.podman, "logs", f"--tail={MAX_LOG_LINES}", container)
    found = await holder.run("/bin/sh", "-c", READ_LOG, "log", *command, max_output_bytes=2 * MAX_LOG_BYTES)
    return found.output.removeprefix(GREETING)


async def _list_ended(settings: Settings, holder: Holder) -> dict[str, str]:
    """The exit codes of containers that have ended, by their names."""
    found = await holder.run(settings.podman, *LIST_ENDED)
    lines = (line.partition("\t") for line in found.output.splitlines())
    return {name: code[:8] for name, _, code in lines}
