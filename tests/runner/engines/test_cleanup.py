"""The removal of folders that a workspace has filled as it likes."""

import os
from pathlib import Path

from fairlead.runner.engines.devcontainer.cleanup import remove_tree

DEPTH = 5000


def make_deep(folder: Path) -> None:
    """Deeper than Python's stack, and than files may be open. Its path is longer than a path may be."""
    parent = os.open(folder, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=parent)
        child = os.open("d", os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = child
    os.close(parent)


async def test_a_tree_of_any_depth_is_removed(tmp_path: Path) -> None:
    (tmp_path / "root/work").mkdir(parents=True)
    (tmp_path / "root/identity.json").touch()
    make_deep(tmp_path / "root/work")
    await remove_tree(tmp_path / "root")
    assert not (tmp_path / "root").exists()


async def test_what_links_lead_to_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").touch()
    (tmp_path / "root/work").mkdir(parents=True)
    (tmp_path / "root/link").symlink_to(tmp_path / "outside")
    (tmp_path / "root/work/link").symlink_to(tmp_path / "outside")
    (tmp_path / "root/-rf").touch()
    await remove_tree(tmp_path / "root")
    assert os.listdir(tmp_path) == ["outside"]
    assert (tmp_path / "outside/kept").exists()


async def test_a_tree_that_is_gone_needs_no_removal(tmp_path: Path) -> None:
    await remove_tree(tmp_path / "missing")
