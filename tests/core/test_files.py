"""Tests of `core/files.py`: files that only their owner can read, and that are written atomically."""

import os
import stat
from pathlib import Path

import pytest

from fairlead.core.files import FileProblem, ensure_private_folder, read_file, write_file


def get_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_and_its_new_parents_are_private(tmp_path: Path) -> None:
    folder = ensure_private_folder(tmp_path / "share" / "fairlead")
    assert get_mode(folder) == get_mode(folder.parent) == 0o700


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(0o770)
    ensure_private_folder(folder)
    assert get_mode(folder) == 0o770


def test_a_file_is_private_from_the_start_and_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_file(path, b"old")
    with path.open("rb") as reader:
        write_file(path, b"new")
        assert reader.read() == b"old"
    assert read_file(path) == b"new"
    assert get_mode(path) == 0o600


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    write_file(path, b"old")

    def raise_disk_full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", raise_disk_full)
    with pytest.raises(FileProblem, match="No space left on device"):
        write_file(path, b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["key"]
    assert path.read_bytes() == b"old"


def test_a_missing_file_is_no_error(tmp_path: Path) -> None:
    assert read_file(tmp_path / "none") is None


def test_the_error_for_a_file_in_place_of_a_folder_names_it_and_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileProblem, match=r"/file/data: \S+/file is a file, not a folder; use another path$"):
        ensure_private_folder(tmp_path / "file" / "data")
    with pytest.raises(FileProblem, match=r"/file: this is a file, not a folder; use another path$"):
        ensure_private_folder(tmp_path / "file")


def test_the_error_for_an_unusable_path_names_it_and_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(FileProblem, match=r"File exists; make it writable .*, or use another path"):
        ensure_private_folder(tmp_path / "link")


def test_a_folder_above_that_may_not_be_read_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_forbidden(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", raise_forbidden)
    with pytest.raises(FileProblem, match="Permission denied; make it writable"):
        ensure_private_folder(tmp_path / "data")
