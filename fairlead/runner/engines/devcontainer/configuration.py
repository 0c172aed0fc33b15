"""Finds and reads the devcontainer.json of a workspace, and applies the policy to it."""

import asyncio
import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairlead.runner.engines.contract import EngineError, ImageSource, Reason, WorkspaceSpec
from fairlead.runner.engines.devcontainer.grant import Grant
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder
from fairlead.runner.engines.devcontainer.podman import last_line
from fairlead.runner.engines.devcontainer.policy import check_configuration
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.shim import PATH

PLACES = (".devcontainer/devcontainer.json", ".devcontainer.json")
MAX_BYTES = 1 << 20
WORDS_OF_SOURCES = (b"features", b"ocker", b"\\")
"""A file without them names neither features nor a Dockerfile. To merge a configuration, the CLI fetches the features,
in the network of the machine, and reads the Dockerfile, so both are checked before. Names can have escapes."""
DEFAULT_IMAGE = "image"
"""The option of a template that names an image for repositories without a devcontainer.json."""


def cli_environment(folder: WorkspaceFolder) -> dict[str, str]:
    """All that the CLI sees, and so all that `${localEnv:...}` can name. Its home is an empty folder."""
    return {"PATH": PATH, "HOME": str(folder.home), "TMPDIR": str(folder.tmp)}


def cli_options(settings: Settings, folder: WorkspaceFolder, grant: Grant, config: Path) -> list[str]:
    """Options that all commands of the CLI get."""
    return [
        *("--docker-path", str(folder.shim)),
        *("--docker-compose-path", "/bin/false"),  # it would run on the machine, on files that a repository names
        *("--workspace-folder", f"{grant.staging}/{grant.project}"),
        *("--config", str(config)),
        *("--id-label", grant.id_label),
        *("--mount-workspace-git-root", "false"),
        *("--log-format", "json"),
        *("--user-data-folder", str(folder.home)),
    ]


def find_configuration(spec: WorkspaceSpec, grant: Grant) -> Path:
    """The devcontainer.json in the staging folder. The CLI would follow symbolic links, as root: there must be none."""
    project = Path(grant.staging, grant.project)
    base = project / (getattr(spec.source, "subfolder", "") or "")
    for place in (spec.dev_container_path,) if spec.dev_container_path else PLACES:
        if ".." in Path(place).parts or place.startswith("/"):
            raise EngineError(Reason.CONFIGURATION_INVALID, f"the path {place!r} leaves the repository")
        if os.path.lexists(base / place):
            return _check_file(base / place, project)
    image = spec.source.image if isinstance(spec.source, ImageSource) else spec.options.get(DEFAULT_IMAGE, "")
    if not image or spec.dev_container_path:
        wanted = spec.dev_container_path or " or ".join(PLACES)
        raise EngineError(
            Reason.CONFIGURATION_INVALID,
            f"the repository has no {wanted}, and the template names no image for such repositories",
        )
    _check_parents(base, project)
    written = base / ".devcontainer.json"
    written.write_text(json.dumps({"image": image}))
    return written


def _check_file(path: Path, project: Path) -> Path:
    _check_parents(path, project)
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        raise EngineError(Reason.CONFIGURATION_INVALID, f"{path.relative_to(project)} is not a file of at most 1 MiB")
    for name in ("devcontainer-lock.json", ".devcontainer-lock.json"):  # the CLI writes there
        if path.with_name(name).is_symlink():
            raise EngineError(Reason.POLICY_VIOLATION, f"{name} is refused: it is a symbolic link")
    return path


def _check_parents(path: Path, project: Path) -> None:
    for each in (path, *path.parents):
        if each == project.parent:
            return
        if each.is_symlink():
            raise EngineError(
                Reason.POLICY_VIOLATION, f"{each.relative_to(project.parent)} is refused: it is a symbolic link"
            )


async def read_configuration(settings: Settings, folder: WorkspaceFolder, grant: Grant, config: Path) -> dict[str, Any]:
    """The merged configuration. Raises an error if the CLI cannot read it, or if something in it is refused."""
    command = [*settings.cli, "read-configuration", *cli_options(settings, folder, grant, config)]
    if _may_name_sources(config):
        await _read_and_check(command, folder, grant)
    result = await _read_and_check([*command, "--include-merged-configuration"], folder, grant)
    return dict(result.get("mergedConfiguration") or {})


def _may_name_sources(config: Path) -> bool:
    content = config.read_bytes()
    return any(word in content for word in WORDS_OF_SOURCES)


async def _read_and_check(command: Sequence[str], folder: WorkspaceFolder, grant: Grant) -> dict[str, Any]:
    code, output, errors = await run_command(command, cli_environment(folder))
    raise_refusals(folder)
    if code != 0:
        raise EngineError(Reason.CONFIGURATION_INVALID, describe_cli_error(output, errors))
    result: dict[str, Any] = json.loads(output)
    violations = check_configuration(result, grant)
    if violations:
        raise EngineError(Reason.POLICY_VIOLATION, "; ".join(violations))
    return result


def raise_refusals(folder: WorkspaceFolder) -> None:
    """Raises what the shim refused."""
    if not folder.denials.exists():
        return
    refusals: list[dict[str, str]] = [json.loads(line) for line in folder.denials.read_text().splitlines()]
    if refusals:
        messages = dict.fromkeys(each["message"] for each in refusals)
        raise EngineError(refusals[0]["reason"], "refused: " + "; ".join(messages))


def describe_cli_error(output: bytes, errors: bytes) -> str:
    """What the CLI says of its failure: a JSON object on stdout, or lines on stderr."""
    try:
        result: dict[str, Any] = json.loads(output)
        return str(result.get("description") or result["message"])
    except (ValueError, KeyError):
        line = last_line(errors.decode(errors="replace"))
        try:
            return str(json.loads(line)["text"]).strip()
        except (ValueError, KeyError, TypeError):
            return line


async def run_command(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bytes, bytes]:
    """Runs a command with this environment only. A caller that is cancelled leaves no process behind."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=dict(environment),
        cwd="/",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    return process.returncode or 0, output, errors
