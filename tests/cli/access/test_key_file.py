"""`fairlead key create` and `key rotate` with --output-file: the file is private, and complete or unchanged."""

import json
import os
import resource
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object, failure_status

KEYS = f"{M}/ownedaccesskeys"
COMMANDS = (("key", "create", "--ttl", "1d"), ("key", "rotate", "ci"))


@pytest.fixture
def key_cli(user: CliFixture) -> CliFixture:
    key = build_object("ci", spec={"user": "alice", "key": "fairlead_new-value"}, status={})
    user.fake.on("POST", KEYS, (201, key))
    user.fake.on("POST", f"{KEYS}/ci/rotate", (201, key))
    return user


def created_keys(cli: CliFixture) -> list[Any]:
    return cli.fake.requests_to("POST", KEYS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_value_is_written_to_a_private_file(key_cli: CliFixture, tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "keys" / "ci.key"
    file.parent.mkdir()
    file.write_text("an old key")
    file.chmod(0o644)
    result = key_cli.run(*command, "--output-file", str(file))
    assert (result.code, result.out) == (0, ""), result.err
    assert f"the value of the key ci is in {file}; it is not shown again" in result.err
    assert file.read_text() == "fairlead_new-value\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in file.parent.iterdir()] == ["ci.key"]


def test_the_whole_object_can_be_written(key_cli: CliFixture, tmp_path: Path) -> None:
    file = tmp_path / "ci.json"
    assert key_cli.run("key", "create", "-o", "json", "--output-file", str(file)).out == ""
    assert json.loads(file.read_bytes())["spec"]["key"] == "fairlead_new-value"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dash_is_stdout(key_cli: CliFixture, command: tuple[str, ...]) -> None:
    result = key_cli.run(*command, "--output-file", "-")
    assert (result.code, result.out) == (0, "fairlead_new-value\n")
    assert "it is shown only once" in result.err


def test_a_command_that_fails_leaves_the_old_file_unchanged(key_cli: CliFixture, tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "ci.key").write_text("an old key")
    key_cli.fake.on("POST", KEYS, (403, failure_status(403, "Forbidden", "not yours")))
    assert key_cli.run("key", "create", "--output-file", str(folder / "ci.key")).code == 1
    assert [(each.name, each.read_text()) for each in folder.iterdir()] == [("ci.key", "an old key")]


def test_a_target_that_is_no_file_is_rejected_before_the_key_is_created(key_cli: CliFixture, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").touch()
    for target, problem in (
        (tmp_path, "a directory; specify a file in it"),
        (tmp_path / "fifo", "not a regular file"),
        (tmp_path / "none" / "ci.key", f"{tmp_path / 'none'} is not a directory"),
        (tmp_path / "file" / "ci.key", f"{tmp_path / 'file'} is not a directory"),
    ):
        result = key_cli.run("key", "create", "--output-file", str(target))
        assert (result.code, f"fairlead: {target}: {problem}" in result.err) == (2, True), result.err
    assert not created_keys(key_cli)


def test_only_own_symbolic_links_are_followed(key_cli: CliFixture, tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    assert key_cli.run("key", "create", "--output-file", str(link)).code == 0
    assert (link.is_symlink(), target.read_text()) == (True, "fairlead_new-value\n")
    target.unlink()
    owner = link.lstat().st_uid
    key_cli.patches.setattr(os, "geteuid", lambda: owner + 1)
    result = key_cli.run("key", "create", "--output-file", str(link))
    assert (result.code, "a symbolic link of another user" in result.err) == (2, True)
    assert (target.exists(), len(created_keys(key_cli))) == (False, 1)


def test_a_key_that_cannot_be_written_at_last_is_not_lost(key_cli: CliFixture, tmp_path: Path) -> None:
    def fail(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    key_cli.patches.setattr(os, "replace", fail)
    result = key_cli.run("key", "create", "--output-file", str(tmp_path / "ci.key"))
    assert (result.code, result.out) == (1, "fairlead_new-value\n")
    assert "No space left on device; the key is on stdout instead" in result.err
    assert not list(tmp_path.glob("*ci.key*"))


@pytest.mark.parametrize("limit", [0, 4])
def test_a_key_is_not_lost_on_a_full_disk(key_cli: CliFixture, tmp_path: Path, limit: int) -> None:
    """The limit of the size of files stands for the disk: the key is written in part or not at all."""
    file = tmp_path / "keys" / "ci.key"
    file.parent.mkdir()
    file.write_text("an old key")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        result = key_cli.run("key", "create", "--output-file", str(file))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (result.code, result.out) == (1, "fairlead_new-value\n"), result.err
    assert f"fairlead: {file}: File too large; the key is on stdout instead" in result.err
    assert [(each.name, each.read_text()) for each in file.parent.iterdir()] == [("ci.key", "an old key")]


def test_a_file_of_another_user_is_rejected_before_the_key_is_created(key_cli: CliFixture, tmp_path: Path) -> None:
    file = tmp_path / "ci.key"
    file.write_text("of another user")
    owner = file.stat().st_uid
    key_cli.patches.setattr(os, "geteuid", lambda: owner + 1)
    result = key_cli.run("key", "create", "--output-file", str(file))
    assert (result.code, f"fairlead: {file}: a file of another user" in result.err) == (2, True), result.err
    assert (file.read_text(), len(created_keys(key_cli))) == ("of another user", 0)


def test_a_link_that_is_created_meanwhile_is_not_followed(key_cli: CliFixture, tmp_path: Path) -> None:
    folder, file, other = tmp_path / "folder", tmp_path / "folder" / "ci.key", tmp_path / "other"
    folder.mkdir()
    (tmp_path / "to-folder").symlink_to(folder)
    real_lstat = Path.lstat

    def create_link_afterwards(path: Path) -> os.stat_result:
        try:
            return real_lstat(path)
        finally:
            if path.name == "ci.key" and not os.path.islink(file):
                file.symlink_to(other)

    key_cli.patches.setattr(Path, "lstat", create_link_afterwards)
    result = key_cli.run("key", "create", "--output-file", str(tmp_path / "to-folder" / "ci.key"))
    assert (result.code, "not a regular file" in result.err) == (2, True), result.err
    assert not other.exists() and not created_keys(key_cli)
