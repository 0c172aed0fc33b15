"""The limits of a workspace, in a folder in place of the kernel's. Its files exist before, as the kernel makes them."""

import os
import signal
from pathlib import Path

import pytest

from fairlead.runner.engines.devcontainer import cgroups
from fairlead.runner.engines.devcontainer.cgroups import PERIOD, TOOLS_MEMORY_BYTES, TOOLS_PROCESSES
from tests.runner.harness.grants import UID, make_grant
from tests.runner.harness.podman import require_podman

GROUP = f"fairlead-{UID}"
GRANT = make_grant(memory_bytes=1 << 28, cpus=1.5, processes=128)
MEMORY = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
FILES_1 = {"memory": MEMORY, "cpu": ("cpu.cfs_period_us", "cpu.cfs_quota_us"), "pids": ("pids.max",)}
FILES_2 = ("memory.max", "memory.swap.max", "cpu.max", "pids.max", "cgroup.subtree_control")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    monkeypatch.setattr(os, "chown", lambda path, uid, gid: Path(f"{path}.owner").write_text(str(uid)))
    return tmp_path


@pytest.fixture
def version_1(root: Path) -> Path:
    for controller in cgroups.CONTROLLERS:
        make_files(root / controller / GROUP, FILES_1.get(controller, ()))
        make_files(root / controller / GROUP / "box", (*FILES_1.get(controller, ()), "cgroup.procs", "tasks"))
    return root


@pytest.fixture
def version_2(root: Path) -> Path:
    (root / "cgroup.controllers").touch()
    make_files(root / GROUP, (*FILES_2, "cgroup.procs"))
    make_files(root / GROUP / "box", (*FILES_2, "cgroup.procs", "cgroup.threads"))
    return root


def make_files(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()


def read(folder: Path, names: tuple[str, ...]) -> list[str]:
    return [(folder / name).read_text() for name in names]


def test_in_version_1_each_controller_has_its_limits(version_1: Path) -> None:
    found = cgroups.ensure_cgroups(GRANT)
    folders = tuple(str(version_1 / each / GROUP) for each in cgroups.CONTROLLERS)
    assert (found.roots, found.tools) == (folders, folders)
    box = {controller: version_1 / controller / GROUP / "box" for controller in FILES_1}
    assert read(box["memory"], MEMORY) == [str(1 << 28)] * 2
    assert read(box["cpu"], FILES_1["cpu"]) == [str(PERIOD), "150000"]
    assert read(box["pids"], ("pids.max",)) == ["128"]
    assert read(box["memory"].parent, MEMORY) == [str((1 << 28) + TOOLS_MEMORY_BYTES)] * 2
    assert read(box["pids"].parent, ("pids.max",)) == [str(128 + TOOLS_PROCESSES)]


def test_in_version_2_one_folder_has_all_limits(version_2: Path) -> None:
    found = cgroups.ensure_cgroups(GRANT)
    assert (found.roots, found.tools) == ((str(version_2 / GROUP),), (str(version_2 / GROUP / "tools"),))
    assert read(version_2 / GROUP / "box", FILES_2[:4]) == [str(1 << 28), "0", f"150000 {PERIOD}", "128"]
    outer = [str((1 << 28) + TOOLS_MEMORY_BYTES), "0", f"150000 {PERIOD}", str(128 + TOOLS_PROCESSES)]
    assert read(version_2 / GROUP, FILES_2[:4]) == outer
    for folder in (version_2, version_2 / GROUP):
        assert (folder / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"


def test_a_kernel_that_does_not_account_for_swap_gets_no_limit_of_it(version_1: Path) -> None:
    for folder in (GROUP, f"{GROUP}/box"):
        (version_1 / "memory" / folder / "memory.memsw.limit_in_bytes").unlink()
    cgroups.ensure_cgroups(GRANT)
    assert not list(version_1.rglob("memory.memsw*"))
    assert read(version_1 / "memory" / GROUP / "box", MEMORY[:1]) == [str(1 << 28)]


@pytest.mark.parametrize("version", ["version_1", "version_2"])
def test_the_workspace_owns_no_file_with_a_limit(version: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(version)
    cgroups.ensure_cgroups(GRANT)
    owned = {path.name.removesuffix(".owner"): path for path in root.rglob("*.owner")}
    assert set(owned) <= {"box", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks"}
    assert {path.read_text() for path in owned.values()} == {str(GRANT.first_uid)}
    assert not [path for path in owned.values() if path.parent.name != "box" and path.name == "tasks.owner"]


def test_limits_of_the_real_kernel_can_be_lowered_and_raised_again() -> None:
    """The kernel refuses some orders of writes: a group may not have more than the one around it."""
    require_podman()
    uid = f"test-of-limits-{os.getpid()}"
    try:
        for cpus, memory in ((2.0, 1 << 30), (0.5, 1 << 28), (1.0, 1 << 29)):
            cgroups.ensure_cgroups(make_grant(uid=uid, cpus=cpus, memory_bytes=memory))
    finally:
        cgroups.remove_cgroups(uid)
    assert not [root for root in cgroups.list_roots(uid) if root.exists()]


def test_what_is_left_in_a_group_ends_when_it_is_removed(version_1: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    (version_1 / "pids" / GROUP / "box" / "cgroup.procs").write_text("17\n18\n")
    (version_1 / "pids" / GROUP / "cgroup.procs").write_text("19\n")
    cgroups.remove_cgroups(UID)
    assert killed == [(17, signal.SIGKILL), (18, signal.SIGKILL), (19, signal.SIGKILL)]


def test_the_folder_of_a_controller_is_found_in_both_versions(root: Path) -> None:
    assert cgroups.find_box(UID, "memory") == root / "memory" / GROUP / "box"
    (root / "cgroup.controllers").touch()
    assert cgroups.find_box(UID, "memory") == root / GROUP / "box"
    assert cgroups.read_pids(root / "missing") == []


def test_in_version_2_a_workspace_cannot_use_up_the_groups_of_the_machine(version_2: Path) -> None:
    for folder in (version_2 / GROUP, version_2 / GROUP / "box"):
        (folder / "cgroup.max.descendants").touch()
    cgroups.ensure_cgroups(GRANT)
    for folder in (version_2 / GROUP, version_2 / GROUP / "box"):
        assert (folder / "cgroup.max.descendants").read_text() == str(cgroups.MAX_GROUPS)
