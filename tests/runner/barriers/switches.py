"""Switches barriers of the engine `devcontainer` off, one or several, to see that tests fail without them.

It is a plugin of pytest: `-p tests.runner.barriers.switches --without NAME`. The product has no such switches: programs
that run as files are replaced by altered copies, and functions of the engine in the process of the tests. If the place
of a switch has changed, that is an error, so that none does nothing.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fairlead.runner.engines.devcontainer import preparation
from fairlead.runner.engines.devcontainer.inside import builds
from fairlead.runner.engines.devcontainer.isolation import cgroups, holder, workspace_holder
from fairlead.runner.engines.devcontainer.isolation.holder import Bind, Holder
from fairlead.runner.engines.devcontainer.isolation.workspace_holder import HolderFactory
from fairlead.runner.engines.devcontainer.programs import Result
from tests.runner.harness.canaries import ENVIRONMENT_CANARY, PARENT

REPORT = "barriers.json"


@dataclass(slots=True)
class Alterations:
    """What is done when the tests begin, and undone when they end."""

    patch: pytest.MonkeyPatch
    texts: list[tuple[str, str, str]] = field(default_factory=list)
    """Program, what is in it, and what is there instead."""

    def replace(self, program: str, text: str, other: str) -> None:
        self.texts.append((program, text, other))

    def set(self, owner: object, name: str, value: object) -> None:
        self.patch.setattr(owner, name, value)

    def write_programs(self, folder: Path) -> None:
        """Makes the engine run copies of its programs, with these texts."""
        inside = Path(shutil.copytree(holder.INSIDE, folder / "inside"))
        namespaces = Path(shutil.copy(holder.NAMESPACES, folder))
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        for program, text, other in self.texts:
            path = namespaces if program == namespaces.name else inside / program
            before = path.read_text()
            if before.count(text) != 1:
                raise pytest.UsageError(f"{program} has {before.count(text)} times what a switch replaces: {text!r}")
            path.write_text(before.replace(text, other))
        self.set(holder, "INSIDE", inside)
        self.set(holder, "NAMESPACES", namespaces)


def remove_ids(altered: Alterations) -> None:
    """Root of the holder is root of the machine, to whom its control groups then belong."""
    altered.set(cgroups, "_give", lambda *_: None)
    altered.replace("namespaces.py", "= json.load(sys.stdin)", '= {**json.load(sys.stdin), "first_uid": 0}')


def remove_root(altered: Alterations) -> None:
    """The holder sees a folder of the machine, where the tests have what only root can read and write."""
    before = "    enter_root(root)\n\n\ndef show_images"
    shown = f'    os.mkdir(root + "{PARENT}")\n    bind("{PARENT}", root + "{PARENT}", 0)\n'
    altered.replace("namespaces.py", before, shown + before)


def remove_namespace_limits(altered: Alterations) -> None:
    altered.replace("namespaces.py", '    limit_namespaces(plan["max_networks"])\n', "")


def remove_network(altered: Alterations) -> None:
    """The network belongs to root of the holder."""
    limited = '    limit_namespaces(plan["max_networks"])\n    enter_inner_namespace()\n    become_root()\n'
    made = '    unshare(CLONE_NEWNET)\n    os.system("ip link add eth0 type veth peer name eth1")\n'
    altered.replace("namespaces.py", limited, f"    enter_inner_namespace()\n    become_root()\n{made}")


def show_disks(altered: Alterations) -> None:
    altered.replace("namespaces.py", "HIDDEN_FOLDERS = (", "HIDDEN_FOLDERS = () and (")


def show_locks(altered: Alterations) -> None:
    altered.replace("namespaces.py", '        cover_locks(f"{target}/{name}", own)\n', "")


def allow_contexts(altered: Alterations) -> None:
    altered.set(builds, "check_context", lambda *_: None)


def remove_firewall(altered: Alterations) -> None:
    async def nothing(*_: object) -> None:
        pass

    altered.set(preparation, "ensure_firewall", nothing)
    altered.set(preparation, "protect_network", nothing)


def remove_limits(altered: Alterations) -> None:
    altered.set(cgroups, "describe_limits", lambda *_: {})


def remove_disk(altered: Alterations) -> None:
    altered.set(preparation, "choose_disk_bytes", lambda *_: 0)


def remove_disk_limits(altered: Alterations) -> None:
    altered.set(holder, "limit_devices", lambda *_, **__: None)


def share_clones(altered: Alterations) -> None:
    """All programs that should be alone run in one holder."""
    started: dict[Path, Holder] = {}

    async def run_alone(self: HolderFactory, command: list[str], binds: list[Bind], stdin: bytes = b"") -> Result:
        place = self.folder.root
        if place not in started:
            files = {**workspace_holder.FILES, "/etc/resolv.conf": ""}
            started[place] = await holder.start_holder(await self._plan(binds, files))
        return await started[place].run(*command, stdin=stdin)

    altered.set(HolderFactory, "run_alone", run_alone)


def give_environment(altered: Alterations) -> None:
    """Podman has a variable of the runner in its environment."""
    altered.patch.setitem(holder.ENVIRONMENT, "FAIRLEAD_PLANTED", ENVIRONMENT_CANARY)


SWITCHES: Mapping[str, Callable[[Alterations], None]] = {
    "user ids": remove_ids,
    "root file system": remove_root,
    "limits of namespaces": remove_namespace_limits,
    "network of root": remove_network,
    "hidden folders of the kernel": show_disks,
    "locks of its own": show_locks,
    "contexts in the repository": allow_contexts,
    "firewall": remove_firewall,
    "limits": remove_limits,
    "disk": remove_disk,
    "limits of disks": remove_disk_limits,
    "a holder for each clone": share_clones,
    "environment of the tools": give_environment,
}


# --- the plugin -------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without", action="append", default=[], choices=[*SWITCHES], help="a barrier that is off")
    parser.addoption("--barriers-report", help="the file that gets the outcome of each phase of each test")


class Report:
    """Lines of JSON: test, phase, outcome and message."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        entry = (report.nodeid, report.when, report.outcome, report.longreprtext)
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


@pytest.fixture(scope="session", autouse=True)
def without_barriers(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir="/opt") as folder:
        altered = Alterations(patch)
        for name in request.config.getoption("--without"):
            SWITCHES[name](altered)
        if altered.texts:
            altered.write_programs(Path(folder))
        yield


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--barriers-report")
    if path:
        config.pluginmanager.register(Report(Path(path)))
