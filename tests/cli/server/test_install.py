"""`fairlead install` and `fairlead uninstall`, with another folder as the root of the file system; and the units."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead import __version__
from fairlead.cli.server import install
from fairlead.cli.server.units import AgentUnitOptions, Unit, build_agent_unit, build_server_unit
from tests.cli.test_commands import run_fairlead

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "systemd"
PROGRAM = Path("/usr/local/bin/fairlead")
AGENT = AgentUnitOptions(
    "berlin",
    "https://fairlead.example.com",
    Path("/etc/fairlead/agent.key"),
    Path("/etc/fairlead/agent.kubeconfig"),
    Path("/etc/fairlead/ca.crt"),
)
UNITS = [build_server_unit(PROGRAM, {}), build_agent_unit(PROGRAM, AGENT)]
MAX_EXPOSURE = 30  # tenths


def list_files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


@pytest.fixture
def agent_flags(tmp_path: Path) -> list[str]:
    for name in ("key", "kubeconfig"):
        (tmp_path / name).write_text("secret")
    files = ["--key-file", str(tmp_path / "key"), "--kubeconfig", str(tmp_path / "kubeconfig")]
    return ["--cluster", "berlin", "--server", "https://fairlead.example.com", *files]


def test_installing_twice_and_uninstalling_leaves_nothing(tmp_path: Path, agent_flags: list[str]) -> None:
    root = tmp_path / "root"
    for _ in range(2):
        assert run_fairlead("install", "server", "--root", str(root))[0] == 0
        assert run_fairlead("install", "agent", *agent_flags, "--root", str(root))[0] == 0
        assert list_files(root) == [
            "etc/fairlead/fairlead.yaml",
            "etc/systemd/system/fairlead-agent.service",
            "etc/systemd/system/fairlead.service",
        ]
    assert "unchanged" in run_fairlead("install", "server", "--root", str(root))[1]
    assert run_fairlead("uninstall", "--root", str(root))[0] == 0
    assert list_files(root) == []
    assert run_fairlead("uninstall", "--root", str(root)) == (0, "no service is installed\n")


def test_settings_that_were_edited_and_data_stay_until_they_are_purged(tmp_path: Path) -> None:
    run_fairlead("install", "server", "--root", str(tmp_path))
    (tmp_path / "etc/fairlead/fairlead.yaml").write_text("port: 9443\n")
    data = tmp_path / "var/lib/private/fairlead"
    data.mkdir(parents=True)
    (data / "fairlead.db").write_text("data")
    (tmp_path / "var/lib/fairlead").symlink_to(data)
    run_fairlead("install", "server", "--root", str(tmp_path))
    assert (tmp_path / "etc/fairlead/fairlead.yaml").read_text() == "port: 9443\n"
    code, output = run_fairlead("uninstall", "--root", str(tmp_path))
    assert code == 0 and "kept the data" in output and "which was edited" in output
    assert (data / "fairlead.db").exists()
    assert run_fairlead("uninstall", "--purge", "--root", str(tmp_path))[0] == 1  # nobody answers the question
    assert (data / "fairlead.db").exists()
    assert run_fairlead("uninstall", "--purge", "--yes", "--root", str(tmp_path))[0] == 0
    assert list_files(tmp_path) == []


def test_the_service_can_read_its_settings_whatever_the_umask_is(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    umask = os.umask(0o077)
    try:
        assert run_fairlead("install", "server", "--root", str(tmp_path / "private"))[0] == 0
    finally:
        os.umask(umask)
    made = sorted((tmp_path / "private").rglob("*"))
    assert {str(path.relative_to(tmp_path / "private")): oct(path.stat().st_mode & 0o777) for path in made} == {
        "etc": "0o755",
        "etc/fairlead": "0o755",
        "etc/fairlead/fairlead.yaml": "0o644",
        "etc/systemd": "0o755",
        "etc/systemd/system": "0o755",
        "etc/systemd/system/fairlead.service": "0o644",
    }
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemctl that writes its arguments to the file `calls`, and fails for the service in the file `broken`."""
    folder = tmp_path / "systemctl"
    folder.mkdir()
    script = f"""#!/bin/sh
echo "$*" >> {folder}/calls
if [ "$1" = disable ] && grep -qsx "$3" {folder}/broken; then echo "Failed to stop $3.service" >&2; exit 1; fi
"""
    (folder / "systemctl").write_text(script)
    (folder / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr(install, "_runs_systemd", lambda root: True)
    return folder


def test_a_service_that_cannot_be_stopped_keeps_its_unit_and_its_data(
    tmp_path: Path, agent_flags: list[str], systemctl: Path
) -> None:
    root = tmp_path / "root"
    assert run_fairlead("install", "server", "--root", str(root))[0] == 0
    assert run_fairlead("install", "agent", *agent_flags, "--root", str(root))[0] == 0
    (root / "var/lib/fairlead").mkdir(parents=True)
    (root / "var/lib/fairlead/fairlead.db").write_text("data")
    before = list_files(root)
    (systemctl / "broken").write_text("fairlead-agent\n")
    code, output = run_fairlead("uninstall", "--purge", "--yes", "--root", str(root))
    assert code == 1 and list_files(root) == before
    assert "Failed to stop fairlead-agent.service" in output
    assert "fairlead-agent was not stopped, so nothing is removed" in output
    (systemctl / "broken").unlink()
    assert run_fairlead("uninstall", "--purge", "--yes", "--root", str(root))[0] == 0
    assert list_files(root) == []
    assert (systemctl / "calls").read_text().splitlines()[-3:] == [
        "disable --now fairlead",
        "disable --now fairlead-agent",
        "daemon-reload",
    ]


def test_the_next_command_examines_the_service_with_its_settings(
    tmp_path: Path, agent_flags: list[str], systemctl: Path
) -> None:
    output = run_fairlead("install", "server", "--root", str(tmp_path / "root"))[1]
    check = "fairlead doctor --config /etc/fairlead/fairlead.yaml --data /var/lib/fairlead"
    assert f"next: systemctl restart fairlead && {check}\n" in output
    output = run_fairlead("install", "agent", *agent_flags, "--root", str(tmp_path / "root"))[1]
    assert "next: systemctl restart fairlead-agent && systemctl status fairlead-agent\n" in output
    assert (systemctl / "calls").read_text().splitlines()[:2] == ["daemon-reload", "enable fairlead"]


@pytest.fixture
def hidden_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation in a folder that services do not see."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "fairlead"
    program.touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(install, "HIDDEN_FOLDERS", (str(tmp_path),))
    return program


def test_a_program_that_services_do_not_see_is_rejected_with_advice(
    hidden_program: Path, agent_flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[object] = []
    monkeypatch.setattr(install, "_install", lambda *arguments: installed.append(arguments))
    for command in (["server"], ["agent", *agent_flags]):
        code, output = run_fairlead("install", *command)
        assert code == 1
        assert f"{hidden_program}: services do not see this folder" in output
        assert f"pipx install ./fairlead-{__version__}-py3-none-any.whl\n" in output
    assert installed == []


def test_a_dry_run_prints_the_unit_also_for_a_program_that_services_do_not_see(
    hidden_program: Path, agent_flags: list[str]
) -> None:
    for command in (["server"], ["agent", *agent_flags]):
        code, output = run_fairlead("install", *command, "--dry-run")
        assert code == 0
        assert f"ExecStart={hidden_program} " in output
        assert f"warning: {hidden_program}: services do not see this folder" in output


def test_a_secret_is_handed_over_as_a_credential(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgres://fairlead:hidden@db/fairlead")
    code, output = run_fairlead("install", "server", "--dry-run", "--credential", f"store={tmp_path / 'url'}")
    assert code == 0
    assert f"LoadCredential=fairlead.store:{tmp_path / 'url'}\n" in output and "hidden" not in output


@pytest.mark.parametrize("value", ["port=FILE", "store", "store=/nowhere/file"])
def test_a_wrong_credential_is_rejected(value: str, tmp_path: Path) -> None:
    code, output = run_fairlead("install", "server", "--root", str(tmp_path), "--credential", value)
    assert code == 2 and value.rpartition("=")[2] in output
    assert list_files(tmp_path) == []


def test_a_file_name_that_a_unit_cannot_have_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "my url").write_text("x")
    code, output = run_fairlead("install", "server", "--dry-run", "--credential", f"store={tmp_path / 'my url'}")
    assert code == 2 and "rename it" in output


def test_an_agent_is_not_installed_with_a_wrong_address(tmp_path: Path, agent_flags: list[str]) -> None:
    flags = [*agent_flags, "--listen", "everywhere", "--root", str(tmp_path / "root")]
    code, output = run_fairlead("install", "agent", *flags)
    assert code == 2 and "--listen" in output and not (tmp_path / "root").exists()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_units_in_the_repository_are_those_that_are_installed(unit: Unit) -> None:
    assert (DEPLOY / unit.path.name).read_text() == unit.render()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_exposure_of_the_units_is_low(unit: Unit, component: Callable[[str], Path], tmp_path: Path) -> None:
    file = tmp_path / unit.path.name
    file.write_text(unit.render())
    program = str(component("systemd-analyze"))
    command = [program, "security", "--offline=yes", f"--threshold={MAX_EXPOSURE}", "--no-pager", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Overall exposure level" in result.stdout
    file.write_text("[Service]\nExecStart=/bin/true\n")  # the check can fail
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode != 0


def test_percent_signs_and_dollars_are_not_expanded() -> None:
    unit = build_server_unit(Path("/opt/100%/$HOME/fairlead"), {"store": Path("/etc/a b")})
    assert "ExecStart='/opt/100%%/$$HOME/fairlead' serve" in unit.render()
