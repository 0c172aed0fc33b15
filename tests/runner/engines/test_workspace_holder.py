"""How the holders of a workspace are planned. Tests with containers see what is in them."""

import subprocess
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.isolation import workspace_holder
from fairlead.runner.engines.devcontainer.isolation.holder import Bind, check_targets
from fairlead.runner.engines.devcontainer.isolation.workspace_holder import (
    LIMIT_ERRORS,
    bind_cli,
    choose_runtime,
    resolve_cli,
)


def test_the_end_of_the_messages_of_a_command_and_its_exit_code_are_passed_on(tmp_path: Path) -> None:
    script = LIMIT_ERRORS.replace("/tmp/code", str(tmp_path / "code"))
    command = "cat; yes message | head -c 1000000 >&2; echo last >&2; exit 7"
    result = subprocess.run(
        ["/bin/sh", "-c", script, "sh", "/bin/sh", "-c", command], input=b"in", capture_output=True, check=False
    )
    assert (result.returncode, result.stdout) == (7, b"in")
    assert len(result.stderr) == 65536 and result.stderr.endswith(b"message\nlast\n")


def test_a_command_without_an_exit_code_has_failed(tmp_path: Path) -> None:
    script = LIMIT_ERRORS.replace("/tmp/code", str(tmp_path / "missing" / "code"))
    assert subprocess.run(["/bin/sh", "-c", script, "sh", "true"], capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize(
    ("is_unified", "installed", "chosen"),
    [
        (True, {"crun", "runc"}, "crun"),
        (True, {"runc"}, "runc"),
        (False, {"crun", "runc"}, "runc"),
        (False, {"crun"}, "crun"),
        (True, set(), "crun"),
        (False, set(), "runc"),
    ],
)
def test_the_runtime_is_one_that_is_installed_and_fits_the_cgroups_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_unified: bool, installed: set[str], chosen: str
) -> None:
    for name in installed:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setattr(workspace_holder, "PATH", str(tmp_path))
    monkeypatch.setattr(workspace_holder, "is_unified", lambda: is_unified)
    assert choose_runtime() == chosen


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CLI that npm has installed: a link in a folder of the path to its script."""
    for name in ("modules/cli/devcontainer.js", "node/bin/node", "bin/.keep"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch(mode=0o755)
    (tmp_path / "bin/devcontainer").symlink_to("../modules/cli/devcontainer.js")
    (tmp_path / "bin/node").symlink_to(tmp_path / "node/bin/node")
    monkeypatch.setattr(workspace_holder, "PATH", str(tmp_path / "bin"))
    return tmp_path


def test_the_cli_has_places_of_its_own_in_the_holder(cli: Path) -> None:
    assert resolve_cli(["devcontainer"]) == ["/opt/cli/0/devcontainer.js"]
    command = ["node", f"{cli}/bin/devcontainer"]
    assert resolve_cli(command) == ["/opt/cli/0/node", "/opt/cli/1/devcontainer.js"]
    assert bind_cli(command) == [Bind(f"{cli}/node/bin", "/opt/cli/0"), Bind(f"{cli}/modules/cli", "/opt/cli/1")]


def test_what_is_a_part_of_the_machine_is_shown_already_and_nothing_twice(cli: Path) -> None:
    assert (bind_cli(["/usr/bin/env"]), resolve_cli(["/usr/bin/env"])) == ([], ["/usr/bin/env"])
    assert bind_cli([f"{cli}/node/bin/node", f"{cli}/node/bin/node"]) == [Bind(f"{cli}/node/bin", "/opt/cli/0")]


@pytest.mark.parametrize("command", [["missing"], ["node", "/missing/devcontainer.js"]])
def test_a_cli_that_is_missing_is_named(cli: Path, command: list[str]) -> None:
    with pytest.raises(EngineError, match=f"there is no {command[-1]}; install the dev container CLI") as raised:
        resolve_cli(command)
    assert raised.value.reason == Reason.ENGINE_UNAVAILABLE


@pytest.mark.parametrize("target", ["/var/lib/cli", "/ws", "/workspaces/demo/x"])
def test_nothing_is_mounted_below_a_folder_that_the_workspace_writes_to(target: str) -> None:
    """A link there would lead root, which creates the folder to mount on, to anywhere on the machine."""
    writable = [Bind(f"/state{each}", each, read_only=False) for each in ("/workspaces/demo", "/ws", "/var")]
    check_targets([*writable, Bind("/opt/cli", "/opt/cli"), Bind("/variable", "/variable")])
    with pytest.raises(EngineError, match="install it elsewhere") as raised:
        check_targets([*writable, Bind(target, target)])
    assert raised.value.reason == Reason.ENGINE_UNAVAILABLE
