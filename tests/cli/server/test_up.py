"""`fairlead up`, as a process: its output, its files, startup errors, and how it stops."""

import json
import os
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from fairlead.app import StartedServer
from fairlead.cli.server.up import format_json
from fairlead.client.kubeconfig import KubeconfigEntry, merge_into_file
from tests.cli.conftest import ROOT, Fairlead

APPS = "/kubernetes/management/apis/management.service.sh/v1/apps"


def read_ready_line(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Returns the parsed line that `up --json` prints once the server is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    ready: dict[str, Any] = json.loads(line)
    return ready


def stop_process(process: "subprocess.Popen[str]", signal_number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """Sends a signal and returns the exit code, the remaining output and the remaining errors."""
    process.send_signal(signal_number)
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


def expect_startup_error(process: "subprocess.Popen[str]") -> str:
    """Returns the only line that a failing command prints."""
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors.count("\n")) == (1, "", 1), errors
    return errors


def test_the_first_start_prints_everything_that_a_client_needs(fairlead: Fairlead, tmp_path: Path) -> None:
    process = fairlead("up", "--data", str(tmp_path / "data"), "--port", "0", "--json")
    ready = read_ready_line(process)
    assert set(ready) == {"url", "consoleUrl", "accessKey", "accessKeyRejected", "kubeconfig", "caFile"}
    assert ready["accessKeyRejected"] is False
    assert ready["consoleUrl"] == f"{ready['url']}/console/"
    assert Path(ready["kubeconfig"]).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    with httpx.Client(base_url=ready["url"], verify=ssl.create_default_context(cafile=ready["caFile"])) as client:
        assert client.get(APPS).status_code == 401
        assert client.get(APPS, headers={"Authorization": f"Bearer {ready['accessKey']}"}).status_code == 200
    assert stop_process(process)[:2] == (0, "")


def test_a_data_folder_that_others_may_write_to_is_rejected(fairlead: Fairlead, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o707)
    assert f"{data}: other users may write to it; run: chmod o-w {data}" in expect_startup_error(
        fairlead("up", "--data", str(data), "--port", "0", "--json")
    )
    assert list(data.iterdir()) == []


def test_a_second_start_keeps_the_key_and_writes_the_new_url_to_the_kubeconfig(
    fairlead: Fairlead, tmp_path: Path
) -> None:
    command = ("up", "--data", str(tmp_path), "--port", "0", "--json")
    first = fairlead(*command)
    before = read_ready_line(first)
    stop_process(first)
    gateway = {"server": f"{before['url']}/kubernetes/cluster/berlin"}
    merge_into_file(Path(before["kubeconfig"]), KubeconfigEntry("berlin", gateway, {"token": "another-key"}))
    second = fairlead(*command)
    after = read_ready_line(second)
    same = ("accessKey", "kubeconfig", "caFile")
    assert [after[name] for name in same] == [before[name] for name in same]
    config = yaml.safe_load(Path(after["kubeconfig"]).read_bytes())
    assert config["clusters"][0]["cluster"]["server"] == after["url"] + "/kubernetes/management"
    assert [each["name"] for each in config["contexts"]] == ["fairlead", config["current-context"]]
    with httpx.Client(base_url=after["url"], verify=ssl.create_default_context(cafile=after["caFile"])) as client:
        assert client.get(APPS, headers={"Authorization": f"Bearer {after['accessKey']}"}).status_code == 200
    stop_process(second)


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_stops_the_server_cleanly(fairlead: Fairlead, tmp_path: Path, signal_number: int) -> None:
    process = fairlead("up", "--data", str(tmp_path), "--port", "0", "--json")
    read_ready_line(process)
    code, _, errors = stop_process(process, signal_number)
    assert code == 0
    assert "Traceback" not in errors


def test_the_key_is_printed_once_and_never_logged(fairlead: Fairlead, tmp_path: Path) -> None:
    command = ("up", "--data", str(tmp_path), "--port", "0")
    first = fairlead(*command, FAIRLEAD_LOG_LEVEL="debug")
    output = read_until_ready(first)
    key = yaml.safe_load((tmp_path / "admin.kubeconfig").read_bytes())["users"][0]["user"]["token"]
    assert output.count(key) == 1
    assert "\x1b" not in output
    code, rest, errors = stop_process(first)
    assert code == 0
    assert key not in rest + errors
    second = fairlead(*command, FAIRLEAD_LOG_LEVEL="debug")
    second_output = read_until_ready(second)
    assert key not in second_output + "".join(stop_process(second)[1:])
    assert str(tmp_path / "admin.kubeconfig") in second_output


@pytest.mark.parametrize("is_installed", [False, True])
def test_a_missing_helm_is_one_line(fairlead: Fairlead, tmp_path: Path, is_installed: bool) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    if is_installed:
        (programs / "helm").write_text("#!/bin/sh\n")
        (programs / "helm").chmod(0o755)
    process = fairlead("up", "--data", str(tmp_path / "data"), "--port", "0", PATH=str(programs))
    output = read_until_ready(process)
    stop_process(process)
    lines = [line for line in output.splitlines() if line.startswith("  helm ")]
    assert len(lines) == (0 if is_installed else 1), output
    assert all("apps and virtual clusters need it: run `make helm-tools`" in line for line in lines)


@pytest.mark.parametrize("client", ["kubectl", "fairlead"])
def test_the_three_printed_commands_work(
    fairlead: Fairlead, tmp_path: Path, component: Callable[[str], Path], client: str
) -> None:
    # Without kubectl, they are commands of fairlead itself.
    folder = component("kubectl").parent if client == "kubectl" else Path(sys.executable).parent
    variables = {"PATH": f"{folder}:{link_programs_without_kubectl(tmp_path / 'bin')}", "HOME": str(tmp_path)}
    process = fairlead("up", "--data", str(tmp_path / "with space"), "--port", "0", **variables)
    output = read_until_ready(process)
    commands = output.partition("in another terminal:\n\n")[2].splitlines()[:3]
    assert [client in each or "export" in each for each in commands] == [True] * 3
    result = subprocess.run(
        ["bash", "-c", "\n".join(["set -e", *commands])],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if not key.startswith("XDG_")} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "ingress-nginx" in result.stdout.splitlines()[-1]
    assert "The access key admin-first-key may do everything." in output and "It expires in 24 hours" in output
    assert "admin reset --data " in output
    stop_process(process)


def link_programs_without_kubectl(folder: Path) -> Path:
    """A folder with the programs of the machine, but for a kubectl that it may have."""
    folder.mkdir()
    for program in Path("/usr/bin").iterdir():
        if not program.name.startswith("kubectl"):
            (folder / program.name).symlink_to(program)
    return folder


def read_until_ready(process: "subprocess.Popen[str]") -> str:
    """Returns the output up to the line that begins with `Ctrl-C`."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("Ctrl-C"):
            return "".join(lines)
    pytest.fail("".join(lines) + process.communicate()[1])


def test_a_port_in_use_is_named_and_does_not_lose_the_first_key(fairlead: Fairlead, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, data = str(listener.getsockname()[1]), tmp_path / "data"
        assert port in expect_startup_error(fairlead("up", "--data", str(data), "--port", port))
        assert not data.exists()
        data.mkdir(mode=0o700)
        assert port in expect_startup_error(fairlead("up", "--data", str(data), "--port", port))
    process = fairlead("up", "--data", str(data), "--port", "0", "--json")
    assert read_ready_line(process)["accessKey"]
    stop_process(process)


def test_a_key_that_was_revoked_is_not_presented_as_valid(fairlead: Fairlead, tmp_path: Path) -> None:
    command = ("up", "--data", str(tmp_path), "--port", "0")
    first = fairlead(*command, "--json")
    ready = read_ready_line(first)
    headers = {"Authorization": f"Bearer {ready['accessKey']}"}
    verify = ssl.create_default_context(cafile=ready["caFile"])
    with httpx.Client(base_url=ready["url"], verify=verify, headers=headers) as client:
        assert client.delete(APPS.replace("apps", "ownedaccesskeys/admin-first-key")).status_code == 200
    stop_process(first)
    second = fairlead(*command)
    output = read_until_ready(second)
    reasons = "it was revoked or disabled, has expired, or is for another store"
    assert f"in the kubeconfig does not work: {reasons}" in output
    assert f"fairlead admin reset --data {tmp_path}" in output
    assert "in another terminal" not in output
    stop_process(second)


def test_a_rejected_key_is_not_printed_for_scripts(tmp_path: Path) -> None:
    for is_rejected, key in ((False, "a-key"), (True, None)):
        started = StartedServer("https://127.0.0.1:8443", None, None, is_key_rejected=is_rejected)
        ready = json.loads(format_json(started, tmp_path / "admin.kubeconfig", "a-key", None))
        assert (ready["accessKey"], ready["accessKeyRejected"]) == (key, is_rejected)
        assert ready["kubeconfig"] == str(tmp_path / "admin.kubeconfig")


def test_a_data_folder_in_use_by_another_server_is_rejected(fairlead: Fairlead, tmp_path: Path) -> None:
    command = ("up", "--data", str(tmp_path), "--port", "0", "--json")
    first = fairlead(*command)
    read_ready_line(first)
    error = expect_startup_error(fairlead(*command))
    assert (
        f"in use by another server (process {first.pid}); stop that one, or choose another folder with --data" in error
    )
    assert stop_process(first)[0] == 0


def test_an_address_of_another_machine_is_named_with_its_flag(fairlead: Fairlead, tmp_path: Path) -> None:
    error = expect_startup_error(fairlead("serve", "--data", str(tmp_path), "--listen", "192.0.2.1", "--port", "0"))
    assert "cannot listen on 192.0.2.1 port 0: " in error
    assert "use an address of this machine with --listen or FAIRLEAD_LISTEN, or 0.0.0.0 for all of them" in error
    assert "--port" not in error


def test_a_file_as_the_data_folder_is_named(fairlead: Fairlead, tmp_path: Path) -> None:
    file = tmp_path / "passwd"
    file.write_text("")
    error = expect_startup_error(fairlead("up", "--data", str(file), "--port", "0"))
    assert error == f"fairlead: {file}: this is a file, not a folder; use another path\n"


def test_a_data_folder_that_cannot_be_created_is_named(fairlead: Fairlead, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "data"
    assert str(folder) in expect_startup_error(fairlead("up", "--data", str(folder), "--port", "0"))


def test_a_database_of_a_newer_version_is_rejected(fairlead: Fairlead, tmp_path: Path) -> None:
    command = ("up", "--data", str(tmp_path), "--port", "0", "--json")
    process = fairlead(*command)
    read_ready_line(process)
    stop_process(process)
    connection = sqlite3.connect(tmp_path / "fairlead.db")
    with connection:
        connection.execute("UPDATE meta SET value = 99 WHERE name = 'schema'")
    connection.close()
    assert "written by a newer version of Fairlead" in expect_startup_error(fairlead(*command))
