"""The script that clones, which has the credentials of the project, with hostile claims and repositories."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairlead.runner.engines.kubernetes import scripts
from fairlead.runner.engines.kubernetes.manifests import CLONE_CAPABILITIES

IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
PROGRAM = '#!/bin/sh\ntouch "$CANARY"\n'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Has programs with the names of all that the script runs."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in ("git", "mv", "rm", "mkdir", "cat", "mktemp"):
        (folder / name).write_text(PROGRAM)
        (folder / name).chmod(0o755)
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), (*IDENTITY, "commit", "-qm", "First")):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    return folder


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    folder = tmp_path / "claim"
    folder.mkdir()
    return folder


def read_head(repository: Path) -> str:
    command = ["git", "-C", str(repository), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def clone(
    claim: Path, repository: Path, path: str = os.defpath, as_user: Sequence[str] = (), **variables: str
) -> "subprocess.CompletedProcess[str]":
    environment = {
        "PATH": path,
        "VOLUME": str(claim),
        "PROJECT": "bin",
        "URL": f"file://{repository}",
        "ORIGIN": "https://git.example.com/r.git",
        "STRATEGY": "",
        "TASK": "task-1",
        "TOKEN": "canary",
        "CANARY": str(claim.parent / "canary"),
        **variables,
    }
    command = [*as_user, "/bin/sh", "-c", scripts.CLONE]
    return subprocess.run(command, check=False, env=environment, cwd="/", capture_output=True, text=True, timeout=60)


def test_it_clones_once(claim: Path, repository: Path) -> None:
    assert clone(claim, repository).returncode == 0
    assert (claim / "work/bin/mv").read_text() == PROGRAM
    (claim / "work/bin/mv").unlink()
    assert clone(claim, repository).returncode == 0
    assert not (claim / "work/bin/mv").exists()
    head = read_head(repository)
    assert clone(claim, repository, RESET="1", TASK="task-2", COMMIT=head).returncode == 0
    assert (claim / "work/bin/mv").exists()


def test_root_with_the_capabilities_of_the_clone_replaces_folders_with_the_sticky_bit(
    claim: Path, repository: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("capabilities need root")
    granted = ",".join(["-all", *(f"+{each.lower()}" for each in CLONE_CAPABILITIES)])
    as_clone = ("/usr/bin/setpriv", f"--bounding-set={granted}", f"--inh-caps={granted}", "--")
    assert clone(claim, repository, as_user=as_clone).returncode == 0
    sticky = claim / "work/bin/t"
    sticky.mkdir()
    (sticky / "x").touch()
    for path in (claim / "work/bin", sticky, sticky / "x"):
        os.chown(path, 1000, 1000)
    sticky.chmod(0o1777)
    result = clone(claim, repository, as_user=as_clone, RESET="1", TASK="task-2")
    assert result.returncode == 0, result.stderr
    assert not sticky.exists()


@pytest.mark.parametrize("name", ["work", "fetched", "fetched.new"])
@pytest.mark.parametrize("variables", [{}, {"RESET": "1"}], ids=str)
def test_a_link_on_the_claim_is_not_followed(
    claim: Path, repository: Path, name: str, variables: dict[str, str]
) -> None:
    target = claim.parent / "target"
    target.mkdir()
    (claim / name).symlink_to(target if name == "work" else target / "file")
    result = clone(claim, repository, **variables)
    assert result.returncode == 1
    assert f"{claim / name} on the claim is a link, which no part of Fairlead creates" in result.stderr
    assert list(target.iterdir()) == []


def test_a_link_in_the_place_of_the_work_folder_is_replaced(claim: Path, repository: Path) -> None:
    target = claim.parent / "target"
    target.mkdir()
    (target / "kept").touch()
    (claim / "work").mkdir()
    (claim / "work/bin").symlink_to(target)
    assert clone(claim, repository).returncode == 0
    assert not (claim / "work/bin").is_symlink() and (claim / "work/bin/mv").exists()
    assert [each.name for each in target.iterdir()] == ["kept"]


def test_programs_of_the_repository_are_not_run_also_if_the_image_looks_for_programs_in_the_current_folder(
    claim: Path, repository: Path
) -> None:
    head = read_head(repository)
    result = clone(claim, repository, path=f".:{os.defpath}", COMMIT=head)
    assert result.returncode == 0, result.stderr
    assert not (claim.parent / "canary").exists()
