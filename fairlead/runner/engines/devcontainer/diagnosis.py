"""What this machine lacks to run dev containers, for `fairlead runner doctor`."""

import ipaddress
import os
import pwd
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairlead.core.machine.findings import Finding
from fairlead.core.validators import format_size
from fairlead.runner.engines.devcontainer.isolation.cgroups import ROOT, list_missing_controllers
from fairlead.runner.engines.devcontainer.isolation.disk import find_loop_problem
from fairlead.runner.engines.devcontainer.isolation.disk_limits import find_limit_problem
from fairlead.runner.engines.devcontainer.isolation.network import INTERFACE_PREFIX, find_name_servers
from fairlead.runner.engines.devcontainer.isolation.ranges import Range
from fairlead.runner.engines.devcontainer.programs import PATH, last_line, run_program
from fairlead.runner.engines.devcontainer.settings import Settings

OLDEST_NODE = 20
INSTALL_CLI = "npm install --global @devcontainers/cli; or `make runner-tools` in a clone"
OLDEST_KERNEL = (5, 19)
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
SUBORDINATE_IDS = (Path("/etc/subuid"), Path("/etc/subgid"))


async def diagnose(settings: Settings) -> Sequence[Finding]:
    found = [
        *_check_programs(settings),
        _check_disk(settings),
        _check_loop_devices(settings),
        _check_disk_limits(settings),
        _check_kernel(),
        _check_control_groups(),
        _check_name_servers(settings),
        _check_crash_handler(),
        await _check_ranges(settings),
        *_describe_settings(settings),
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
    for package in dict.fromkeys(programs.values()):
        needed = [program for program, source in programs.items() if source == package]
        missing = [program for program in needed if not shutil.which(program, path=PATH)]
        problem = f"there is no {' and no '.join(missing)}" if missing else ""
        remedy = f"apt-get install {package}" if package != "nodejs" else INSTALL_CLI
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


def _check_disk_limits(settings: Settings) -> Finding:
    """Not fatal: workspaces slow each other down then."""
    limits = settings.disk_limits
    chosen = {
        format_size(limits.bytes_per_second): limits.bytes_per_second,
        f"{limits.operations_per_second} operations": limits.operations_per_second,
    }
    most = " and ".join(text for text, value in chosen.items() if value) if settings.workspace_disk_bytes else ""
    remedy = (
        "use a kernel with CONFIG_BLK_DEV_THROTTLING and control groups for disks; or set disk_limits to "
        "{bytes: 0, operations: 0} in the file of --config"
    )
    detail = f"each workspace reads and writes at most {most} a second" if most else "none"
    return Finding("disk limits", find_limit_problem() if most else "", remedy, is_fatal=False, detail=detail)


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


def _check_crash_handler() -> Finding:
    """The kernel starts it as root of the machine, outside of all namespaces and limits, with the memory of a process
    of a workspace as its input. No limit that the process could not change keeps the kernel from it."""
    pattern = CORE_PATTERN.read_text().strip() if CORE_PATTERN.exists() else ""
    problem = (
        f"when a process of a workspace crashes, the kernel has root run {pattern.removeprefix('|').split(' ')[0]}, "
        "which reads its memory and fills the disk of the machine"
        if pattern.startswith("|")
        else ""
    )
    remedy = (
        "write kernel.core_pattern=core to /etc/sysctl.d/99-fairlead-runner.conf, run `sysctl --system`, and remove or "
        "mask the package that sets it (apport, systemd-coredump, abrt)"
    )
    return Finding("crash handler", problem, remedy, is_fatal=False)


async def _check_ranges(settings: Settings) -> Finding:
    """Whether anything else on the machine has ids or addresses of workspaces. Not fatal: it may be intended."""
    own = Range(settings.first_uid, settings.network_pool)
    users = [f"the user {each.pw_name}" for each in pwd.getpwall() if own.first_uid <= each.pw_uid < own.end_uid]
    others = [*users, *_list_subordinates(own), *await _list_routes(own)]
    problem = f"{own} are also those of {', '.join(others[:8])}" if others else ""
    remedy = "set first_uid and network_pool in a file to what nothing else uses, and name it with --config"
    detail = f"{own.first_uid} to {own.end_uid - 1}, and {own.network_pool}, for {own.size} workspaces"
    return Finding("user ids and networks", problem, remedy, is_fatal=False, detail=detail)


def _list_subordinates(own: Range) -> Iterator[str]:
    """Ids that users of the machine may use for containers of their own."""
    for path in SUBORDINATE_IDS:
        for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
            name, _, numbers = line.partition(":")
            first, _, count = numbers.partition(":")
            is_range = first.isdigit() and count.isdigit()
            if is_range and int(first) < own.end_uid and own.first_uid < int(first) + int(count):
                yield f"{name} in {path}"


async def _list_routes(own: Range) -> list[str]:
    """Networks of the machine that are not those of workspaces. The default route is for all others."""
    if not shutil.which("ip", path=PATH):  # which is a finding of its own
        return []
    listed = await run_program(["ip", "-4", "-o", "route", "show", "table", "all"], {"PATH": PATH})
    pool = ipaddress.IPv4Network(own.network_pool)
    found = []
    for line in listed.output.splitlines():
        words = line.split()
        destination = words[0] if words and words[0][0].isdigit() else ""
        is_own = any(word.startswith(INTERFACE_PREFIX) for word in words)
        if destination and not is_own and pool.overlaps(ipaddress.IPv4Network(destination, strict=False)):
            found.append(f"the route {' '.join(words[:5])}")
    return found


def _describe_settings(settings: Settings) -> Iterator[Finding]:
    """What the operator chose."""
    limits = settings.max_limits
    memory = format_size(limits.memory_bytes) if limits.memory_bytes else ""
    chosen = {"memory": memory, "cpus": limits.cpus, "processes": limits.processes}
    most = ", ".join(f"{name} {value}" for name, value in chosen.items() if value)
    yield Finding("limits of templates", detail=f"at most {most}" if most else "none beyond those of templates")
    features = ", ".join(settings.feature_sources)
    yield Finding("features", detail=f"from {features}" if features else "only with the permission of a template")
    if settings.feature_pins:
        yield Finding("pinned features", detail=", ".join(name for name, _ in settings.feature_pins))
    if settings.registry_mirrors:
        yield Finding("mirrors", detail=", ".join(f"{name} at {place}" for name, place in settings.registry_mirrors))
    yield Finding("refused networks", detail=", ".join(settings.refused_networks) or "none")


async def _check_cli(settings: Settings) -> Finding:
    """Node says its version where the CLI is a script of it."""
    remedy = f"install Node.js {OLDEST_NODE} or newer, and {INSTALL_CLI}"
    environment = {"PATH": PATH, "HOME": "/nonexistent"}
    if Path(settings.cli[0]).name == "node":
        found = await run_program([settings.cli[0], "--version"], environment)
        version = found.output.strip().removeprefix("v").partition(".")[0]
        if found.code != 0 or not version.isdigit() or int(version) < OLDEST_NODE:
            return Finding("devcontainer", f"Node.js {version or 'of unknown version'} is too old", remedy)
    found = await run_program([*settings.cli, "--version"], environment)
    return Finding("devcontainer", "" if found.code == 0 else last_line(found.errors), remedy)
