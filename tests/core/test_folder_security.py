"""A folder of secrets is its owner's alone, or the server does not start."""

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairlead.core import folder_security
from fairlead.core.files import FileProblem, ensure_private_folder, write_file
from fairlead.core.folder_security import is_readable_by_others, require_private, require_tamper_proof

OTHER = 54_321


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return ensure_private_folder(tmp_path / "above" / "data")


@pytest.fixture(autouse=True)
def _forget_groups() -> None:
    folder_security._has_other_members.cache_clear()


def shared_group(monkeypatch: pytest.MonkeyPatch, *members: str) -> None:
    """Every group has these members, and nobody has it as his own."""
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_mem=list(members)))
    monkeypatch.setattr(pwd, "getpwall", list)


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the path somebody else's; as an ordinary user, makes this process somebody else's."""
    if os.geteuid() == 0:
        os.chown(path, OTHER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: OTHER)


def problems(folder: Path) -> list[str]:
    with pytest.raises(FileProblem) as refused:
        require_private(folder)
    return str(refused.value).splitlines()


def test_a_folder_that_the_server_has_made_is_fine(folder: Path) -> None:
    write_file(folder / "encryption.keys", b"")
    write_file(ensure_private_folder(folder / "tls") / "ca.crt", b"", mode=0o644)
    require_private(folder)


def test_a_folder_that_everybody_may_write_to_is_refused_with_the_command_to_run(folder: Path) -> None:
    folder.chmod(0o707)
    assert problems(folder) == [f"{folder}: other users may write to it; run: chmod o-w {folder}"]


def test_the_sticky_bit_does_not_make_a_data_folder_private(folder: Path) -> None:
    folder.chmod(0o1777)
    assert "other users may write to it" in problems(folder)[0]


def test_a_folder_above_counts_too_unless_its_sticky_bit_is_set(folder: Path) -> None:
    folder.parent.chmod(0o707)
    assert problems(folder) == [
        f"{folder.parent}: other users may write to it; run: chmod o-w {folder.parent}",
    ]
    folder.parent.chmod(0o1777)
    require_private(folder)


@pytest.mark.parametrize("mode", [0o720, 0o770, 0o775])
def test_a_group_with_others_in_it_is_others(folder: Path, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_security, "_has_other_members", lambda group: True)
    folder.chmod(mode)
    assert problems(folder) == [f"{folder}: other users may write to it; run: chmod g-w {folder}"]


def test_a_group_of_ones_own_is_nobody_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_security, "_has_other_members", lambda group: False)
    folder.chmod(0o2770)
    write_file(folder / "encryption.keys", b"", mode=0o660)
    require_private(folder)


@pytest.mark.parametrize(("members", "others"), [((), False), (("root",), False), (("mallory",), True)])
def test_who_is_in_a_group(members: tuple[str, ...], others: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_group(monkeypatch, *members)
    assert folder_security._has_other_members(OTHER) is others


def test_whose_first_group_it_is_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_mem=[]))
    mallory = SimpleNamespace(pw_name="mallory", pw_uid=OTHER + 1, pw_gid=OTHER)
    monkeypatch.setattr(pwd, "getpwall", lambda: [mallory])
    assert folder_security._has_other_members(OTHER)


def test_a_folder_of_somebody_else_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_away(folder, monkeypatch)
    assert any(line.startswith(f"{folder}: belongs to ") and "run: chown -R " in line for line in problems(folder))


def test_a_folder_below_one_of_somebody_else_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_away(folder.parent, monkeypatch)
    assert any(f"{folder.parent}: belongs to " in line and "elsewhere" in line for line in problems(folder))


@pytest.mark.parametrize(
    "name",
    [
        "encryption.keys",
        "seal.keys",
        "agent-config.json",
        "knowledge.json",
        "pepper.key",
        "admin.kubeconfig",
        "fairlead.db",
        "audit.log",
        "tls/ca.key",
    ],
)
def test_files_with_secrets_in_them_are_for_nobody_else_to_read(folder: Path, name: str) -> None:
    path = folder / name
    ensure_private_folder(path.parent)
    write_file(path, b"", mode=0o604)
    assert problems(folder) == [f"{path}: other users may read it; run: chmod 600 {path}"]


@pytest.mark.parametrize("name", ["encryption.keys", "fairlead.db", "notes.txt", "tls/ca.crt"])
def test_files_that_others_may_write_to_are_refused(folder: Path, name: str) -> None:
    path = folder / name
    ensure_private_folder(path.parent)
    write_file(path, b"", mode=0o602)
    assert problems(folder) == [f"{path}: other users may write to it; run: chmod o-w {path}"]


def test_all_problems_are_told_at_once(folder: Path) -> None:
    for name in ("encryption.keys", "pepper.key"):
        write_file(folder / name, b"", mode=0o604)
    folder.chmod(0o707)
    assert len(problems(folder)) == 3


def test_of_a_symbolic_link_both_ends_count(folder: Path, tmp_path: Path) -> None:
    elsewhere = ensure_private_folder(tmp_path / "elsewhere" / "data")
    link = folder / "link"
    link.symlink_to(elsewhere)
    require_private(link)
    elsewhere.parent.chmod(0o707)
    assert problems(link)[0].startswith(f"{elsewhere.parent}: ")
    elsewhere.parent.chmod(0o700)
    folder.chmod(0o707)
    assert problems(link)[0].startswith(f"{folder}: ")


def test_a_key_behind_a_symbolic_link_is_looked_at_where_it_is(folder: Path, tmp_path: Path) -> None:
    place = ensure_private_folder(tmp_path / "keys")
    write_file(place / "encryption.keys", b"")
    (folder / "encryption.keys").symlink_to(place / "encryption.keys")
    require_private(folder)
    place.chmod(0o707)
    assert problems(folder) == [f"{place}: other users may write to it; run: chmod o-w {place}"]
    place.chmod(0o700)
    (place / "encryption.keys").chmod(0o604)
    assert "other users may read it" in problems(folder)[0]
    (place / "encryption.keys").unlink()
    require_private(folder)


def test_a_key_that_the_platform_provides_may_be_readable_but_not_writable(tmp_path: Path) -> None:
    place = ensure_private_folder(tmp_path / "tls")
    key = place / "tls.key"
    write_file(key, b"", mode=0o644)
    require_tamper_proof(key)
    assert is_readable_by_others(key)
    key.chmod(0o646)
    with pytest.raises(FileProblem, match="other users may write to it"):
        require_tamper_proof(key)
    key.chmod(0o600)
    assert not is_readable_by_others(key)
    place.chmod(0o707)
    with pytest.raises(FileProblem, match="other users may write to it"):
        require_tamper_proof(key)


def test_in_a_user_namespace_folders_above_may_be_of_whoever_is_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_security, "_has_unmapped_users", lambda: True)
    assert 65_534 in folder_security._trusted_uids(True) and 65_534 not in folder_security._trusted_uids(False)


def test_a_path_with_a_space_can_be_pasted(folder: Path) -> None:
    path = folder / "my seal.key"
    write_file(path, b"", mode=0o604)
    assert problems(folder) == [f"{path}: other users may read it; run: chmod 600 '{path}'"]
