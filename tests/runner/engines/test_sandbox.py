"""The skeleton of the sandbox."""

import os
from pathlib import Path

import pytest

from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder
from fairlead.runner.engines.devcontainer.sandbox import build_rootfs


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
