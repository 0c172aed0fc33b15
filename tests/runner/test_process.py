"""The process: settings, the lock of its folder, its own status, the journal on the disk, and the systemd unit."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from fairlead.cli.resources.runner_options import RunnerOptions
from fairlead.cli.resources.runner_options import build_settings as read_options
from fairlead.cli.resources.runner_process import build_unit
from fairlead.client import Client
from fairlead.core.files import FileProblem, ensure_private_folder
from fairlead.core.machine.findings import Finding
from fairlead.runner.api import REQUEST_SECONDS, ClientSource
from fairlead.runner.engines.contract import Capacity, Engine
from fairlead.runner.journal import Journal, TaskRecord, WorkspaceRecord
from fairlead.runner.process import lock_folder
from fairlead.runner.registry import choose_engine, load_engines
from fairlead.runner.report import describe_engines, describe_machine, runner_status
from fairlead.runner.settings import KEY_VARIABLE, RunnerSettings, key_reader
from tests.runner.fake_engine import FakeEngine

FAKE = "tests.runner.fake_engine:create_engine"


def build_settings(folder: Path, key_file: Path | None = None) -> RunnerSettings:
    return RunnerSettings("r", "https://example.com", folder, key_file)


def test_the_key_comes_from_a_file_which_may_be_rotated(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("first\n")
    read_key = key_reader(build_settings(tmp_path, path), {KEY_VARIABLE: "other"})
    assert read_key() == "first"
    path.write_text("second\n")
    assert read_key() == "second"


def test_the_key_comes_from_the_environment_without_a_file(tmp_path: Path) -> None:
    assert key_reader(build_settings(tmp_path), {KEY_VARIABLE: "k"})() == "k"


@pytest.mark.parametrize("content", [None, "", "two words", "é"])
def test_without_a_valid_key_the_runner_does_not_start(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
    with pytest.raises(FileProblem) as raised:
        key_reader(build_settings(tmp_path, path), {})
    assert "two words" not in str(raised.value)
    with pytest.raises(FileProblem, match=KEY_VARIABLE):
        key_reader(build_settings(tmp_path), {KEY_VARIABLE: content or ""})


def test_one_process_uses_a_state_folder_at_a_time(tmp_path: Path) -> None:
    with (
        lock_folder(tmp_path),
        pytest.raises(FileProblem, match="another runner process uses this folder"),
        lock_folder(tmp_path),
    ):
        pass
    with lock_folder(tmp_path):
        pass


def test_a_runner_fails_only_if_none_of_its_engines_works() -> None:
    problem, warning = Finding("podman", "is missing", "apt install podman"), Finding("disk", "is slow", is_fatal=False)
    assert runner_status({"a": [Finding("node")], "b": [problem]})["phase"] == "Initialized"
    assert "podman: is missing" in runner_status({"a": [], "b": [problem]})["message"]
    assert runner_status({"a": [warning]})["phase"] == "Initialized"
    failed = runner_status({"a": [problem], "b": [problem, warning]})
    assert (failed["phase"], failed["reason"]) == ("Failed", "EngineUnavailable")
    assert runner_status({})["phase"] == "Failed"


class SizedFakeEngine(FakeEngine):
    def capacity(self) -> Capacity:
        return Capacity(cpus=2, memory_bytes=(4 << 30) + 5, disk_bytes=100 << 30)


def test_a_runner_reports_its_engines_with_what_they_lack_and_what_their_machine_has(tmp_path: Path) -> None:
    missing = Finding("podman", "is missing", "apt install podman")
    slow = Finding("disk", "is slow", is_fatal=False)
    engines = {"a": cast(Engine, SizedFakeEngine(tmp_path)), "b": cast(Engine, FakeEngine(tmp_path))}
    assert describe_engines(engines, {"a": [slow], "b": [missing, slow]}) == [
        {"name": "a", "capacity": {"cpus": "2", "memory": "4Gi", "disk": "100Gi"}},
        {"name": "b", "problem": "podman: is missing"},
    ]
    assert describe_machine()["kubernetes.io/os"] == "linux"


def test_an_engine_is_found_by_its_name_or_its_module(tmp_path: Path) -> None:
    engines = load_engines(RunnerSettings("r", "", tmp_path), (FAKE,))
    assert list(engines) == ["fake"]
    assert choose_engine("fake", engines) == choose_engine("", engines) == "fake"
    assert choose_engine("other", engines) == choose_engine("docker", engines) == ""
    assert choose_engine("docker", {"devcontainer": FakeEngine(tmp_path)}) == "devcontainer"
    for name in ("missing", "missing:create", "tests.runner.fake_engine:missing", ":"):
        with pytest.raises(FileProblem, match="there is no engine"):
            load_engines(RunnerSettings("r", "", tmp_path), (name,))


def test_users_of_containers_can_pass_the_folders_of_engines_and_not_those_of_the_runner(tmp_path: Path) -> None:
    state = ensure_private_folder(tmp_path / "state")
    load_engines(RunnerSettings("r", "", state), (FAKE,))
    Journal(state / "workspaces").put(WorkspaceRecord("u", "p", "w"))
    modes = {path.name: path.stat().st_mode & 0o777 for path in (state, state / "engines", state / "workspaces")}
    assert modes == {"state": 0o711, "engines": 0o711, "workspaces": 0o700}


# --- the journal ------------------------------------------------------------------------------------------------------


def test_a_record_survives_the_process(tmp_path: Path) -> None:
    record = WorkspaceRecord("u", "p", "w", options={"a": [1]}, is_up_due=True).with_task(TaskRecord("t", "up", "now"))
    Journal(tmp_path / "j").put(record)
    assert Journal(tmp_path / "j").records() == [record]
    assert (tmp_path / "j" / "u.json").stat().st_mode & 0o777 == 0o600
    Journal(tmp_path / "j").remove("u")
    assert Journal(tmp_path / "j").records() == []


def test_a_record_is_on_the_disk_before_put_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    journal = Journal(tmp_path)
    journal.put(WorkspaceRecord("u", "p", "w"))
    assert len(synced) == 2 and synced[1] == str(tmp_path)
    journal.put(WorkspaceRecord("u", "p", "w"))
    assert len(synced) == 2


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    Journal(tmp_path).put(WorkspaceRecord("u", "p", "w"))
    (tmp_path / ".u.json.draft").write_bytes(b'{"uid"')
    assert [record.uid for record in Journal(tmp_path).records()] == ["u"]
    assert [path.name for path in tmp_path.iterdir()] == ["u.json"]


def test_a_damaged_record_is_put_aside(tmp_path: Path) -> None:
    Journal(tmp_path).put(WorkspaceRecord("u", "p", "w"))
    (tmp_path / "u.json").write_bytes(b'{"uid": "u", ')
    assert Journal(tmp_path).records() == []
    assert (tmp_path / "u.damaged").exists()


@pytest.mark.parametrize("uid", ["", "../x", "a/b", "a.b", "x" * 65])
def test_a_uid_never_leads_out_of_the_folder(tmp_path: Path, uid: str) -> None:
    with pytest.raises(ValueError, match="is not a uid"):
        Journal(tmp_path).put(WorkspaceRecord(uid, "p", "w"))


def test_the_last_tasks_are_kept_in_their_order() -> None:
    record = WorkspaceRecord("u", "p", "w")
    record = record.with_task(TaskRecord("running", "up", "now"))
    for number in range(8):
        record = record.with_task(TaskRecord(str(number), "up", "now", status="Succeeded"))
    record = record.with_task(TaskRecord("5", "up", "now", status="Failed"))
    assert [(task.id, task.status) for task in record.tasks] == [
        ("running", "Running"),
        ("4", "Succeeded"),
        ("5", "Failed"),
        *((number, "Succeeded") for number in ("6", "7")),
    ]


# --- systemd ----------------------------------------------------------------------------------------------------------


def test_the_unit_keeps_what_runs_and_does_not_contain_the_key(tmp_path: Path) -> None:
    key = tmp_path / "key 100%"
    key.write_text("canary")
    options = RunnerOptions(
        *("local", "https://example.com", key),
        engine=["kubernetes"],
        allow=["mounts"],
        kubeconfig=tmp_path / "k",
        kube_context=["a", "b"],
        kube_namespace=["team"],
        clone_image="git:1",
    )
    unit = build_unit(read_options(options), options)
    flags = "--kube-context a --kube-context b --kube-namespace team --clone-image git:1"
    assert f"--allow mounts --kubeconfig {tmp_path}/k {flags}" in unit
    assert "KillMode=process" in unit and "Restart=always" in unit
    assert "canary" not in unit
    assert f"--key-file '{tmp_path}/key 100%%'" in unit
    assert "runner start local --server https://example.com" in unit and "--engine kubernetes" in unit


@dataclass
class FakeClient:
    """Records whether it is closed."""

    key: str
    timeout: float = 0.0
    is_closed: bool = False

    def close(self) -> None:
        self.is_closed = True


@dataclass
class RotatedKey:
    """A source of clients whose key can be rotated, and the clients that it made."""

    key: str = "first"
    clients: list[FakeClient] = field(default_factory=list)

    def open_source(self) -> ClientSource:
        return ClientSource(self._build_client, lambda: self.key)

    def list_closed(self) -> list[str]:
        return [each.key for each in self.clients if each.is_closed]

    def _build_client(self, key: str) -> Client:
        self.clients.append(FakeClient(key))
        return cast(Client, self.clients[-1])


def test_a_limit_of_requests_holds_for_the_current_client_and_for_that_of_the_next_key() -> None:
    rotated = RotatedKey()
    source = rotated.open_source()
    with source.borrow() as client:
        assert client.timeout == REQUEST_SECONDS
    source.limit_requests(5)
    with source.borrow() as client:
        assert client.timeout == 5
    rotated.key = "second"
    with source.borrow() as client:
        assert client.timeout == 5


def test_the_client_of_a_former_key_is_closed_after_its_last_request() -> None:
    rotated = RotatedKey()
    source = rotated.open_source()
    with source.borrow():
        rotated.key = "second"
        with source.borrow():
            assert [each.key for each in rotated.clients] == ["first", "second"]
            assert rotated.list_closed() == [], "requests use both"
    assert rotated.list_closed() == ["first"]
    source.close()
    assert rotated.list_closed() == ["first", "second"]


def test_connections_are_closed_after_the_requests_that_have_begun() -> None:
    rotated = RotatedKey()
    source = rotated.open_source()
    with source.borrow():
        source.close()
        assert rotated.list_closed() == []
    assert rotated.list_closed() == ["first"]
