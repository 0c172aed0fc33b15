"""scripts/fetch-debian-package.sh: packages from Debian's archive for the tests, with a fake apt-get.

The fake prints URIs as apt-get does, for source files of both formats.
"""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "fetch-debian-package.sh"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# Lines of `apt-get update --print-uris`: a security archive, a third-party one, and a mirror, which comes last.
URIS = """
'http://mirror.example/debian-security/dists/any-security/InRelease' mirror.example_debian-security_InRelease 0
'https://packages.example/apt/dists/stable/InRelease' packages.example_InRelease 0
'http://mirror.example/debian/dists/any/InRelease' mirror.example_debian_InRelease 0
'http://mirror.example/debian/dists/any/main/binary-amd64/Packages.xz' mirror.example_Packages 0
"""
APT_GET = """#!/bin/bash
echo "$*" >>{folder}/calls
case "$*" in
    *--print-uris*) cat {folder}/addresses; exit ;;
esac
config="$(sed -nE 's/.*--config-file=([^ ]+).*/\\1/p' <<<"$*")"
cat "$config" "$(dirname "$config")/sources.list" >>{folder}/settings
case "$*" in
    *" update") grep -q ' http://mirror.example/debian trixie main' "$(dirname "$config")/sources.list" ;;
    *" download tool") cp {folder}/tool.deb . ;;
    *) echo "E: Unable to locate package" >&2; exit 100 ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Machine:
    folder: Path

    def fetch(self, package: str) -> "subprocess.CompletedProcess[str]":
        command = ["bash", str(SCRIPT), "trixie", package, str(self.folder / "out" / "tool")]
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            command, env={"PATH": path}, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False
        )

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def machine(tmp_path: Path, component: Callable[[str], Path]) -> Machine:
    if not KEYRING.exists():
        pytest.skip("Debian's archive keyring is missing; install debian-archive-keyring")
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(
        "Package: tool\nVersion: 1\nArchitecture: all\nMaintainer: tests <t@example.com>\nDescription: of the tests\n"
    )
    (tree / "usr" / "bin").mkdir(parents=True)
    (tree / "usr" / "bin" / "tool").write_text("#!/bin/sh\necho hello\n")
    command = [str(component("dpkg-deb")), "--root-owner-group", "--build", str(tree), str(tmp_path / "tool.deb")]
    subprocess.run(command, check=True, capture_output=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "apt-get").write_text(APT_GET.format(folder=tmp_path))
    (tmp_path / "bin" / "apt-get").chmod(0o755)
    (tmp_path / "addresses").write_text(URIS.lstrip())
    return Machine(tmp_path)


def test_a_package_is_unpacked_from_the_mirror_in_the_apt_sources(machine: Machine) -> None:
    result = machine.fetch("tool")
    assert result.returncode == 0, result.stderr
    assert (machine.folder / "out" / "tool" / "usr" / "bin" / "tool").read_text().endswith("hello\n")
    assert [path.name for path in (machine.folder / "out").iterdir()] == ["tool"]
    assert "debian-security" not in machine.read("settings")


def test_apt_uses_its_own_directories_and_checks_signatures(machine: Machine) -> None:
    machine.fetch("tool")
    first_call, *other_calls = machine.read("calls").splitlines()
    assert first_call == "update --print-uris"
    assert all("--config-file=" in line for line in other_calls)
    settings = machine.read("settings")
    for name in ("Dir::State ", "Dir::State::lists ", "Dir::State::status ", "Dir::Cache ", "Dir::Etc::sourcelist "):
        assert f'{name}"{machine.folder}/out/fetch.' in settings
    assert 'Dir::Etc::sourceparts "/dev/null";' in settings
    assert f"deb [signed-by={KEYRING}] http://mirror.example/debian trixie main" in settings


def test_a_missing_package_is_reported_and_nothing_is_left_behind(machine: Machine) -> None:
    result = machine.fetch("nothing")
    assert result.returncode == 1
    assert "Unable to locate package" in result.stderr
    assert "no archive among this machine's apt sources gave nothing of Debian trixie" in result.stderr
    assert list((machine.folder / "out").iterdir()) == []


def test_a_machine_without_a_mirror_gets_an_error(machine: Machine) -> None:
    (machine.folder / "addresses").write_text("")
    assert "no archive among this machine's apt sources" in machine.fetch("tool").stderr
