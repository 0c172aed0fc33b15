"""Holders: where everything runs that touches the files of a workspace, git, the dev container CLI and podman included.

A holder is a set of namespaces with a first process that does nothing (`namespaces.py`). Root prepares it once, enters
it only to become an unprivileged user of it at once, and runs nothing else there. So a fault of podman, runc, git or
the CLI leads to the workspace's own folder, and no further.

There are two sorts. That of a workspace lives as long as its container. One for a single program has neither the store
of images nor what earlier programs left, and ends with the program: clones run there, which need credentials.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.inside import launch
from fairlead.runner.engines.devcontainer.isolation.cgroups import Cgroups, thaw_groups
from fairlead.runner.engines.devcontainer.isolation.disk import attach
from fairlead.runner.engines.devcontainer.isolation.disk_limits import limit_devices
from fairlead.runner.engines.devcontainer.layout import read_json, write_json
from fairlead.runner.engines.devcontainer.programs import PATH, Result, last_line, run_program
from fairlead.runner.engines.devcontainer.settings import DEFAULT_DISK_LIMITS, DiskLimits
from fairlead.runner.engines.measurement import read_boot_id, read_start_ticks
from fairlead.runner.engines.process_trees import send_to

KILL_SECONDS = 60.0
NAMESPACES = Path(__file__).with_name("namespaces.py")
INSIDE = Path(launch.__file__).parent
INSIDE_TARGET = "/opt/fairlead/inside"
JOIN = 'for file in $1; do echo $$ >"$file" || exit 125; done; shift; exec "$@"'
"""Joins the control groups of the holder, before anything else happens in it."""
ENTER = ("--user", "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup")
PYTHON = os.path.realpath(sys.executable)
"""Not that of a virtual environment: nothing of one is needed."""
MAX_INNER_BYTES = 64 << 10
"""Of the output of a program in a holder, unless its caller expects more."""
LAUNCH = (PYTHON, "-IS", os.path.join(INSIDE_TARGET, os.path.basename(launch.__file__)))
ENVIRONMENT: Mapping[str, str] = {
    "PATH": PATH,
    "HOME": "/ws/home",
    "TMPDIR": "/var/tmp",
    "XDG_RUNTIME_DIR": "/run/user",
    "XDG_CONFIG_HOME": "/etc/xdg",
    # To podman, this is a user namespace that its own start would have made.
    "_CONTAINERS_USERNS_CONFIGURED": "done",
    "_CONTAINERS_ROOTLESS_UID": "0",
    "_CONTAINERS_ROOTLESS_GID": "0",
}
"""All that programs in a holder see. Those of the dev container CLI are what `${localEnv:...}` can name."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder of the machine that a holder sees. Files there have no set-user-id bits and are no devices."""

    source: str
    target: str
    read_only: bool = True
    disk: str = ""
    """The file of a disk (`disk.py`) that `source` is a folder on, as a relative path. If it is not there yet, it is
    created, for the root user of the holder."""
    mode: int = 0o700
    """Of the folder that is created."""


@dataclass(frozen=True, slots=True)
class ImageStore:
    """An image store of podman that a holder sees, read-only. Ids from `first_uid` on become those of the holder."""

    source: str
    target: str
    first_uid: int
    disk: str = ""
    """As in `Bind`, but the folder exists."""


@dataclass(frozen=True, slots=True)
class HolderPlan:
    """What a holder consists of."""

    first_uid: int
    network: str
    """The file of its network namespace."""
    cgroups: Cgroups
    root: str
    """A folder of the machine on which its root file system is mounted, in its own mount namespace only."""
    hostname: str
    binds: Sequence[Bind] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """Generated files by path. They belong to the machine's root, and are read-only."""
    image_stores: Sequence[ImageStore] = ()
    devices: Sequence[str] = ()
    disk_limits: DiskLimits = DEFAULT_DISK_LIMITS
    max_networks: int = 0
    """How many network namespaces can be made in it."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A running holder."""

    pid: int
    start_ticks: int
    """When the first process started: another process with the same pid has another value."""
    cgroups: tuple[str, ...]
    """Where programs in the holder start."""

    def is_alive(self) -> bool:
        return read_start_ticks(self.pid) == self.start_ticks

    def enter(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a program in the holder. It ends with the process of this command line.

        It starts as root: its environment must not come from a workspace. `launch` passes variables on."""
        joined = " ".join(f"{folder}/cgroup.procs" for folder in self.cgroups)
        return [
            *("/bin/sh", "-c", JOIN, "join", joined),
            *("/usr/bin/nsenter", f"--target={self.pid}", *ENTER, "--"),
            *("/usr/bin/setpriv", "--no-new-privs", "--pdeathsig=KILL", "--", *command),
        ]

    def launch(self, command: Sequence[str], descriptor: int) -> list[str]:
        """As `enter`, with the environment that is written to this descriptor as JSON, in place of the holder's own."""
        return self.enter([*LAUNCH, str(descriptor), *command])

    async def run(self, *command: str, stdin: bytes = b"", max_output_bytes: int = MAX_INNER_BYTES) -> Result:
        """Runs a program in the holder to its end. What it prints is what the workspace likes, as root of the holder
        can replace each program there: so its length is limited here."""
        return await run_program(self.enter(command), ENVIRONMENT, stdin, max_output_bytes)

    async def expect(self, *command: str, stdin: bytes = b"") -> str:
        """The output of a program that is expected to succeed."""
        result = await self.run(*command, stdin=stdin)
        if result.code != 0:
            name = " ".join(command[:2]).rpartition("/")[2]
            raise EngineError(Reason.ENGINE_UNAVAILABLE, f"{name} failed: {last_line(result.errors)}")
        return result.output

    async def kill(self) -> None:
        """Ends everything in the holder, and waits until it is gone: the kernel ends a pid namespace with its first
        process. Raises EngineError if that takes too long."""
        deadline = time.monotonic() + KILL_SECONDS
        while self.is_alive():
            if time.monotonic() > deadline:
                raise EngineError(
                    Reason.ENGINE_UNAVAILABLE,
                    f"the first process of the workspace, {self.pid}, does not end, although it was killed; if "
                    "it waits for a disk that does not answer, restart the machine",
                )
            send_to(self.pid, self.start_ticks, signal.SIGKILL)
            await asyncio.to_thread(thaw_groups, [Path(each) for each in self.cgroups])
            await asyncio.sleep(0.01)


async def start_holder(plan: HolderPlan) -> Holder:
    os.makedirs(plan.root, mode=0o700, exist_ok=True)
    complete = _add_programs(plan)
    check_targets(complete.binds)
    named = (*(each.disk for each in complete.binds), *(each.disk for each in complete.image_stores))
    files = dict.fromkeys(filter(None, named))
    with ExitStack() as attached:
        disks = {file: attached.enter_context(attach(Path(file))) for file in files}
        await asyncio.to_thread(_limit_disks, complete, disks)
        description = json.dumps({**asdict(complete), "disks": disks}).encode()
        result = await run_program([PYTHON, "-IS", str(NAMESPACES)], {"PATH": PATH}, description)
    if result.code != 0 or not result.output.strip().isdigit():
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"the namespaces cannot be made: {last_line(result.errors)}")
    pid = int(result.output)
    return Holder(pid, read_start_ticks(pid), plan.cgroups.tools)


def _limit_disks(plan: HolderPlan, disks: Mapping[str, str]) -> None:
    """`disks` are the loop devices of the plan, by the file that each has."""
    numbers = {file: os.stat(device).st_rdev for file, device in disks.items()}
    names = {file: f"{os.major(number)}:{os.minor(number)}" for file, number in numbers.items()}
    writable = {each.disk for each in plan.binds}
    limit_devices(
        plan.disk_limits,
        groups=plan.cgroups.disk,
        own=[name for file, name in names.items() if file in writable],
        others=[name for file, name in names.items() if file not in writable],
    )


def save_holder(path: Path, holder: Holder) -> None:
    write_json(path, {**asdict(holder), "boot_id": read_boot_id()})


def find_holder(path: Path) -> Holder | None:
    """The holder that was saved there, if it runs."""
    fields: dict[str, Any] | None = read_json(path)
    if fields is None or fields["boot_id"] != read_boot_id():
        return None
    holder = Holder(int(fields["pid"]), int(fields["start_ticks"]), tuple(fields["cgroups"]))
    return holder if holder.start_ticks and holder.is_alive() else None


def _add_programs(plan: HolderPlan) -> HolderPlan:
    """Adds the engine's own programs, and the Python that runs them, where that is not a part of /usr."""
    own = Bind(str(INSIDE), INSIDE_TARGET)
    python = [Bind(sys.base_prefix, sys.base_prefix)] if is_outside_usr(sys.base_prefix) else []
    return replace(plan, binds=(*plan.binds, own, *python))


def check_targets(binds: Sequence[Bind]) -> None:
    """Root creates the folders that others are mounted on. In one that the workspace writes to, it would follow links,
    to anywhere on the machine."""
    for writable in (each for each in binds if not each.read_only):
        for each in binds:
            if each is not writable and Path(each.target).is_relative_to(writable.target):
                raise EngineError(
                    Reason.ENGINE_UNAVAILABLE,
                    f"{each.source} cannot be used from below {writable.target}, which workspaces have of their own; "
                    "install it elsewhere, for example below /usr/local or /opt",
                )


def is_outside_usr(path: str) -> bool:
    return not Path(path).is_relative_to("/usr")
