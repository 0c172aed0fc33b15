"""Files that only their owner may read, and that are never half written."""

import os
import stat
from pathlib import Path

import pytest

from fairlead.core.files import FileProblem, ensure_private_folder, read_file, write_file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_and_those_above_it_are_closed_to_others(tmp_path: Path) -> None:
    folder = ensure_private_folder(tmp_path / "share" / "fairlead")
    assert mode(folder) == mode(folder.parent) == 0o700


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(0o770)
    ensure_private_folder(folder)
    assert mode(folder) == 0o770


def test_a_file_is_private_from_the_start_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_file(path, b"old")
    with path.open("rb") as reader:
        write_file(path, b"new")
        assert reader.read() == b"old"
    assert read_file(path) == b"new"
    assert mode(path) == 0o600


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"
    write_file(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileProblem, match="No space left on device"):
        write_file(path, b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["key"]
    assert path.read_bytes() == b"old"


def test_a_missing_file_is_nothing_to_worry_about(tmp_path: Path) -> None:
    assert read_file(tmp_path / "none") is None


def test_a_path_that_cannot_be_a_folder_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileProblem, match=r"Not a directory; make it writable .*, or use another path"):
        ensure_private_folder(tmp_path / "file" / "data")
