"""Real podman and the real dev container CLI for tests, apart from everything else on the machine.

`make test-tools` installs them, and builds the image. Each `Containers` has its own image store on top of that, its own
networks and its own range of user ids, so that tests of several files run at the same time.
"""

import fcntl
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import Limits
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.engines.devcontainer.firewall import CHAIN, list_rules
from fairlead.runner.engines.devcontainer.networks_folder import find_networks_folder
from fairlead.runner.engines.devcontainer.settings import Settings

TOOLS = Path(__file__).resolve().parents[3] / ".tools"
IMAGE = "localhost/workspace"
SMALL = Limits(memory_bytes=256 << 20, cpus=1.0, processes=128)


@dataclass(frozen=True, slots=True)
class Containers:
    """A place for containers. `folder` holds everything, `repositories` may be sources."""

    folder: Path
    environment: Mapping[str, str]
    number: int

    @property
    def repositories(self) -> Path:
        return self.folder / "repositories"

    def settings(self, **changes: object) -> Settings:
        defaults = {
            "state_folder": self.folder / "state",
            "runner": f"test-{self.number}",
            "cli": (find_node(), str((TOOLS / "bin/devcontainer").resolve())),
            "podman_environment": self.environment,
            "allowed_folders": (self.repositories,),
            "default_limits": SMALL,
            "min_free_bytes": 1 << 20,
            "first_uid": 1_000_000_000 + self.number * 64 * 65536,
            "networks_folder": find_networks_folder(self.environment),
            "network_pool": f"10.{214 + self.number // 64}.{self.number % 64 * 4}.0/22",
        }
        return Settings(**{**defaults, **changes})  # type: ignore[arg-type]

    def engine(self, **changes: object) -> DevcontainerEngine:
        return DevcontainerEngine(self.settings(**changes))

    def podman(self, *arguments: str, check: bool = True) -> str:
        command = ["podman", *arguments]
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, check=check, capture_output=True, text=True).stdout

    def commit(self, name: str, files: Mapping[str, str]) -> str:
        """Creates a repository with one commit, and returns its URL."""
        folder = self.repositories / name
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        for command in (("init", "-q", "-b", "main"), ("add", "-A"), (*identity, "commit", "-qm", "First")):
            subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True)
        return f"file://{folder}"


@contextmanager
def open_containers() -> Iterator[Containers]:
    """Skips the test where the machine lacks something; in CI that is a failure."""
    require_podman()
    # Not below pytest's own folders: the users of containers must be able to pass all folders above theirs.
    folder = Path(tempfile.mkdtemp(prefix="workspaces-", dir="/var/tmp"))
    folder.chmod(0o711)
    with take_number() as number:
        containers = Containers(folder, write_configuration(folder), number)
        containers.repositories.mkdir()
        try:
            yield containers
        finally:
            containers.podman("rm", "--all", "--force", "--time=0", check=False)
            containers.podman("network", "prune", "--force", check=False)
            subprocess.run(["umount", str(folder / "storage/overlay")], check=False, capture_output=True)
            shutil.rmtree(folder)
            remove_firewall(containers.settings())


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
    """Removes the rules of an engine that is gone. The chain stays: another test may be about to use it."""
    pool = ("-s", settings.network_pool)
    rules = [[CHAIN, *pool, *rule] for rule in list_rules(settings)]
    commands = [["-D", *rule] for rule in (["PREROUTING", *pool, "-j", CHAIN], *rules)]
    for command in commands:
        subprocess.run(["iptables", "--wait", "-t", "mangle", *command], check=False, capture_output=True)


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


def write_configuration(folder: Path) -> dict[str, str]:
    """Settings of podman that work in containers and small machines, too: runc instead of crun, which refuses hybrid
    cgroups, and limits on open files that need no privilege."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    (folder / "networks").mkdir()
    (folder / "containers.conf").write_text(
        f"""
[containers]
default_ulimits = ["nofile=1024:{files}", "nproc=4096:8192"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""
    )
    (folder / "storage.conf").write_text(
        f"""
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
[storage.options]
additionalimagestores = ["{TOOLS}/images/storage"]
"""
    )
    return {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }
