"""Archives of images that workspaces share. A shell in place of a holder runs the commands."""

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from fairlead.runner.engines.contract import ImageSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer import shared_images
from fairlead.runner.engines.devcontainer.creation import Creation
from fairlead.runner.engines.devcontainer.detached import DetachedCommand, HandleLine
from fairlead.runner.engines.devcontainer.inside.build_key import Build, compute_key
from fairlead.runner.engines.devcontainer.isolation.holder import Holder
from fairlead.runner.engines.devcontainer.layout import SHARED_IMAGES, WorkspaceFolder
from fairlead.runner.engines.devcontainer.pulled_images import PulledImages
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.shared_images import SharedImages, choose_expired
from tests.harness.eventually import eventually
from tests.runner.harness.grants import make_grant
from tests.runner.harness.tasks import RecordedTask

KEY = "a" * 32
NOW = 1000.0


class FakeHolder:
    """A holder that built an image. Its podman prints an archive, and may fail half-way."""

    def __init__(self, code: int = 0, script: str = "printf archive") -> None:
        self.code, self.script, self.saved = code, script, 0

    def enter(self, command: Sequence[str]) -> list[str]:
        self.saved += 1
        podman = command.index("save") - 1
        script = ["/bin/sh", "-c", f"{self.script}; exit {self.code}"]
        return [*command[:podman], *script, *command[podman + 1 :]]


def make_images(tmp_path: Path, **changes: object) -> SharedImages:
    (tmp_path / SHARED_IMAGES / "repository").mkdir(parents=True, exist_ok=True)
    settings = Settings(state_folder=tmp_path, runner="r", **{"min_free_bytes": 1, **changes})  # type: ignore[arg-type]
    return SharedImages(settings)


def list_files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / SHARED_IMAGES).glob("*/*"))


async def save(
    tmp_path: Path, holder: FakeHolder, repository: str = "repository", key: str = KEY, **changes: object
) -> list[str]:
    await make_images(tmp_path, **changes).save(cast(Holder, holder), repository, key)
    return list_files(tmp_path)


async def test_an_image_that_was_built_is_saved_once(tmp_path: Path) -> None:
    holder = FakeHolder()
    assert await save(tmp_path, holder) == [f"{KEY}.tar"]
    archive = tmp_path / f"{SHARED_IMAGES}/repository/{KEY}.tar"
    assert (archive.read_bytes(), archive.stat().st_mode & 0o777) == (b"archive", 0o644)
    await save(tmp_path, holder)
    assert holder.saved == 1


async def test_without_a_key_that_was_named_before_the_build_nothing_is_saved(tmp_path: Path) -> None:
    holder = FakeHolder()
    assert await save(tmp_path, holder, key="") == []
    assert holder.saved == 0


async def test_an_archive_that_is_not_complete_is_not_kept(tmp_path: Path) -> None:
    assert await save(tmp_path, FakeHolder(code=1)) == []


async def test_nothing_is_saved_without_a_repository_or_when_the_disk_is_low(tmp_path: Path) -> None:
    assert await save(tmp_path, FakeHolder(), repository="") == []
    assert await save(tmp_path, FakeHolder(), min_free_bytes=1 << 62) == []


async def test_workspaces_of_one_repository_build_one_after_the_other(tmp_path: Path) -> None:
    images = make_images(tmp_path)
    first = await images.take_turn("a", 60)
    waiting = asyncio.create_task(images.take_turn("a", 60))
    other, alone, also_alone = [await images.take_turn(name, 60) for name in ("b", "", "")]
    assert not waiting.done()
    first.release()
    second = await waiting
    first.release()  # once more, when its task ends
    third = asyncio.create_task(images.take_turn("a", 60))
    await asyncio.sleep(0)
    assert not third.done(), "the turn of the second one is not over"
    for turn in (second, other, alone, also_alone):
        turn.release()
    (await third).release()


async def test_a_workspace_that_has_waited_for_long_builds_all_the_same(tmp_path: Path) -> None:
    images = make_images(tmp_path)
    first = await images.take_turn("a", 60)
    second = await images.take_turn("a", 0.01)
    second.release()
    assert first.is_taken
    third = asyncio.create_task(images.take_turn("a", 60))
    await asyncio.sleep(0.02)
    assert not third.done(), "the turn of the first one is not over"
    first.release()
    (await third).release()


async def test_an_archive_of_a_workspace_is_no_larger_than_its_disk(tmp_path: Path) -> None:
    assert await save(tmp_path, FakeHolder(script="head -c 1000 /dev/zero"), workspace_disk_bytes=900) == []
    assert await save(tmp_path, FakeHolder(script="head -c 1000 /dev/zero"), workspace_disk_bytes=1100) == [
        f"{KEY}.tar"
    ]


async def test_a_workspace_that_no_longer_waits_does_not_stop_the_next_one(tmp_path: Path) -> None:
    images = make_images(tmp_path)
    first = await images.take_turn("a", 60)
    cancelled, waiting = (asyncio.create_task(images.take_turn("a", 60)) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    first.release()
    (await waiting).release()


def test_images_expire_after_their_last_use_and_the_oldest_when_there_are_many() -> None:
    uses = {Path("old"): NOW - 99, Path("new"): NOW, Path("expired"): NOW - 100, Path("middle"): NOW - 50}
    assert choose_expired(uses, NOW, 100, 10) == [Path("expired")]
    assert choose_expired(uses, NOW, 1000, 2) == [Path("old"), Path("expired")]
    assert choose_expired({}, NOW, 0, 0) == []


def fill(tmp_path: Path, **ages: float) -> None:
    for name, age in ages.items():
        path = tmp_path / f"{SHARED_IMAGES}/repository/{name}.tar"
        path.touch()
        os.utime(path, (path.stat().st_mtime - age,) * 2)


def test_only_what_expired_is_removed(tmp_path: Path) -> None:
    images = make_images(tmp_path, unused_image_seconds=1000, max_unused_images=2)
    fill(tmp_path, a=5000, b=500, c=400, d=300)
    images.collect()
    assert list_files(tmp_path) == ["c.tar", "d.tar"]


def test_a_use_counts_for_all_images_of_the_repository_and_no_others(tmp_path: Path) -> None:
    images = make_images(tmp_path, unused_image_seconds=1000)
    fill(tmp_path, a=5000, b=5000)
    (images.folder / "other").mkdir()
    (tmp_path / SHARED_IMAGES / "repository/b.tar").rename(images.folder / "other/b.tar")
    images.note_use("repository")
    images.note_use("")
    images.collect()
    assert list_files(tmp_path) == ["a.tar"]


def test_everything_is_removed_when_the_disk_is_low(tmp_path: Path) -> None:
    images = make_images(tmp_path, min_free_bytes=1 << 62)
    fill(tmp_path, a=0, b=0)
    images.collect()
    assert list_files(tmp_path) == []


async def test_what_a_killed_runner_left_is_removed_and_what_is_being_saved_stays(tmp_path: Path) -> None:
    images = make_images(tmp_path)
    (images.folder / f"repository/{KEY}.left.new").write_bytes(b"half")
    saving = asyncio.create_task(images.save(cast(Holder, FakeHolder(script="sleep 1")), "repository", KEY))
    await eventually(lambda: len(list_files(tmp_path)) == 2)
    images.collect()
    [own] = list_files(tmp_path)
    assert own.endswith(".new")
    assert "left" not in own
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    assert list_files(tmp_path) == [], "who no longer waits leaves no file"


async def test_the_workspace_that_built_an_image_does_not_wait_and_the_next_one_does(tmp_path: Path) -> None:
    images = make_images(tmp_path)
    turn = await images.take_turn("repository", 60)
    images.save_in_background(
        cast(Holder, FakeHolder(script="sleep 0.3; printf x")), "repository", KEY, turn.hand_over()
    )
    turn.release()  # when its task ends: the turn is no longer its own
    assert list_files(tmp_path) == []
    next_turn = await images.take_turn("repository", 60)
    assert list_files(tmp_path) == [f"{KEY}.tar"]
    next_turn.release()


async def test_a_holder_cannot_change_an_archive_after_it_was_saved(tmp_path: Path) -> None:
    """It has a pipe, not the file. What its processes write later is not waited for without end."""
    await save(tmp_path, FakeHolder(script="readlink /proc/self/fd/1"))
    assert (tmp_path / f"{SHARED_IMAGES}/repository/{KEY}.tar").read_text().startswith("pipe:")


async def test_an_archive_that_is_larger_than_the_free_disk_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = make_images(tmp_path)
    monkeypatch.setattr(SharedImages, "is_disk_low", lambda _: False)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1002))
    await images.save(cast(Holder, FakeHolder(script="head -c 1000 /dev/zero")), "repository", KEY)
    assert list_files(tmp_path) == []
    await images.save(cast(Holder, FakeHolder(script="head -c 999 /dev/zero")), "repository", KEY)
    assert list_files(tmp_path) == [f"{KEY}.tar"]


async def test_archives_of_earlier_versions_are_removed_and_not_shown_to_workspaces(tmp_path: Path) -> None:
    """Holders chose themselves under which key they were saved."""
    images = make_images(tmp_path)
    former = tmp_path / "images/repository"
    former.mkdir(parents=True)
    (former / f"{KEY}.tar").touch()
    (images.folder / f"repository/{KEY}.tar").touch()
    await images.remove_former()
    assert not former.parent.exists()
    assert list_files(tmp_path) == [f"{KEY}.tar"]
    await images.remove_former()


def test_an_image_that_an_earlier_version_named_is_not_found_by_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may still be in the store of a workspace."""
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="aarch64"))
    former = "44362ada25f31bd11414961cf332d0c7"
    assert compute_key(Build("/missing/Dockerfile", "/missing"), "FROM debian\n", [], ["sha256:1"]) != former


def test_a_machine_without_images_has_nothing_to_remove(tmp_path: Path) -> None:
    images = SharedImages(Settings(state_folder=tmp_path / "missing", runner="r"))
    images.collect()
    assert not images.folder.exists()


async def test_what_saves_an_image_has_no_terminal_of_the_runner(tmp_path: Path) -> None:
    """In the session of the runner, /dev/tty is its terminal, to which a workspace could type."""
    await save(tmp_path, FakeHolder(script="cut -d' ' -f6 /proc/self/stat"))
    session = int((tmp_path / f"{SHARED_IMAGES}/repository/{KEY}.tar").read_text())
    assert session not in (0, os.getsid(0))


async def test_a_podman_that_does_not_end_does_not_keep_other_workspaces_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_images, "SAVE_SECONDS", 0.2)
    assert await save(tmp_path, FakeHolder(script="sleep 1000 & wait")) == []


async def test_an_image_is_saved_with_the_lowest_priority(tmp_path: Path) -> None:
    """The workspace that built it goes on meanwhile, and so do others."""
    await save(tmp_path, FakeHolder(script="nice"))
    assert (tmp_path / f"{SHARED_IMAGES}/repository/{KEY}.tar").read_text().strip() == "19"


@pytest.mark.parametrize("has_commands", [True, False])
async def test_an_image_is_saved_when_its_container_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_commands: bool
) -> None:
    images, events = make_images(tmp_path), list[str]()
    folder = WorkspaceFolder(tmp_path / "workspaces/a")
    folder.task.mkdir(parents=True)
    spec = WorkspaceSpec("a", "project", "demo", "ada", ImageSource("image"))
    pulled = PulledImages(images.settings)
    creation = Creation(images.settings, images, pulled, folder, spec, RecordedTask(), make_grant())

    async def follow(command: DetachedCommand, on_line: HandleLine) -> int:
        for _ in on_line(b'{"type": "start", "text": "Starting container"}') or ():
            pass
        for _ in range(100):
            await asyncio.sleep(0)
        events.append("started")
        if has_commands:
            for _ in (
                on_line(b'{"type": "progress", "status": "running", "name": "Running postCreateCommand..."}') or ()
            ):
                pass
            for _ in range(100):
                await asyncio.sleep(0)
        events.append("ended")
        return 0

    monkeypatch.setattr(DetachedCommand, "follow", follow)
    monkeypatch.setattr(Creation, "_end_build", lambda own, turn: events.append("saved"))
    await creation._follow(None, "Build")
    assert events == (["started", "saved", "ended"] if has_commands else ["started", "ended", "saved"])
    events.clear()
    await creation._follow(None, "Start")
    assert "saved" not in events, "no build has named this image, and the container has run since"
