"""An editor for the browser, which starts when its port is opened. Scripts are in place of code-server and npm."""

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.runner import web_ide
from fairlead.runner.engines.contract import ByteStream, EngineError, FolderSource, ListeningPort, Reason, WorkspaceSpec
from fairlead.runner.registry import EngineSettings
from fairlead.runner.web_ide import SCRIPT, WebIdes, find_package, list_ports
from tests.live.port_engine import PortEngine, create_engine
from tests.runner.harness.tasks import RecordedTask

UID = "1de00000-0000-4000-8000-000000000001"
PROGRAM = """#!/usr/bin/env python3
import socket, sys
listening = socket.create_server(tuple([sys.argv[4].split(":")[0], int(sys.argv[4].split(":")[1])]))
open(__file__ + ".starts", "a").write("x")
while True:
    listening.accept()[0].sendall(" ".join(sys.argv[1:]).encode())
"""
NPM = """#!/bin/sh
echo "$@" >"$3/called"
[ "$6" != broken ] || { echo no such package >&2; exit 1; }
mkdir -p "$3/node_modules/.bin" && printf '#!/bin/sh\\necho "$@" >%s/started' "$3" >"$3/node_modules/.bin/code-server"
chmod +x "$3/node_modules/.bin/code-server"
"""


def describe(package: Any) -> dict[str, Any]:
    return {"status": {"instance": {"provider": {"options": {"webIDE": package}}}}}


async def read_greeting(connection: ByteStream) -> str:
    data = await connection.reader.read(4096)
    await connection.abort()
    return data.decode()


# --- the script, in a workspace ---------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/npm").write_text(NPM)
    (tmp_path / "bin/npm").chmod(0o755)
    return tmp_path


def run_script(home: Path, package: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"HOME": str(home), "PATH": path or f"{home}/bin:/usr/bin:/bin"}
    command = ["/bin/sh", "-c", SCRIPT, "web-ide", package, "1"]
    return subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False)


def test_the_package_is_installed_once_into_the_home_folder(home: Path) -> None:
    folder = home / ".local/share/fairlead/web-ide"
    assert run_script(home, "code-server@4.1.0").returncode == 0
    assert (folder / "called").read_text().split()[-1] == "code-server@4.1.0"
    (folder / "called").unlink()
    assert run_script(home, "code-server@4.1.0").returncode == 0
    assert not (folder / "called").exists()


@pytest.mark.parametrize(
    ("package", "path", "problem"),
    [
        ("image", "", "neither openvscode-server nor code-server"),
        ("broken", "", "no such package"),
        ("code-server", "{home}/tools", "the image has no npm"),
    ],
)
def test_what_is_missing_is_said(home: Path, package: str, path: str, problem: str) -> None:
    tools = home / "tools"
    tools.mkdir()
    for name in ("mkdir", "tail"):
        (tools / name).symlink_to(f"/bin/{name}")
    found = run_script(home, package, path.format(home=home))
    assert found.returncode == 1 and problem in found.stderr


# --- the runner -------------------------------------------------------------------------------------------------------


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PortEngine]:
    """One with a workspace that runs, whose image has the editor. It listens on a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(web_ide, "PORT", free.getsockname()[1])
    environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path}/image:/bin:/usr/bin"}
    (tmp_path / "image").mkdir()
    program = tmp_path / "image/code-server"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    engine = create_engine(EngineSettings(state_folder=tmp_path / "state", runner="r"))
    spec = WorkspaceSpec(UID, "project", "demo", "ada", FolderSource(str(tmp_path / "image")), environment=environment)
    asyncio.run(engine.up(spec, RecordedTask()))
    yield engine
    asyncio.run(engine.delete(UID, RecordedTask()))


async def test_it_starts_once_when_its_port_is_opened_and_goes_on(engine: PortEngine, tmp_path: Path) -> None:
    ides = WebIdes()
    with pytest.raises(EngineError):
        await ides.open(engine, UID, describe(""), web_ide.PORT)
    opened = [ides.open(engine, UID, describe("image"), web_ide.PORT) for _ in range(3)]
    greetings = [await read_greeting(each) for each in await asyncio.gather(*opened)]
    assert all(each.startswith(f"--auth none --bind-addr 127.0.0.1:{web_ide.PORT}") for each in greetings)
    assert (await read_greeting(await ides.open(engine, UID, describe(""), web_ide.PORT))) == greetings[0]
    assert (tmp_path / "image/code-server.starts").read_text() == "x"
    with pytest.raises(EngineError):
        await ides.open(engine, UID, describe("image"), 1)
    await ides.close()


async def test_an_editor_that_is_missing_is_an_error_that_names_the_log(engine: PortEngine, tmp_path: Path) -> None:
    (tmp_path / "image/code-server").unlink()
    ides = WebIdes()
    with pytest.raises(EngineError, match=r"neither openvscode-server nor code-server.*web-ide") as raised:
        await ides.open(engine, UID, describe("image"), web_ide.PORT)
    assert raised.value.reason == Reason.START_FAILED
    await ides.close()


@pytest.mark.parametrize("package", ["", None, "-g", "a b", "x;id", "../x", "file:/x", {"value": "a|b"}])
def test_what_is_no_package_is_none(package: Any) -> None:
    assert find_package(describe(package)) == "" and list_ports(describe(package), []) == []


def test_the_port_of_the_editor_is_listed_also_before_it_listens() -> None:
    shown = [ListeningPort(80, "0.0.0.0", "nginx")]
    for listening in (shown, [*shown, ListeningPort(web_ide.LISTED.port, "127.0.0.1", "node")]):
        assert list_ports(describe({"value": "@coder/code-server@4.1.0"}), listening) == [web_ide.LISTED, *shown]
    assert list_ports(None, shown) == shown
