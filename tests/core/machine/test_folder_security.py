"""Tests of `core/machine/folder_security.py`: the server does not start with a data folder that others can access."""

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairlead.core.files import FileProblem, ensure_private_folder, write_file
from fairlead.core.machine import folder_security
from fairlead.core.machine.folder_security import is_readable_by_others, require_private, require_tamper_proof

OTHER_UID = 54_321


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return ensure_private_folder(tmp_path / "above" / "data")


@pytest.fixture(autouse=True)
def _clear_group_cache() -> None:
    folder_security._has_other_members.cache_clear()


def add_group_members(monkeypatch: pytest.MonkeyPatch, *members: str) -> None:
    """Every group has these members, and it is no user's primary group."""
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_mem=list(members)))
    monkeypatch.setattr(pwd, "getpwall", list)


def change_owner(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the path to another user. Without root permissions, changes the user of this process instead."""
    if os.geteuid() == 0:
        os.chown(path, OTHER_UID, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: OTHER_UID)


def find_problems(folder: Path) -> list[str]:
    with pytest.raises(FileProblem) as error:
        require_private(folder)
    return str(error.value).splitlines()


def test_a_folder_created_by_the_server_is_accepted(folder: Path) -> None:
    write_file(folder / "encryption.keys", b"")
    write_file(ensure_private_folder(folder / "tls") / "ca.crt", b"", mode=0o644)
    require_private(folder)


def test_a_world_writable_folder_is_rejected_with_the_command_to_run(folder: Path) -> None:
    folder.chmod(0o707)
    assert find_problems(folder) == [f"{folder}: other users may write to it; run: chmod o-w {folder}"]


def test_the_sticky_bit_does_not_make_a_data_folder_private(folder: Path) -> None:
    folder.chmod(0o1777)
    assert "other users may write to it" in find_problems(folder)[0]


def test_a_writable_parent_is_rejected_unless_its_sticky_bit_is_set(folder: Path) -> None:
    folder.parent.chmod(0o707)
    assert find_problems(folder) == [
        f"{folder.parent}: other users may write to it; run: chmod o-w {folder.parent}",
    ]
    folder.parent.chmod(0o1777)
    require_private(folder)


@pytest.mark.parametrize("mode", [0o720, 0o770, 0o775])
def test_access_of_a_group_with_other_members_is_rejected(
    folder: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_security, "_has_other_members", lambda group: True)
    folder.chmod(mode)
    assert find_problems(folder) == [f"{folder}: other users may write to it; run: chmod g-w {folder}"]


def test_access_of_a_group_without_other_members_is_accepted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_security, "_has_other_members", lambda group: False)
    folder.chmod(0o2770)
    write_file(folder / "encryption.keys", b"", mode=0o660)
    require_private(folder)


@pytest.mark.parametrize(("members", "others"), [((), False), (("root",), False), (("mallory",), True)])
def test_other_members_of_a_group_are_found(
    members: tuple[str, ...], others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_group_members(monkeypatch, *members)
    assert folder_security._has_other_members(OTHER_UID) is others


def test_a_user_with_this_primary_group_is_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_mem=[]))
    mallory = SimpleNamespace(pw_name="mallory", pw_uid=OTHER_UID + 1, pw_gid=OTHER_UID)
    monkeypatch.setattr(pwd, "getpwall", lambda: [mallory])
    assert folder_security._has_other_members(OTHER_UID)


def test_a_folder_of_another_user_is_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_owner(folder, monkeypatch)
    assert any(line.startswith(f"{folder}: belongs to ") and "run: chown -R " in line for line in find_problems(folder))


def test_a_folder_below_one_of_another_user_is_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_owner(folder.parent, monkeypatch)
    assert any(f"{folder.parent}: belongs to " in line and "elsewhere" in line for line in find_problems(folder))


@pytest.mark.parametrize(
    "name",
    [
        "encryption.keys",
        "seal.keys",
        "agent-config.json",
        "pepper.key",
        "admin.kubeconfig",
        "fairlead.db",
        "audit.log",
        "tls/ca.key",
    ],
)
def test_secret_files_that_others_can_read_are_rejected(folder: Path, name: str) -> None:
    path = folder / name
    ensure_private_folder(path.parent)
    write_file(path, b"", mode=0o604)
    assert find_problems(folder) == [f"{path}: other users may read it; run: chmod 600 {path}"]


@pytest.mark.parametrize("name", ["encryption.keys", "fairlead.db", "notes.txt", "tls/ca.crt"])
def test_files_that_others_can_write_are_rejected(folder: Path, name: str) -> None:
    path = folder / name
    ensure_private_folder(path.parent)
    write_file(path, b"", mode=0o602)
    assert find_problems(folder) == [f"{path}: other users may write to it; run: chmod o-w {path}"]


def test_all_problems_are_reported_at_once(folder: Path) -> None:
    for name in ("encryption.keys", "pepper.key"):
        write_file(folder / name, b"", mode=0o604)
    folder.chmod(0o707)
    assert len(find_problems(folder)) == 3


def test_both_ends_of_a_symbolic_link_are_checked(folder: Path, tmp_path: Path) -> None:
    elsewhere = ensure_private_folder(tmp_path / "elsewhere" / "data")
    link = folder / "link"
    link.symlink_to(elsewhere)
    require_private(link)
    elsewhere.parent.chmod(0o707)
    assert find_problems(link)[0].startswith(f"{elsewhere.parent}: ")
    elsewhere.parent.chmod(0o700)
    folder.chmod(0o707)
    assert find_problems(link)[0].startswith(f"{folder}: ")


def test_the_target_of_a_symbolic_link_to_a_key_is_checked(folder: Path, tmp_path: Path) -> None:
    place = ensure_private_folder(tmp_path / "keys")
    write_file(place / "encryption.keys", b"")
    (folder / "encryption.keys").symlink_to(place / "encryption.keys")
    require_private(folder)
    place.chmod(0o707)
    assert find_problems(folder) == [f"{place}: other users may write to it; run: chmod o-w {place}"]
    place.chmod(0o700)
    (place / "encryption.keys").chmod(0o604)
    assert "other users may read it" in find_problems(folder)[0]
    (place / "encryption.keys").unlink()
    require_private(folder)


def test_a_key_provided_by_the_platform_can_be_readable_but_not_writable(tmp_path: Path) -> None:
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


def test_in_a_user_namespace_parents_can_belong_to_unmapped_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_security, "_has_unmapped_users", lambda: True)
    assert 65_534 in folder_security._trusted_uids(True) and 65_534 not in folder_security._trusted_uids(False)


def test_a_path_with_a_space_is_quoted_in_the_command(folder: Path) -> None:
    path = folder / "my seal.key"
    write_file(path, b"", mode=0o604)
    assert find_problems(folder) == [f"{path}: other users may read it; run: chmod 600 '{path}'"]


def test_a_volume_of_a_pod_may_be_world_writable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.chmod(0o2777)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert find_problems(folder) == [f"{folder}: other users may write to it; run: chmod o-w {folder}"]
    monkeypatch.setattr(Path, "is_mount", lambda path: path == folder)
    require_private(folder)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert len(find_problems(folder)) == 1


def test_a_key_in_a_volume_of_a_secret_is_accepted(tmp_path: Path) -> None:
    # As the kubelet mounts them: a sticky folder, a folder for each version, and two levels of symbolic links.
    volume = tmp_path / "tls"
    version = volume / "..2026_01_01"
    version.mkdir(parents=True)
    (version / "tls.key").write_text("")
    (volume / "..data").symlink_to(version.name)
    (volume / "tls.key").symlink_to("..data/tls.key")
    volume.chmod(0o3777)
    require_tamper_proof(volume / "tls.key")
    version.chmod(0o777)
    with pytest.raises(FileProblem, match="2026_01_01: other users may write"):
        require_tamper_proof(volume / "tls.key")
