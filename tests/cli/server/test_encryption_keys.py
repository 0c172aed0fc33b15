"""fairlead.cli.server.encryption_keys: `fairlead encryption-key` with its effect on the key file, and its output."""

import base64
import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.cli import make_app
from fairlead.core.crypto.encryption import KEYS_VARIABLE, EncryptionKeyFile, read_keys

SECRET = base64.b64encode(b"canary-canary-canary-canary-cana").decode()


def run_fairlead(*arguments: str, **variables: str) -> tuple[int, str]:
    result = CliRunner().invoke(make_app(), arguments, env={"COLUMNS": "200", "NO_COLOR": "1", **variables})
    return result.exit_code, result.output


def run_encryption_key(folder: Path, *arguments: str) -> tuple[int, str]:
    return run_fairlead("encryption-key", *arguments, "--data", str(folder))


def read_key_ids(folder: Path) -> list[str]:
    return [key.id for key in read_keys(folder)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    EncryptionKeyFile(tmp_path).create()
    return tmp_path


def test_rotate_adds_an_active_key_and_prints_the_next_steps(data: Path) -> None:
    (old,) = read_key_ids(data)
    code, output = run_encryption_key(data, "rotate")
    new, older = read_key_ids(data)
    assert (code, older) == (0, old)
    assert output.startswith(f"{new} is now the active key, the first of 2 in {data}/encryption.keys\n")
    assert f"fairlead encryption-key forget {old} --data {data}\n" in output
    assert f"`fairlead encryption-key status --data {data}`" in output
    assert "separately from the backups of the database" in output
    assert stat.S_IMODE((data / "encryption.keys").stat().st_mode) == 0o600


def test_no_command_prints_a_key(data: Path) -> None:
    secrets = [key.secret for key in read_keys(data)]
    run_encryption_key(data, "rotate")
    secrets += [key.secret for key in read_keys(data)]
    output = "".join(
        run_encryption_key(data, *command)[1] for command in (["rotate"], ["status"], ["status", "--json"])
    )
    assert not any(base64.b64encode(secret).decode() in output for secret in secrets)


def test_status_lists_the_keys_and_whether_reencryption_is_complete(data: Path) -> None:
    run_encryption_key(data, "rotate")
    new, old = read_key_ids(data)
    head = f"{data}/encryption.keys, mode 0600\n  {new}  active\n  {old}  older\n"
    unfinished = f"Not everything in the store is encrypted with {new} yet; the server re-encrypts it.\n"
    assert run_encryption_key(data, "status") == (0, head + unfinished)
    EncryptionKeyFile(data).set_reencrypted(new)
    finished = f"Everything in the store is encrypted with {new}; it needs no older key.\n"
    assert run_encryption_key(data, "status") == (0, head + finished)


def test_status_can_print_json(data: Path) -> None:
    (only,) = read_key_ids(data)
    code, output = run_encryption_key(data, "status", "--json")
    expected = {"source": f"{data}/encryption.keys", "mode": "0600", "active": only, "older": []}
    assert (code, json.loads(output)) == (0, {**expected, "reencrypted": False})


def test_status_warns_about_a_file_that_others_may_read(data: Path) -> None:
    (data / "encryption.keys").chmod(0o644)
    assert (
        f"may be able to read that file. Restrict it: chmod 600 {data}/encryption.keys"
        in run_encryption_key(data, "status")[1]
    )


def test_forget_removes_an_older_key_once_it_is_not_needed(data: Path) -> None:
    run_encryption_key(data, "rotate")
    new, old = read_key_ids(data)
    code, output = run_encryption_key(data, "forget", old)
    assert (code, read_key_ids(data)) == (1, [new, old])
    assert f"{old} may still be needed" in output
    EncryptionKeyFile(data).set_reencrypted(new)
    code, output = run_encryption_key(data, "forget", old)
    assert (code, read_key_ids(data)) == (0, [new])
    assert output.startswith(f"deleted {old}; {data}/encryption.keys still has {new}\n")


def test_forget_with_force_skips_the_check_but_keeps_the_active_key(data: Path) -> None:
    run_encryption_key(data, "rotate")
    new, old = read_key_ids(data)
    assert run_encryption_key(data, "forget", old, "--force")[0] == 0
    code, output = run_encryption_key(data, "forget", new, "--force")
    assert (code, read_key_ids(data)) == (1, [new])
    assert output == (
        f"fairlead: {data}/encryption.keys: {new} is the active key; create another one with `fairlead encryption-key "
        "rotate` first\n"
    )


@pytest.mark.parametrize("command", [["rotate"], ["status"], ["forget", "x"]])
def test_a_folder_without_keys_is_reported_in_one_line(command: list[str], tmp_path: Path) -> None:
    advice = "no such file; pass the server's data folder, or start the server, which creates it"
    assert run_encryption_key(tmp_path, *command) == (1, f"fairlead: {tmp_path}/encryption.keys: {advice}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["rotate"], ["forget", "x"]])
def test_keys_in_the_environment_are_not_changed_in_the_file(command: list[str], data: Path) -> None:
    before = read_key_ids(data)
    code, output = run_fairlead("encryption-key", *command, "--data", str(data), **{KEYS_VARIABLE: f"mine {SECRET}"})
    assert (code, read_key_ids(data)) == (1, before)
    assert output.startswith(f"fairlead: {KEYS_VARIABLE} is set, so the keys come from it and not from a file; ")


def test_status_shows_the_ids_of_keys_in_the_environment(tmp_path: Path) -> None:
    keys = f"mine {SECRET} former {SECRET}"
    EncryptionKeyFile(tmp_path, keys).set_reencrypted("mine")
    code, output = run_fairlead("encryption-key", "status", "--data", str(tmp_path), **{KEYS_VARIABLE: keys})
    summary = "Everything in the store is encrypted with mine; it needs no older key."
    assert (code, output) == (0, f"{KEYS_VARIABLE}\n  mine  active\n  former  older\n{summary}\n")


def test_help_lists_the_commands_of_the_group() -> None:
    code, output = run_fairlead("encryption-key", "--help")
    assert code == 0
    assert all(f" {name} " in output for name in ("rotate", "status", "forget"))
