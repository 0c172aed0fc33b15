"""The skeleton of the sandbox."""

import os
import subprocess
from pathlib import Path

import pytest

from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder
from fairlead.runner.engines.devcontainer.sandbox import LIMIT_ERRORS, build_rootfs


def test_a_skeleton_that_was_not_completed_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = WorkspaceFolder(tmp_path)

    def fail(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "chown", fail)
        build_rootfs(folder, os.getuid())
    assert not folder.rootfs.exists()
    build_rootfs(folder, os.getuid())
    assert {"etc", "proc", "run", "tmp", "usr", "work"} <= {path.name for path in folder.rootfs.iterdir()}


def test_the_skeleton_has_nothing_of_the_machine(tmp_path: Path) -> None:
    folder = WorkspaceFolder(tmp_path)
    build_rootfs(folder, os.getuid())
    files = {str(path.relative_to(folder.rootfs)) for path in folder.rootfs.rglob("*") if path.is_file()}
    assert files == {"etc/passwd", "etc/group", "etc/resolv.conf", "etc/hosts", "etc/hostname"}


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
