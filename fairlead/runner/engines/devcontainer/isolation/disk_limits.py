"""How fast a workspace reads and writes: without a limit, one that does so all the time slows all others down.

The disk of each workspace is a loop device of its own, and the limits are those of that device: so they need not know
what it is on, and hold for nothing else.

In version 2 of cgroups, the group of the workspace has them (`io.max`). The kernel counts what it writes later, from
its memory, towards that group as well.

In version 1, what is written later counts towards the group at the top, not the group that has written it. So that
group has a limit for the device, too. And groups do not limit those below them. So the group of the workspace is one
that its holder does not see: nothing there can make others. Numbers of devices are used again, by other programs as
well: limits of devices without a file are removed.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from fairlead.runner.engines.devcontainer.isolation import cgroups
from fairlead.runner.engines.devcontainer.settings import DiskLimits

LOOP_MAJOR = 7
BYTES = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")
OPERATIONS = ("blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device")
LOOP_DEVICES = Path("/sys/block")
_ENTRY = re.compile(rf"({LOOP_MAJOR}:([0-9]+)) [0-9]+")


def find_limit_problem() -> str:
    """Why this machine cannot limit how fast workspaces read and write; empty if it can."""
    if cgroups.is_unified():
        offered = (cgroups.ROOT / "cgroup.controllers").read_text().split()
        return "" if cgroups.IO in offered else f"the machine has no control groups for {cgroups.IO}"
    missing = next((path for path in map(_find_top, (*BYTES, *OPERATIONS)) if not path.exists()), None)
    return f"there is no {missing}" if missing else ""


def limit_devices(limits: DiskLimits, groups: Iterable[str], own: Iterable[str], others: Iterable[str]) -> None:
    """Limits what the groups of a holder do with devices, such as `7:0`: its own, and those of others that it reads.
    What the kernel does not have is left out; `runner doctor` says so."""
    own_devices = list(own)
    devices = [*own_devices, *others]
    if cgroups.is_unified():
        for group in groups:
            _write(Path(group) / "io.max", [_describe_both(device, limits) for device in devices])
        return
    forget_devices()
    for group in groups:
        _limit(Path(group), devices, limits)
    _limit(cgroups.ROOT / cgroups.BLKIO, own_devices, limits)


def forget_devices() -> None:
    """Removes the limits at the top of loop devices that have no file any more. Version 2 has none there."""
    for name in (*BYTES, *OPERATIONS):
        path = _find_top(name)
        _write(path, [f"{device} 0" for device in _list_unused(path)])


def _find_top(name: str) -> Path:
    return cgroups.ROOT / cgroups.BLKIO / name


def _list_unused(path: Path) -> Iterator[str]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return
    for entry in filter(None, map(_ENTRY.fullmatch, lines)):
        if not (LOOP_DEVICES / f"loop{entry[2]}" / "loop").exists():
            yield entry[1]


def _limit(group: Path, devices: Iterable[str], limits: DiskLimits) -> None:
    """In version 1, where 0 means none."""
    for device in devices:
        for name in BYTES:
            _write(group / name, [f"{device} {limits.bytes_per_second}"])
        for name in OPERATIONS:
            _write(group / name, [f"{device} {limits.operations_per_second}"])


def _describe_both(device: str, limits: DiskLimits) -> str:
    most_bytes = limits.bytes_per_second or "max"
    operations = limits.operations_per_second or "max"
    return f"{device} rbps={most_bytes} wbps={most_bytes} riops={operations} wiops={operations}"


def _write(path: Path, lines: Iterable[str]) -> None:
    """Each at once, as the kernel takes one."""
    for line in lines:
        with contextlib.suppress(OSError), path.open("r+") as file:
            file.write(line)
