"""The file and the loop device of a workspace's disk."""

import os
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import EngineError, Reason, WorkspaceSpec
from fairlead.runner.engines.devcontainer.isolation import disk
from fairlead.runner.engines.devcontainer.isolation.disk import DiskUsage, attach, create_disk
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder
from fairlead.runner.engines.devcontainer.preparation import choose_disk_bytes, prepare_disk
from fairlead.runner.engines.devcontainer.settings import Settings
from tests.harness.eventually import eventually
from tests.runner.engines.test_preparation import make_spec
from tests.runner.harness.grants import make_grant
from tests.runner.harness.podman import list_loop_devices

GIBIBYTE = 1 << 30
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="loop devices need root")


async def test_a_new_disk_takes_up_little_and_replaces_what_a_killed_runner_left(tmp_path: Path) -> None:
    path = tmp_path / "disk.img"
    path.with_name("disk.img.new").write_text("half of a disk")
    await create_disk(path, 32 * GIBIBYTE)
    assert os.listdir(tmp_path) == ["disk.img"]
    found = path.stat()
    assert (found.st_size, found.st_mode & 0o777) == (32 * GIBIBYTE, 0o600)
    assert found.st_blocks * 512 < 16 << 20


async def test_a_disk_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"cannot be made in .*: No such file or directory"):
        await create_disk(tmp_path / "missing/disk.img", GIBIBYTE)
    with pytest.raises(EngineError, match=r"cannot be made: mkfs\.ext4: ") as raised:
        await create_disk(tmp_path / "disk.img", 4096)
    assert raised.value.reason == Reason.ENGINE_UNAVAILABLE


@needs_root
async def test_a_disk_has_one_loop_device_however_often_it_is_attached(tmp_path: Path) -> None:
    """Two would not know of each other's writes, and destroy the file system."""
    path = tmp_path / "disk.img"
    await create_disk(path, GIBIBYTE)
    with attach(path) as first, attach(path) as second:
        assert first == second
        assert list_loop_devices(tmp_path) == [str(path)]
    await eventually(lambda: list_loop_devices(tmp_path) == [], 30)


def test_a_machine_without_loop_devices_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "LOOP_CONTROL", str(tmp_path / "missing"))
    (tmp_path / "disk.img").touch()
    expected = r"cannot be used without a loop device: .*`fairlead runner doctor`"
    with pytest.raises(EngineError, match=expected) as raised, attach(tmp_path / "disk.img"):
        pass
    assert raised.value.reason == Reason.ENGINE_UNAVAILABLE


def test_a_disk_is_full_without_bytes_or_without_files() -> None:
    usage = DiskUsage(total_bytes=GIBIBYTE, free_bytes=GIBIBYTE // 2, files=65536, free_files=1000)
    assert usage.describe_shortage() == ""
    assert "1024 MiB are used" in DiskUsage(GIBIBYTE, 0, 65536, 1000).describe_shortage()
    assert "65536 files" in DiskUsage(GIBIBYTE, GIBIBYTE, 65536, 0).describe_shortage()


@pytest.mark.parametrize(
    ("storage", "operator", "chosen"),
    [
        ("", 32, 32),
        ("10Gi", 32, 10),
        ("100Gi", 32, 32),
        ("10Gi", 0, 0),
        ("", 0, 0),
    ],
)
def test_a_template_chooses_less_than_the_operator_allows(
    tmp_path: Path, storage: str, operator: int, chosen: int
) -> None:
    settings = Settings(state_folder=tmp_path, runner="r", workspace_disk_bytes=operator * GIBIBYTE)
    assert choose_disk_bytes(with_storage(storage), settings) == chosen * GIBIBYTE


@pytest.mark.parametrize("storage", ["x", "-1", "0", "1Mi", "10 Gi", "1e9", "9" * 400])
def test_a_size_that_makes_no_sense_is_refused(tmp_path: Path, storage: str) -> None:
    with pytest.raises(EngineError, match="it must be a size such as 10Gi, and at least 256Mi") as raised:
        choose_disk_bytes(with_storage(storage), Settings(state_folder=tmp_path, runner="r"))
    assert raised.value.reason == Reason.CONFIGURATION_INVALID


def with_storage(storage: str) -> WorkspaceSpec:
    return WorkspaceSpec("u", "p", "demo", "ada", make_spec().source, options={"storage": storage})


async def test_a_disk_keeps_its_size(tmp_path: Path) -> None:
    folder = WorkspaceFolder(tmp_path)
    for size in (GIBIBYTE, 2 * GIBIBYTE, 0):
        await prepare_disk(folder, make_grant(disk_bytes=size))
        assert folder.disk.stat().st_size == GIBIBYTE
    assert sorted(os.listdir(tmp_path)) == ["disk.img", "task", "unused"]
