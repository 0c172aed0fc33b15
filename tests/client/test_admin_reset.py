"""client.admin_reset: requests for a new key of the administrator are served once."""

import os
from pathlib import Path

import pytest

from fairlead.client.admin_reset import (
    IF_EXPIRED,
    NOW,
    claim_request,
    finish_request,
    is_pending,
    request_reset,
)
from fairlead.core.files import FileProblem
from fairlead.core.machine.folder_security import require_private


def test_a_request_is_taken_once_and_pending_until_it_is_finished(tmp_path: Path) -> None:
    assert not is_pending(tmp_path) and claim_request(tmp_path) is None
    request_reset(tmp_path, NOW)
    assert is_pending(tmp_path)
    assert claim_request(tmp_path) == NOW and claim_request(tmp_path) is None
    assert is_pending(tmp_path)
    finish_request(tmp_path)
    assert not is_pending(tmp_path)


def test_a_request_that_was_not_finished_is_taken_at_the_next_start(tmp_path: Path) -> None:
    request_reset(tmp_path, IF_EXPIRED)
    assert claim_request(tmp_path) == IF_EXPIRED
    assert claim_request(tmp_path, after_crash=True) == IF_EXPIRED
    finish_request(tmp_path)
    assert claim_request(tmp_path, after_crash=True) is None


def test_a_request_of_root_can_be_read_by_a_server_of_another_user(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    umask = os.umask(0o077)
    try:
        request_reset(folder, NOW)
    finally:
        os.umask(umask)
    assert (folder / "admin.reset").stat().st_mode & 0o777 == 0o644
    assert folder.stat().st_mode & 0o777 == 0o700
    require_private(folder)  # it does not keep the server from starting


def test_a_request_that_cannot_be_read_asks_for_a_new_key_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request_reset(tmp_path, IF_EXPIRED)

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert claim_request(tmp_path) == NOW
    assert claim_request(tmp_path, after_crash=True) == NOW


@pytest.mark.parametrize("name", ["admin.reset", "admin.reset.running"])
def test_a_folder_in_the_place_of_a_request_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(FileProblem, match=f"{name}: not a file; remove it"):
        claim_request(tmp_path, after_crash=True)


def test_a_pipe_in_the_place_of_a_request_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "admin.reset")
    with pytest.raises(FileProblem, match="not a file"):
        claim_request(tmp_path)


def test_a_request_that_cannot_be_removed_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "admin.reset.running").mkdir()
    with pytest.raises(FileProblem, match=r"admin\.reset\.running: .*; remove it"):
        finish_request(tmp_path)
