"""What this machine lacks to run dev containers, for `fairlead runner doctor`."""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairlead.core.findings import Finding
from fairlead.runner.engines.devcontainer.isolation.cgroups import ROOT, list_missing_controllers
from fairlead.runner.engines.devcontainer.isolation.disk import find_loop_problem
from fairlead.runner.engines.devcontainer.isolation.network import find_name_servers
from fairlead.runner.engines.devcontainer.programs import PATH, last_line, run_program
from fairlead.runner.engines.devcontainer.settings import Settings

OLDEST_NODE = 20
OLDEST_KERNEL = (5, 19)


async def diagnose(settings: Settings) -> Sequence[Finding]:
    found = [
        *_check_programs(settings),
        _check_disk(settings),
        _check_loop_devices(settings),
        _check_kernel(),
        _check_control_groups(),
        _check_name_servers(settings),
    ]
    if any(finding.problem and finding.is_fatal for finding in found):
        return found
    return [*found, await _check_cli(settings)]


def _check_programs(settings: Settings) -> Iterator[Finding]:
    is_root = os.geteuid() == 0
    yield Finding("permissions", "" if is_root else "the engine needs root", "run the runner as root, with systemd")
    programs = {
        settings.podman: "podman",
        "git": "git",
        "iptables": "iptables",
        "ip": "iproute2",
        "nsenter": "util-linux",
        "setpriv": "util-linux",
        "/usr/bin/catatonit": "catatonit",
        settings.cli[0]: "nodejs",
    }
    for program, package in programs.items():
        problem = "" if shutil.which(program, path=PATH) else f"there is no {program}"
        remedy = f"apt-get install {package}" if package != "nodejs" else "npm install --global @devcontainers/cli"
        yield Finding(package, problem, remedy)
    has_runtime = any(shutil.which(each, path=PATH) for each in ("crun", "runc"))
    yield Finding("runtime", "" if has_runtime else "there is neither crun nor runc", "apt-get install crun")


def _check_disk(settings: Settings) -> Finding:
    folder = next(each for each in (settings.state_folder, *settings.state_folder.parents) if each.exists())
    free = shutil.disk_usage(folder).free
    is_low = free < 2 * settings.min_free_bytes
    problem = f"only {free >> 20} MiB are free in {folder}" if is_low else ""
    # Not fatal: a runner without space still has to stop and delete workspaces, which is what frees it.
    return Finding("disk", problem, "delete workspaces or images", is_fatal=False)


def _check_loop_devices(settings: Settings) -> Finding:
    """Not fatal: workspaces that exist may have no disk of their own."""
    problem = find_loop_problem() if settings.workspace_disk_bytes else ""
    remedy = (
        "apt-get install e2fsprogs, and load the kernel module loop; a runner in a container needs /dev/loop-control "
        "and the loop devices. Or start the runner with --workspace-disk 0: then the disk space of a workspace has no "
        "limit"
    )
    return Finding("disks of workspaces", problem, remedy, is_fatal=False)


def _check_kernel() -> Finding:
    """Mounts with other owners, and overlays in user namespaces, which podman needs without root."""
    release = os.uname().release
    major, minor = (int(each) for each in re.findall(r"\d+", release)[:2])
    problem = (
        f"the kernel {release} is older than {'.'.join(map(str, OLDEST_KERNEL))}"
        if (major, minor) < OLDEST_KERNEL
        else ""
    )
    return Finding("kernel", problem, "use a newer kernel")


def _check_control_groups() -> Finding:
    """Without one of them, a workspace would run without its limit."""
    missing = list_missing_controllers()
    problem = f"the machine has no control groups for {', '.join(missing)}" if missing else ""
    remedy = f"start the kernel without cgroup_disable=, and have a hierarchy of cgroups mounted at {ROOT}"
    return Finding("control groups", problem, remedy)


def _check_name_servers(settings: Settings) -> Finding:
    """Not fatal: a machine may have no need for names."""
    problem = "" if find_name_servers(settings) else "the machine has no name server that workspaces can reach"
    remedy = "list a name server with an address of IPv4, not of the machine itself, in /etc/resolv.conf"
    return Finding("name servers", problem, remedy, is_fatal=False)


async def _check_cli(settings: Settings) -> Finding:
    """Node says its version where the CLI is a script of it."""
    remedy = f"install Node.js {OLDEST_NODE} or newer, and npm install --global @devcontainers/cli"
    environment = {"PATH": PATH, "HOME": "/nonexistent"}
    if Path(settings.cli[0]).name == "node":
        found = await run_program([settings.cli[0], "--version"], environment)
        version = found.output.strip().removeprefix("v").partition(".")[0]
        if found.code != 0 or not version.isdigit() or int(version) < OLDEST_NODE:
            return Finding("devcontainer", f"Node.js {version or 'of unknown version'} is too old", remedy)
    found = await run_program([*settings.cli, "--version"], environment)
    return Finding("devcontainer", "" if found.code == 0 else last_line(found.errors), remedy)
