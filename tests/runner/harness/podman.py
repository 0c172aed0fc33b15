"""Real podman and the real dev container CLI for tests, apart from everything else on the machine.

`make test-tools` installs them, and builds the image. Each `Containers` has its own image store on top of that, its own
networks and its own range of user ids, so that tests of several files run at the same time.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import Limits
from fairlead.runner.engines.devcontainer.cleanup import remove_everything
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.engines.devcontainer.grant import IDS_PER_WORKSPACE
from fairlead.runner.engines.devcontainer.isolation.firewall import (
    chain_name,
    forward_chain_name,
    forward_jump,
    list_jumps,
    list_routing_rules,
)
from fairlead.runner.engines.devcontainer.isolation.holder import ENVIRONMENT, find_holder
from fairlead.runner.engines.devcontainer.isolation.network import INTERFACE_PREFIX, NAMESPACES
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, list_folders, open_folder
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.measurement import read_process
from tests.harness.eventually import wait_until
from tests.runner.harness.processes import list_pids
from tests.runner.harness.root_programs import HARNESS_VARIABLE, watch_root_programs

TOOLS = Path(__file__).resolve().parents[3] / ".tools"
IMAGE = "localhost/workspace"
RANGES = Path("/var/tmp/workspaces-ranges")
"""That of all tests of this machine."""
SMALL = Limits(memory_bytes=256 << 20, cpus=1.0, processes=128)


@dataclass(frozen=True, slots=True)
class Containers:
    """A place for containers. `folder` holds everything, `repositories` may be sources."""

    folder: Path
    number: int

    @property
    def repositories(self) -> Path:
        return self.folder / "repositories"

    def settings(self, **changes: object) -> Settings:
        defaults = {
            "state_folder": self.folder / "state",
            "runner": f"test-{self.number}",
            "cli": (find_node(), str((TOOLS / "bin/devcontainer").resolve())),
            "image_stores": tuple(path for path in (TOOLS / "images/storage", self.own_images) if path.exists()),
            "allowed_folders": (self.repositories,),
            "default_limits": SMALL,
            "min_free_bytes": 1 << 20,
            "ranges_folder": RANGES,
            "first_uid": 1_000_000_000 + self.number * 64 * 65536,
            "network_pool": f"10.{214 + self.number // 64}.{self.number % 64 * 4}.0/22",
        }
        return Settings(**{**defaults, **changes})  # type: ignore[arg-type]

    def engine(self, **changes: object) -> DevcontainerEngine:
        return DevcontainerEngine(self.settings(**changes))

    @property
    def own_images(self) -> Path:
        """An image store beside the one of the tools, for images of a test."""
        return self.folder / "images"

    def import_image(self, name: str) -> None:
        """Gives the image of the tests another name, for workspaces that start afterwards."""
        store = (f"--root={self.own_images}", f"--runroot={self.folder}/images-run")
        command = ["podman", *store, "import", "--quiet", "--change=USER dev", f"{TOOLS}/workspace-image.tar", name]
        environment = {**os.environ, HARNESS_VARIABLE: "1"}
        subprocess.run(command, env=environment, check=True, capture_output=True)

    def list_states(self) -> list[Path]:
        """State folders of engines: that of the tests, and those of runners."""
        return [self.folder / "state", *self.folder.glob("*/engines/*"), *self.folder.glob("*/state/engines/*")]

    def podman(self, uid: str, *arguments: str, check: bool = True) -> str:
        """Runs podman in the holder of a workspace."""
        return self.run(uid, "podman", *arguments, check=check)

    def run(self, uid: str, *command: str, check: bool = True) -> str:
        """Runs a program in the holder of a workspace, as its tools run."""
        holders = [find_holder(open_folder(state, uid).holder) for state in self.list_states()]
        holder = next((each for each in holders if each is not None), None)
        assert holder is not None, f"{uid} has no holder"
        entered = holder.enter(command)
        return subprocess.run(entered, env=dict(ENVIRONMENT), check=check, capture_output=True, text=True).stdout

    def find_first_uid(self, uid: str) -> int:
        """The id of the machine that root of a running workspace has. Inside, the map is that of an outer namespace."""
        holder = find_holder(open_folder(self.folder / "state", uid).holder)
        assert holder is not None, f"{uid} has no holder"
        return int(Path(f"/proc/{holder.pid}/uid_map").read_text().split()[1])

    def copy_folder(self, uid: str, path: str, target: Path) -> None:
        """Copies a folder that the holder of a workspace sees."""
        holder = find_holder(open_folder(self.folder / "state", uid).holder)
        assert holder is not None, f"{uid} has no holder"
        shutil.copytree(f"/proc/{holder.pid}/root{path}", target)

    def commit(self, name: str, files: Mapping[str, str]) -> str:
        """Creates a repository with one commit, and returns its URL."""
        folder = self.repositories / name
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        for command in (("init", "-q", "-b", "main"), ("add", "-A"), (*identity, "commit", "-qm", "First")):
            environment = {**os.environ, HARNESS_VARIABLE: "1"}
            subprocess.run(["git", "-C", str(folder), *command], env=environment, check=True, capture_output=True)
        return f"file://{folder}"


@contextmanager
def open_containers() -> Iterator[Containers]:
    """Skips the test where the machine lacks something; in CI that is a failure."""
    require_podman()
    folder = Path(tempfile.mkdtemp(prefix="workspaces-", dir="/var/tmp"))
    folder.chmod(0o711)  # users of containers read the repositories
    with take_number() as number:
        containers = Containers(folder, number)
        containers.repositories.mkdir()
        try:
            with watch_root_programs(os.getpid()):
                yield containers
        finally:
            for state in containers.list_states():
                pulled = [WorkspaceFolder(path) for path in state.glob("pulled/*")]
                for each in (*list_folders(state), *pulled):
                    asyncio.run(remove_everything(containers.settings(state_folder=state), each))
            for state in containers.list_states():
                remove_firewall(containers.settings(state_folder=state))
            shutil.rmtree(folder)
            wait_until(lambda: not list_loop_devices(folder), what="the loop devices of deleted workspaces are free")


@contextmanager
def take_number() -> Iterator[int]:
    """A number that no other test of this machine uses now: user ids and networks follow from it."""
    for number in range(128):
        with Path(f"/var/tmp/workspaces-{number}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield number
            return
    raise RuntimeError("128 tests with containers run already")


def remove_firewall(settings: Settings) -> None:
    """Removes the rules of an engine that is gone, apart from the one that all engines share."""
    chain = chain_name(settings)
    commands = [("mangle", "-D", rule) for rule in list_jumps(settings) for _ in range(2)]
    commands += [("mangle", "-F", [chain]), ("mangle", "-X", [chain])]
    forward = forward_chain_name(settings)
    commands += [("filter", "-D", forward_jump(settings)), ("filter", "-F", [forward]), ("filter", "-X", [forward])]
    commands += [(table, "-D", rule) for table, rule in list_routing_rules(settings) if settings.network_pool in rule]
    for table, command, rule in commands:
        subprocess.run(["iptables", "--wait", "-t", table, command, *rule], check=False, capture_output=True)


def expect_nothing_left(uid: str, first_uid: int, seconds: float = 5) -> None:
    """A killed process leaves its control group a moment before it is gone. It runs no more instructions of its own."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not list_leftovers(uid, first_uid), seconds)
    assert list_leftovers(uid, first_uid) == []


def list_leftovers(uid: str, first_uid: int) -> list[str]:
    """What is left on the machine of a workspace with this uid and these ids, apart from its folder."""
    networks = f"{INTERFACE_PREFIX}*{first_uid // IDS_PER_WORKSPACE:04x}"
    found = [str(path) for parent in (NAMESPACES, Path("/sys/class/net")) for path in parent.glob(networks)]
    found += list_groups(uid)
    owners = range(first_uid, first_uid + IDS_PER_WORKSPACE)
    found += [str(pid) for pid in list_pids() if _read_owner(Path(f"/proc/{pid}")) in owners and read_process(pid)]
    return found


def list_groups(uid: str) -> list[str]:
    """The control groups of workspaces with this uid, of all runners of this machine."""
    return sorted(str(path) for depth in ("", "*/") for path in Path("/sys/fs/cgroup").glob(f"{depth}fairlead-{uid}*"))


def list_loop_devices(folder: Path) -> list[str]:
    """Files below a folder that have a loop device, also those that were deleted since."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            found.append(path.read_text().strip())
    return [each for each in found if Path(each).is_relative_to(folder)]


def _read_owner(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return -1


def require_podman() -> None:
    if os.geteuid() != 0:
        pytest.skip("containers of workspaces need root")
    for program in ("podman", "runc", "git", "iptables"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed; `make test-tools` installs it")
    for path in (TOOLS / "bin/devcontainer", TOOLS / "images/storage.conf"):
        if not path.exists():
            pytest.skip(f"there is no {path.name} in .tools; `make test-tools` creates it")


def find_node() -> str:
    own = TOOLS / "bin/node"
    return str(own.resolve()) if own.exists() else shutil.which("node") or "node"
