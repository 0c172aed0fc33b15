"""`fairlead up`, as a process: what it prints, keeps and refuses, and how it ends."""

import json
import os
import signal
import socket
import sqlite3
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.cli.conftest import ROOT, Fairlead

APPS = "/kubernetes/management/apis/management.service.sh/v1/apps"


def line_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The line that says that the server is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    answer: dict[str, Any] = json.loads(line)
    return answer


def ended(process: "subprocess.Popen[str]", number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """The exit code after a signal, with what was printed since."""
    process.send_signal(number)
    output, errors = process.communicate(timeout=20)
    return process.returncode, output, errors


def refused(process: "subprocess.Popen[str]") -> str:
    """The one line with which the command gives up."""
    output, errors = process.communicate(timeout=20)
    assert (process.returncode, output, errors.count("\n")) == (1, "", 1), errors
    return errors


def test_the_first_start_hands_out_everything_that_a_client_needs(fairlead: Fairlead, tmp_path: Path) -> None:
    process = fairlead("up", "--data", str(tmp_path / "data"), "--port", "0", "--json")
    answer = line_of(process)
    assert set(answer) == {"url", "accessKey", "kubeconfig", "caFile"}
    assert Path(answer["kubeconfig"]).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    with httpx.Client(base_url=answer["url"], verify=ssl.create_default_context(cafile=answer["caFile"])) as client:
        assert client.get(APPS).status_code == 401
        assert client.get(APPS, headers={"Authorization": f"Bearer {answer['accessKey']}"}).status_code == 200
    assert ended(process)[:2] == (0, "")


def test_a_data_folder_that_others_may_write_to_is_refused(fairlead: Fairlead, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o707)
    assert f"{data}: other users may write to it; run: chmod o-w {data}" in refused(
        fairlead("up", "--data", str(data), "--port", "0", "--json")
    )
    assert list(data.iterdir()) == []


def test_a_second_start_finds_the_same_key_and_tells_the_kubeconfig_the_new_address(
    fairlead: Fairlead, tmp_path: Path
) -> None:
    command = ("up", "--data", str(tmp_path), "--port", "0", "--json")
    first = fairlead(*command)
    before = line_of(first)
    ended(first)
    second = fairlead(*command)
    after = line_of(second)
    same = ("accessKey", "kubeconfig", "caFile")
    assert [after[name] for name in same] == [before[name] for name in same]
    config = yaml.safe_load(Path(after["kubeconfig"]).read_bytes())
    assert config["clusters"][0]["cluster"]["server"] == after["url"] + "/kubernetes/management"
    with httpx.Client(base_url=after["url"], verify=ssl.create_default_context(cafile=after["caFile"])) as client:
        assert client.get(APPS, headers={"Authorization": f"Bearer {after['accessKey']}"}).status_code == 200
    ended(second)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_it_cleanly(fairlead: Fairlead, tmp_path: Path, number: int) -> None:
    process = fairlead("up", "--data", str(tmp_path), "--port", "0", "--json")
    line_of(process)
    code, _, errors = ended(process, number)
    assert code == 0
    assert "Traceback" not in errors


def test_the_key_is_shown_once_and_never_logged(fairlead: Fairlead, tmp_path: Path) -> None:
    command = ("up", "--data", str(tmp_path), "--port", "0")
    first = fairlead(*command, FAIRLEAD_LOG_LEVEL="debug")
    shown = read_until_ready(first)
    key = yaml.safe_load((tmp_path / "admin.kubeconfig").read_bytes())["users"][0]["user"]["token"]
    assert shown.count(key) == 1
    assert "\x1b" not in shown
    code, rest, errors = ended(first)
    assert code == 0
    assert key not in rest + errors
    second = fairlead(*command, FAIRLEAD_LOG_LEVEL="debug")
    again = read_until_ready(second)
    assert key not in again + "".join(ended(second)[1:])
    assert str(tmp_path / "admin.kubeconfig") in again


def test_the_three_printed_commands_work(fairlead: Fairlead, tmp_path: Path, component: Callable[[str], Path]) -> None:
    path = f"{component('kubectl').parent}:{os.environ['PATH']}"
    process = fairlead("up", "--data", str(tmp_path / "with space"), "--port", "0")
    commands = [
        line.strip() for line in read_until_ready(process).splitlines() if " kubectl " in line or "export" in line
    ]
    assert len(commands) == 3
    script = "\n".join(["set -e", *commands])
    variables = os.environ | {"PATH": path, "HOME": str(tmp_path)}
    result = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "ingress-nginx" in result.stdout.splitlines()[-1]
    ended(process)


def read_until_ready(process: "subprocess.Popen[str]") -> str:
    """Everything printed up to the last line of the greeting."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("Ctrl-C"):
            return "".join(lines)
    pytest.fail("".join(lines) + process.communicate()[1])


def test_a_port_that_is_taken_is_named_and_the_first_key_is_not_lost_over_it(
    fairlead: Fairlead, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert port in refused(fairlead("up", "--data", str(tmp_path), "--port", port))
    process = fairlead("up", "--data", str(tmp_path), "--port", "0", "--json")
    assert line_of(process)["accessKey"]
    ended(process)


def test_a_data_folder_in_use_is_left_to_the_server_that_has_it(fairlead: Fairlead, tmp_path: Path) -> None:
    command = ("up", "--data", str(tmp_path), "--port", "0", "--json")
    first = fairlead(*command)
    line_of(first)
    assert f"in use by another server (process {first.pid})" in refused(fairlead(*command))
    assert ended(first)[0] == 0


def test_a_data_folder_that_cannot_be_written_is_named(fairlead: Fairlead, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "data"
    assert str(folder) in refused(fairlead("up", "--data", str(folder), "--port", "0"))


def test_a_database_of_a_newer_version_is_not_touched(fairlead: Fairlead, tmp_path: Path) -> None:
    command = ("up", "--data", str(tmp_path), "--port", "0", "--json")
    process = fairlead(*command)
    line_of(process)
    ended(process)
    connection = sqlite3.connect(tmp_path / "fairlead.db")
    with connection:
        connection.execute("UPDATE meta SET value = 99 WHERE name = 'schema'")
    connection.close()
    assert "written by a newer version of Fairlead" in refused(fairlead(*command))
