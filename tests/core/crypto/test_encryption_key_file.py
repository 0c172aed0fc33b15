"""Tests of `core/crypto/encryption.py`: the key file, the environment variable, and rotation without losing a key."""

import base64
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairlead.core.crypto.encryption import (
    KEYS_VARIABLE,
    EncryptionKeyFile,
    Keyring,
    read_keys,
    reencrypted_key_id,
    remove_key,
    rotate_key,
)
from fairlead.core.files import FileProblem

A, B = base64.b64encode(bytes(32)).decode(), base64.b64encode(bytes(range(32))).decode()


def list_ids(keyring: Keyring | None) -> list[str]:
    assert keyring is not None
    return [key.id for key in keyring.keys]


def test_the_first_key_is_created_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    assert EncryptionKeyFile(tmp_path).read() is None
    created = EncryptionKeyFile(tmp_path).create()
    reloaded = EncryptionKeyFile(tmp_path).create()
    assert created.keys == reloaded.keys
    assert len(created.keys) == 1
    assert stat.S_IMODE((tmp_path / "encryption.keys").stat().st_mode) == 0o600


def test_files_under_their_former_names_are_used_in_place(tmp_path: Path) -> None:
    created = EncryptionKeyFile(tmp_path).create()
    (tmp_path / "encryption.keys").rename(tmp_path / "seal.keys")
    (tmp_path / "seal.done").write_text(f"{created.active_key_id}\n")
    keys = EncryptionKeyFile(tmp_path)
    assert list_ids(keys.read()) == [keys.reencrypted_id] == [created.active_key_id]
    assert keys.source == str(tmp_path / "seal.keys")
    rotated = rotate_key(tmp_path)
    assert keys.has_changed() and list_ids(keys.read()) == [key.id for key in rotated]
    keys.set_reencrypted(rotated[0].id)
    assert [key.id for key in remove_key(tmp_path, created.active_key_id)] == [rotated[0].id]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seal.done", "seal.keys"]


def test_a_file_with_the_current_name_wins_over_the_former_one(tmp_path: Path) -> None:
    (tmp_path / "seal.keys").write_text(f"former {A}\n")
    keys = EncryptionKeyFile(tmp_path)
    assert list_ids(keys.read()) == ["former"]
    (tmp_path / "encryption.keys").write_text(f"current {B}\n")
    assert keys.has_changed() and list_ids(keys.read()) == ["current"]
    rotate_key(tmp_path)
    assert (tmp_path / "seal.keys").read_text() == f"former {A}\n"


def test_two_installations_have_different_keys(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    one, two = (EncryptionKeyFile(folder).create().keys[0].secret for folder in folders)
    assert one != two


@pytest.mark.parametrize("text", [f"b {B} a {A}", f"b {B}\na {A}\n", f"# two keys\n\n  b {B}\r\n\ta   {A}"])
def test_the_variable_has_pairs_and_no_key_is_written(text: str, tmp_path: Path) -> None:
    keys = EncryptionKeyFile(tmp_path, text)
    keyring = keys.read()
    assert list_ids(keyring) == ["b", "a"]
    assert not keys.has_changed()
    assert list(tmp_path.iterdir()) == []
    assert KEYS_VARIABLE in keys.source


def test_the_variable_wins_over_the_file_and_an_empty_one_does_not(tmp_path: Path) -> None:
    created = EncryptionKeyFile(tmp_path).create()
    assert list_ids(EncryptionKeyFile(tmp_path, f"a {A}").read()) == ["a"]
    assert list_ids(EncryptionKeyFile(tmp_path, " \n").read()) == [created.active_key_id]


@pytest.mark.parametrize(
    "text",
    [
        "# only a comment",
        "canary",
        f"a {A} canary",
        "a canary",
        f"a {A[:-4]}",
        f"a {A[:-1]}",
        f"canary/id {A}",
        f"a {A} a {B}",
        f"{A} a",
    ],
)
def test_a_malformed_variable_is_rejected_without_quoting_it(text: str, tmp_path: Path) -> None:
    for keys in (EncryptionKeyFile(tmp_path, text), EncryptionKeyFile(tmp_path)):
        (tmp_path / "encryption.keys").write_text(text)
        with pytest.raises(FileProblem) as caught:
            keys.read()
        assert str(caught.value).startswith(f"{keys.source}: ")
        assert "canary" not in str(caught.value)
        assert A[:10] not in str(caught.value)


def test_an_unread_change_of_the_file_is_detected(tmp_path: Path) -> None:
    keys = EncryptionKeyFile(tmp_path)
    keys.create()
    assert not keys.has_changed()
    rotate_key(tmp_path)
    assert keys.has_changed()
    assert len(list_ids(keys.read())) == 2
    assert not keys.has_changed()
    (tmp_path / "encryption.keys").unlink()
    assert keys.has_changed()
    assert keys.read() is None
    assert not keys.has_changed()


def test_rotation_puts_a_new_key_first_and_keeps_the_others(tmp_path: Path) -> None:
    first = EncryptionKeyFile(tmp_path).create().keys
    second = rotate_key(tmp_path)
    third = rotate_key(tmp_path)
    assert second[1:] == list(first)
    assert third[1:] == second
    assert read_keys(tmp_path) == third
    assert len({key.secret for key in third}) == 3


def test_rotations_at_the_same_time_lose_no_key(tmp_path: Path) -> None:
    EncryptionKeyFile(tmp_path).create()
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: rotate_key(tmp_path), range(16)))
    assert {keys[0] for keys in results} < set(read_keys(tmp_path))
    assert len(read_keys(tmp_path)) == 17


def test_a_key_is_removed_once_everything_is_encrypted_with_the_active_one(tmp_path: Path) -> None:
    keys = EncryptionKeyFile(tmp_path)
    old = keys.create().active_key_id
    keys.set_reencrypted(old)
    new = rotate_key(tmp_path)[0].id
    with pytest.raises(FileProblem, match=f"{old} may still be needed"):
        remove_key(tmp_path, old)
    keys.set_reencrypted(new)
    assert [key.id for key in remove_key(tmp_path, old)] == [new]
    assert [key.id for key in read_keys(tmp_path)] == [new]


def test_a_key_that_may_be_needed_is_removed_only_by_force(tmp_path: Path) -> None:
    old = EncryptionKeyFile(tmp_path).create().active_key_id
    rotate_key(tmp_path)
    assert old not in [key.id for key in remove_key(tmp_path, old, force=True)]


def test_neither_the_active_key_nor_an_unknown_key_is_removed(tmp_path: Path) -> None:
    EncryptionKeyFile(tmp_path).create()
    active, *_ = rotate_key(tmp_path)
    before = read_keys(tmp_path)
    with pytest.raises(FileProblem, match="is the active key; create another one"):
        remove_key(tmp_path, active.id, force=True)
    with pytest.raises(FileProblem, match=f"has no key other; it has {active.id}, "):
        remove_key(tmp_path, "other", force=True)
    assert read_keys(tmp_path) == before


def test_a_folder_without_keys_gets_none(tmp_path: Path) -> None:
    for act in (lambda: rotate_key(tmp_path), lambda: remove_key(tmp_path, "x")):
        with pytest.raises(FileProblem, match="no such file; pass the server's data folder"):
            act()
    with pytest.raises(FileProblem, match="pass the server's data folder"):
        rotate_key(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_the_mark_can_be_set_and_removed(tmp_path: Path) -> None:
    assert reencrypted_key_id(tmp_path) == ""
    keys = EncryptionKeyFile(tmp_path)
    keys.set_reencrypted("a")
    assert reencrypted_key_id(tmp_path) == "a"
    keys.set_reencrypted("")
    assert reencrypted_key_id(tmp_path) == ""
