"""A workspace moves between two real runner processes, with a real repository: what comes along, and what is lost."""

import io
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.eventually import wait_until
from tests.harness.server_process import running_server
from tests.live.runner_process import PROCESS_ENGINE, RunnerProcess, create_runner
from tests.live.workspace_setup import WORKSPACE, M, create_object

WAIT_SECONDS = 180
MERGE = {"Content-Type": "application/merge-patch+json"}
MOVED_FROM = "service.sh/moved-from"
IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *IDENTITY, *arguments], check=True, capture_output=True)


@dataclass(frozen=True, slots=True)
class Move:
    """The workspace `dev` of a repository, on the first of two runners."""

    admin: httpx.Client
    first: RunnerProcess
    second: RunnerProcess
    uid: str

    def send(self, runner: str, discard: bool = False) -> httpx.Response:
        body = {"spec": {"runner": runner, "discard": discard}}
        return self.admin.post(f"{WORKSPACE}/move", json=body, timeout=60)

    def get(self) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.get(WORKSPACE).json()
        return found

    def runner(self) -> str:
        return str(self.get()["spec"]["runnerRef"]["runner"])

    def moved_from(self) -> str:
        return str(self.get()["metadata"]["annotations"].get(MOVED_FROM, ""))

    def state(self) -> str:
        return str((self.get().get("status") or {}).get("lastWorkspaceStatus") or "")

    def wait_until_it_runs(self) -> None:
        wait_until(lambda: self.state() == "Running", WAIT_SECONDS, what="the workspace runs")

    def wait_until_cleaned_up(self) -> None:
        """What the first runner had is removed, and no runner has anything left to remove."""
        wait_until(lambda: not self.folder(self.first).exists(), WAIT_SECONDS, what="the first runner has cleaned up")
        wait_until(lambda: self.moved_from() == "", WAIT_SECONDS, what="nothing is left to clean up")

    def folder(self, runner: RunnerProcess) -> Path:
        """What a runner has of the workspace."""
        return next((runner.folder / "state" / "engines").iterdir()) / "processes" / self.uid

    def read(self, path: str) -> str:
        response = self.admin.get(f"{WORKSPACE}/download", params={"path": path})
        assert response.status_code == 200, response.text
        with tarfile.open(fileobj=io.BytesIO(response.content)) as archive:
            file = archive.extractfile(archive.getmembers()[0])
            assert file is not None
            return file.read().decode()


def create_origin(folder: Path) -> str:
    """The URL of a repository with one commit."""
    origin, draft = folder / "origin.git", folder / "draft"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(origin)], check=True)
    subprocess.run(["git", "clone", "-q", str(origin), str(draft)], check=True, capture_output=True)
    (draft / "a").write_text("first\n")
    git(draft, "add", "-A")
    git(draft, "commit", "-qm", "First")
    git(draft, "push", "-q", "origin", "HEAD:main")
    return f"git:file://{origin}"


@contextmanager
def open_move(tmp_path: Path) -> Iterator[Move]:
    source = create_origin(tmp_path)
    with running_server(tmp_path / "data") as server, server.client() as admin:
        create_object(admin, f"{M}/projects", "Project", "web")
        first, second = (
            create_runner(server, admin, tmp_path / name, PROCESS_ENGINE, name) for name in ("first", "second")
        )
        try:
            first.start()
            second.start()
            annotations = {"service.sh/workspace-up": "1", "service.sh/workspace-source": source}
            workspace = {
                "apiVersion": "management.service.sh/v1",
                "kind": "DevPodWorkspaceInstance",
                "metadata": {"name": "dev", "annotations": annotations},
                "spec": {"template": {"provider": {"name": "process"}}, "runnerRef": {"runner": "first"}},
            }
            created = admin.post(WORKSPACE.removesuffix("/dev"), json=workspace)
            assert created.status_code == 201, created.text
            move = Move(admin, first, second, created.json()["metadata"]["uid"])
            move.wait_until_it_runs()
            yield move
        finally:
            first.close()
            second.close()


@pytest.mark.timeout(600)
def test_what_is_pushed_moves_and_nothing_is_lost_without_a_request(tmp_path: Path) -> None:
    with open_move(tmp_path) as move:
        work = move.folder(move.first) / "work"

        def expect_refusal(loss: str) -> None:
            refused = move.send("second")
            assert refused.status_code == 409 and loss in refused.json()["message"], refused.text
            assert (move.runner(), move.state(), move.moved_from()) == ("first", "Running", "")

        (work / "a").write_text("second\n")
        expect_refusal("files with changes that are not committed: 1")
        git(work, "commit", "-qam", "Second")
        expect_refusal("commits that are not pushed: 1")
        git(work, "push", "-q", "origin", "HEAD:main")
        (work / "a").write_text("third\n")
        git(work, "stash")
        expect_refusal("stashes: 1")
        git(work, "stash", "drop", "-q")

        assert 'it is on runner "first" already' in move.send("first").json()["message"]
        assert "does not exist" in move.send("third").text
        changed = move.admin.patch(WORKSPACE, json={"spec": {"runnerRef": {"runner": "second"}}}, headers=MERGE)
        assert changed.status_code == 422 and "fairlead workspace move" in changed.text

        moved = move.send("second")
        assert (moved.status_code, moved.json().get("status")) == (201, {"runner": "first", "lost": []}), moved.text
        move.wait_until_it_runs()
        assert (move.runner(), move.read("a")) == ("second", "second\n")
        move.wait_until_cleaned_up()
        assert (move.folder(move.second) / "work").is_dir()


@pytest.mark.timeout(600)
def test_a_workspace_leaves_a_runner_that_is_gone(tmp_path: Path) -> None:
    with open_move(tmp_path) as move:
        (move.folder(move.first) / "work" / "mine").write_text("mine\n")
        move.first.kill()
        wait_until(lambda: "is not connected" in move.send("second").text, WAIT_SECONDS, what="it is missed")
        refused = move.send("second").json()["message"]
        assert "everything that is not pushed, which is not known" in refused and "--discard" in refused

        moved = move.send("second", discard=True)
        assert moved.status_code == 201 and "is not known" in moved.json()["status"]["lost"][0], moved.text
        move.wait_until_it_runs()
        assert (move.runner(), move.read("a"), move.moved_from()) == ("second", "first\n", "first")
        assert (move.folder(move.first) / "work" / "mine").read_text() == "mine\n"

        move.first.start()
        move.wait_until_cleaned_up()


@pytest.mark.timeout(600)
def test_a_workspace_can_return_as_long_as_it_is_not_up_on_the_other_runner(tmp_path: Path) -> None:
    with open_move(tmp_path) as move:
        work = move.folder(move.first) / "work"
        (work / "mine").write_text("mine\n")
        (tmp_path / "origin.git").rename(tmp_path / "away.git")
        assert move.send("second", discard=True).status_code == 201
        wait_until(lambda: move.get()["status"].get("phase") == "Failed", WAIT_SECONDS, what="it has failed")
        assert (move.runner(), move.moved_from(), (work / "mine").exists()) == ("second", "first", True)

        assert move.send("first", discard=True).status_code == 201
        move.wait_until_it_runs()
        assert (move.runner(), move.read("mine")) == ("first", "mine\n")
