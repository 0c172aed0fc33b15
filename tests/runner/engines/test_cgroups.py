"""The limits of a workspace, in a folder in place of the kernel's, and on the kernel of the machine."""

import asyncio
import errno
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import EngineError
from fairlead.runner.engines.devcontainer.isolation import cgroups
from fairlead.runner.engines.devcontainer.isolation.cgroups import PERIOD, TOOLS_MEMORY_BYTES, TOOLS_PROCESSES
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder
from tests.runner.harness.grants import UID, make_grant
from tests.runner.harness.podman import require_podman

FOLDER = WorkspaceFolder(Path("/state/workspaces", UID))
GROUP = cgroups.cgroup_name(FOLDER)
GRANT = make_grant(memory_bytes=1 << 28, cpus=1.5, processes=128)
MEMORY = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
FILES_1 = {"memory": MEMORY, "cpu": ("cpu.cfs_period_us", "cpu.cfs_quota_us"), "pids": ("pids.max",)}
LIMITS_2 = ("memory.max", "memory.swap.max", "cpu.max", "pids.max")
FILES_2 = (
    *("cgroup.controllers", "cgroup.events", "cgroup.freeze", "cgroup.kill", "cgroup.max.depth"),
    *("cgroup.max.descendants", "cgroup.pressure", "cgroup.procs", "cgroup.stat", "cgroup.subtree_control"),
    *("cgroup.threads", "cgroup.type"),
)
"""What Linux 6.1 has in each group of version 2, also without controllers."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    monkeypatch.setattr(os, "chown", lambda path, uid, gid: Path(f"{path}.owner").write_text(str(uid)))
    return tmp_path


@pytest.fixture
def version_1(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def list_files(folder: Path) -> tuple[str, ...]:
        if folder.parent == root:
            return ()
        return (*FILES_1.get(folder.relative_to(root).parts[0], ()), "cgroup.procs", "tasks")

    for controller in cgroups.CONTROLLERS:
        (root / controller).mkdir()
    fill_new_folders(monkeypatch, list_files)
    return root


@pytest.fixture
def version_2(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder at the top has files of limits at once, because the machine's root offers controllers; one below that
    does not, as on a kernel."""

    def list_files(folder: Path) -> tuple[str, ...]:
        return (*(LIMITS_2 if folder.parent == root else ()), *FILES_2)

    (root / "cgroup.controllers").touch()
    fill_new_folders(monkeypatch, list_files)
    return root


def fill_new_folders(monkeypatch: pytest.MonkeyPatch, list_files: Callable[[Path], tuple[str, ...]]) -> None:
    """Each folder that is made from now on has files, as the kernel makes them."""
    make_folder = Path.mkdir

    def make(folder: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if parents and not folder.parent.exists():
            make(folder.parent)
        make_folder(folder)
        for name in list_files(folder):
            (folder / name).touch()

    monkeypatch.setattr(Path, "mkdir", make)


def read(folder: Path, names: tuple[str, ...]) -> list[str]:
    return [(folder / name).read_text() for name in names]


def test_in_version_1_each_controller_has_its_limits(version_1: Path) -> None:
    found = cgroups.create_cgroups(FOLDER, GRANT)
    folders = tuple(str(version_1 / each / GROUP) for each in cgroups.CONTROLLERS)
    assert (found.roots, found.tools, found.settings) == (folders, folders, ())
    box = {controller: version_1 / controller / GROUP / "box" for controller in FILES_1}
    assert read(box["memory"], MEMORY) == [str(1 << 28)] * 2
    assert read(box["cpu"], FILES_1["cpu"]) == [str(PERIOD), "150000"]
    assert read(box["pids"], ("pids.max",)) == ["128"]
    assert read(box["memory"].parent, MEMORY) == [str((1 << 28) + TOOLS_MEMORY_BYTES)] * 2
    assert read(box["pids"].parent, ("pids.max",)) == [str(128 + TOOLS_PROCESSES)]


def test_in_version_2_the_limits_of_the_box_follow_when_nothing_is_in_the_outer_group(version_2: Path) -> None:
    """The kernel refuses a process to enter a group that limits those below it."""
    found = cgroups.create_cgroups(FOLDER, GRANT)
    group = version_2 / GROUP
    assert (found.roots, found.tools) == ((str(group),), (str(group / "tools"),))
    outer = [str((1 << 28) + TOOLS_MEMORY_BYTES), "0", f"150000 {PERIOD}", str(128 + TOOLS_PROCESSES)]
    assert read(group, LIMITS_2) == outer
    assert (version_2 / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"
    assert (group / "cgroup.subtree_control").read_text() == ""
    inner = [str(1 << 28), "0", f"150000 {PERIOD}", "128"]
    assert found.settings == (
        (f"{group}/cgroup.subtree_control", "+memory +cpu +pids"),
        *((f"{group}/box/{name}", value) for name, value in zip(LIMITS_2, inner, strict=True)),
        (f"{group}/box/cgroup.max.descendants", str(cgroups.MAX_GROUPS)),
    )


def test_in_version_2_a_workspace_cannot_use_up_the_groups_of_the_machine(version_2: Path) -> None:
    cgroups.create_cgroups(FOLDER, GRANT)
    assert (version_2 / GROUP / "cgroup.max.descendants").read_text() == str(cgroups.MAX_GROUPS)


def test_a_machine_whose_root_offers_no_limits_is_named(version_2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, its own processes are in the root that it sees: the kernel answers so."""

    def refuse(path: Path, text: str) -> int:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(EngineError, match=r"cannot have limits of memory, cpu, pids \(Device or resource busy\)"):
        cgroups.create_cgroups(FOLDER, GRANT)


def test_a_kernel_that_does_not_account_for_swap_gets_no_limit_of_it(
    version_1: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FILES_1, "memory", MEMORY[:1])
    cgroups.create_cgroups(FOLDER, GRANT)
    assert not list(version_1.rglob("memory.memsw*"))
    assert read(version_1 / "memory" / GROUP / "box", MEMORY[:1]) == [str(1 << 28)]


def test_controllers_that_share_a_folder_have_one_group(version_1: Path) -> None:
    """Systemd mounts two controllers together, with links that have their names."""
    for name in ("cpu", "cpuacct"):
        (version_1 / name).rmdir()
    (version_1 / "cpu,cpuacct").mkdir()
    for name in ("cpu", "cpuacct"):
        (version_1 / name).symlink_to("cpu,cpuacct")
    found = cgroups.create_cgroups(FOLDER, GRANT)
    assert [Path(each).parent.name for each in found.roots] == ["memory", "cpu,cpuacct", "pids", "devices", "freezer"]


@pytest.mark.parametrize(
    ("offered", "missing"),
    [
        ("cpuset cpu io memory hugetlb pids rdma misc", []),
        ("cpuset cpu io pids", ["memory"]),
        ("", ["memory", "cpu", "pids"]),
    ],
)
def test_controllers_that_a_machine_with_version_2_does_not_have_are_missing(
    version_2: Path, offered: str, missing: list[str]
) -> None:
    (version_2 / "cgroup.controllers").write_text(offered + "\n")
    assert cgroups.list_missing_controllers() == missing


def test_controllers_that_a_machine_with_version_1_does_not_have_are_missing(version_1: Path) -> None:
    assert cgroups.list_missing_controllers() == []
    (version_1 / "memory").rmdir()
    assert cgroups.list_missing_controllers() == ["memory"]


@pytest.mark.parametrize("version", ["version_1", "version_2"])
def test_the_workspace_owns_no_file_with_a_limit(version: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(version)
    cgroups.create_cgroups(FOLDER, GRANT)
    owned = {path.name.removesuffix(".owner"): path for path in root.rglob("*.owner")}
    assert set(owned) <= {"box", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks"}
    assert {path.read_text() for path in owned.values()} == {str(GRANT.first_uid)}
    assert not [path for path in owned.values() if path.parent.name != "box" and path.name == "tasks.owner"]


def test_groups_of_the_real_kernel_are_made_anew_with_other_limits_and_end_what_is_in_them() -> None:
    require_podman()
    folder = WorkspaceFolder(Path("/state/workspaces", f"test-of-limits-{os.getpid()}"))
    started: list[subprocess.Popen[bytes]] = []
    try:
        for cpus, memory in ((2.0, 1 << 30), (0.5, 1 << 28), (1.0, 1 << 29)):
            made = asyncio.run(cgroups.renew_cgroups(folder, make_grant(cpus=cpus, memory_bytes=memory)))
            for path, value in made.settings:
                Path(path).write_text(value)
            box = cgroups.find_box(folder, "memory")
            limits = [box / name for name in ("memory.max", "memory.limit_in_bytes")]
            assert [int(each.read_text()) for each in limits if each.exists()] == [memory]
            started.append(subprocess.Popen(["sleep", "600"]))
            for tools in made.tools:
                Path(tools, "cgroup.procs").write_text(str(started[-1].pid))
        assert [each.poll() for each in started] == [-signal.SIGKILL, -signal.SIGKILL, None]
    finally:
        for each in started:
            each.kill()
            each.wait()
        cgroups.remove_cgroups(folder)
    assert not [root for root in cgroups.list_roots(folder) if root.exists()]


async def test_a_group_that_cannot_be_removed_is_named_with_its_processes(
    version_1: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "REMOVAL_SECONDS", 0.1)
    cgroups.create_cgroups(FOLDER, GRANT)
    (version_1 / "pids" / GROUP / "box" / "cgroup.procs").write_text("99999999\n")
    with pytest.raises(EngineError, match=r"memory/fairlead-.* cannot be removed; processes .* do not end: 99999999$"):
        await cgroups.renew_cgroups(FOLDER, GRANT)


def test_what_is_left_in_a_group_ends_when_it_is_removed(version_1: Path) -> None:
    cgroups.create_cgroups(FOLDER, GRANT)
    processes = [subprocess.Popen(["/bin/sleep", "1000"]) for _ in range(3)]
    (version_1 / "pids" / GROUP / "box" / "cgroup.procs").write_text(f"{processes[0].pid}\n{processes[1].pid}\n")
    (version_1 / "pids" / GROUP / "cgroup.procs").write_text(f"{processes[2].pid}\n")
    cgroups.remove_cgroups(FOLDER)
    assert [each.wait(10) for each in processes] == [-signal.SIGKILL] * 3


def test_in_version_2_the_kernel_ends_all_of_a_group_at_once(version_2: Path) -> None:
    cgroups.create_cgroups(FOLDER, GRANT)
    cgroups.remove_cgroups(FOLDER)
    assert (version_2 / GROUP / "cgroup.kill").read_text() == "1"


def test_the_folder_of_a_controller_is_found_in_both_versions(root: Path) -> None:
    assert cgroups.find_box(FOLDER, "memory") == root / "memory" / GROUP / "box"
    (root / "cgroup.controllers").touch()
    assert cgroups.find_box(FOLDER, "memory") == root / GROUP / "box"


def test_two_runners_on_one_machine_may_have_workspaces_with_the_same_uid(version_1: Path) -> None:
    """After the server was copied, for example. One that ends its own leaves the other's alone."""
    own = subprocess.Popen(["/bin/sleep", "1000"])
    other = subprocess.Popen(["/bin/sleep", "1000"])
    for process, folder in ((own, FOLDER), (other, WorkspaceFolder(Path("/other/workspaces", UID)))):
        cgroups.create_cgroups(folder, GRANT)
        (cgroups.find_box(folder, "pids") / "cgroup.procs").write_text(f"{process.pid}\n")
    cgroups.remove_cgroups(FOLDER)
    assert own.wait(10) == -signal.SIGKILL
    assert other.poll() is None
    other.kill()
    other.wait()
