"""What this machine lacks to run dev containers, for `fairlead runner doctor`."""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairlead.core.findings import Finding
from fairlead.runner.engines.devcontainer.configuration import run_command
from fairlead.runner.engines.devcontainer.podman import Podman, last_line
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.shim import PATH

OLDEST_NODE = 20


async def diagnose(podman: Podman) -> Sequence[Finding]:
    settings = podman.settings
    found = [*_check_programs(settings), _check_folders(settings), _check_disk(settings)]
    if any(finding.problem and finding.is_fatal for finding in found):
        return found
    return [*found, await _check_podman(podman), await _check_cli(settings)]


def _check_programs(settings: Settings) -> Iterator[Finding]:
    is_root = os.geteuid() == 0
    yield Finding("permissions", "" if is_root else "the engine needs root", "run the runner as root, with systemd")
    programs = {settings.podman: "podman", "git": "git", "/usr/sbin/iptables": "iptables", settings.cli[0]: "nodejs"}
    for program, package in programs.items():
        problem = "" if shutil.which(program, path=PATH) else f"there is no {program}"
        remedy = f"apt-get install {package}" if package != "nodejs" else "npm install --global @devcontainers/cli"
        yield Finding(package, problem, remedy)


def _check_folders(settings: Settings) -> Finding:
    """The users of containers have to reach their files."""
    closed = [each for each in settings.state_folder.parents if each.exists() and not each.stat().st_mode & 0o001]
    problem = f"users of containers cannot pass {closed[-1]}" if closed else ""
    return Finding("folders", problem, f"chmod o+x {closed[-1]}, or use another --state" if closed else "")


def _check_disk(settings: Settings) -> Finding:
    folder = next(each for each in (settings.state_folder, *settings.state_folder.parents) if each.exists())
    free = shutil.disk_usage(folder).free
    is_low = free < 2 * settings.min_free_bytes
    problem = f"only {free >> 20} MiB are free in {folder}" if is_low else ""
    # Not fatal: a runner without space still has to stop and delete workspaces, which is what frees it.
    return Finding("disk", problem, "delete workspaces or images", is_fatal=False)


async def _check_podman(podman: Podman) -> Finding:
    result = await podman.run("info", "--format", "{{.Host.OCIRuntime.Name}} {{.Host.NetworkBackend}}")
    if result.code != 0:
        return Finding("podman info", last_line(result.errors), "podman info")
    if "netavark" not in result.output:
        remedy = 'set network_backend = "netavark" in containers.conf, and install netavark and aardvark-dns'
        return Finding("network", "podman does not use netavark", remedy)
    return Finding("podman info")


async def _check_cli(settings: Settings) -> Finding:
    """Node says its version where the CLI is a script of it."""
    remedy = f"install Node.js {OLDEST_NODE} or newer, and npm install --global @devcontainers/cli"
    environment = {"PATH": PATH, "HOME": "/nonexistent"}
    if Path(settings.cli[0]).name == "node":
        code, output, _ = await run_command([settings.cli[0], "--version"], environment)
        version = output.decode().strip().removeprefix("v").partition(".")[0]
        if code != 0 or not version.isdigit() or int(version) < OLDEST_NODE:
            return Finding("devcontainer", f"Node.js {version or 'of unknown version'} is too old", remedy)
    code, _, errors = await run_command([*settings.cli, "--version"], environment)
    return Finding("devcontainer", "" if code == 0 else last_line(errors.decode(errors="replace")), remedy)
