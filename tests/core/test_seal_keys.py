"""Where the keys live: the file, the variable, and changes to the file that lose no key."""

import base64
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairlead.core.crypto.encryption import Keyring
from fairlead.core.crypto.key_file import VARIABLE, SealKeys, existing, forget, resealed_under, rotate
from fairlead.core.files import FileProblem

A, B = base64.b64encode(bytes(32)).decode(), base64.b64encode(bytes(range(32))).decode()


def ids(keyring: Keyring | None) -> list[str]:
    assert keyring is not None
    return [key.id for key in keyring.keys]


def test_the_first_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    assert SealKeys(tmp_path).read() is None
    made = SealKeys(tmp_path).make()
    again = SealKeys(tmp_path).make()
    assert made.keys == again.keys
    assert len(made.keys) == 1
    assert stat.S_IMODE((tmp_path / "seal.keys").stat().st_mode) == 0o600


def test_two_installations_have_different_keys(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    one, two = (SealKeys(folder).make().keys[0].secret for folder in folders)
    assert one != two


@pytest.mark.parametrize("text", [f"b {B} a {A}", f"b {B}\na {A}\n", f"# two keys\n\n  b {B}\r\n\ta   {A}"])
def test_the_variable_holds_pairs_and_no_key_is_written(text: str, tmp_path: Path) -> None:
    keys = SealKeys(tmp_path, text)
    keyring = keys.read()
    assert ids(keyring) == ["b", "a"]
    assert not keys.changed()
    assert list(tmp_path.iterdir()) == []
    assert VARIABLE in keys.source


def test_the_variable_wins_over_the_file_and_an_empty_one_does_not(tmp_path: Path) -> None:
    made = SealKeys(tmp_path).make()
    assert ids(SealKeys(tmp_path, f"a {A}").read()) == ["a"]
    assert ids(SealKeys(tmp_path, " \n").read()) == [made.active]


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
def test_what_is_not_pairs_is_refused_without_quoting_it(text: str, tmp_path: Path) -> None:
    for keys in (SealKeys(tmp_path, text), SealKeys(tmp_path)):
        (tmp_path / "seal.keys").write_text(text)
        with pytest.raises(FileProblem) as caught:
            keys.read()
        assert str(caught.value).startswith(f"{keys.source}: ")
        assert "canary" not in str(caught.value)
        assert A[:10] not in str(caught.value)


def test_a_change_of_the_file_is_noticed_once_it_has_not_been_read(tmp_path: Path) -> None:
    keys = SealKeys(tmp_path)
    keys.make()
    assert not keys.changed()
    rotate(tmp_path)
    assert keys.changed()
    assert len(ids(keys.read())) == 2
    assert not keys.changed()
    (tmp_path / "seal.keys").unlink()
    assert keys.changed()
    assert keys.read() is None
    assert not keys.changed()


def test_rotation_puts_a_new_key_first_and_keeps_the_others(tmp_path: Path) -> None:
    first = SealKeys(tmp_path).make().keys
    second = rotate(tmp_path)
    third = rotate(tmp_path)
    assert second[1:] == list(first)
    assert third[1:] == second
    assert existing(tmp_path) == third
    assert len({key.secret for key in third}) == 3


def test_rotations_at_the_same_time_lose_no_key(tmp_path: Path) -> None:
    SealKeys(tmp_path).make()
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: rotate(tmp_path), range(16)))
    assert {keys[0] for keys in results} < set(existing(tmp_path))
    assert len(existing(tmp_path)) == 17


def test_a_key_is_forgotten_once_everything_is_sealed_under_the_active_one(tmp_path: Path) -> None:
    keys = SealKeys(tmp_path)
    old = keys.make().active
    keys.mark(old)
    new = rotate(tmp_path)[0].id
    with pytest.raises(FileProblem, match=f"{old} may still be needed"):
        forget(tmp_path, old)
    keys.mark(new)
    assert [key.id for key in forget(tmp_path, old)] == [new]
    assert [key.id for key in existing(tmp_path)] == [new]


def test_a_key_that_may_be_needed_is_forgotten_by_force(tmp_path: Path) -> None:
    old = SealKeys(tmp_path).make().active
    rotate(tmp_path)
    assert old not in [key.id for key in forget(tmp_path, old, force=True)]


def test_the_active_key_is_never_forgotten_nor_one_that_is_not_there(tmp_path: Path) -> None:
    SealKeys(tmp_path).make()
    active, *_ = rotate(tmp_path)
    before = existing(tmp_path)
    with pytest.raises(FileProblem, match="is the active key; create another one"):
        forget(tmp_path, active.id, force=True)
    with pytest.raises(FileProblem, match=f"has no key other; it has {active.id}, "):
        forget(tmp_path, "other", force=True)
    assert existing(tmp_path) == before


def test_a_folder_without_keys_is_left_without(tmp_path: Path) -> None:
    for act in (lambda: rotate(tmp_path), lambda: forget(tmp_path, "x")):
        with pytest.raises(FileProblem, match="no such file; pass the server's data folder"):
            act()
    with pytest.raises(FileProblem, match="pass the server's data folder"):
        rotate(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_the_mark_can_be_set_and_taken_away(tmp_path: Path) -> None:
    assert resealed_under(tmp_path) == ""
    keys = SealKeys(tmp_path)
    keys.mark("a")
    assert resealed_under(tmp_path) == "a"
    keys.mark("")
    assert resealed_under(tmp_path) == ""
