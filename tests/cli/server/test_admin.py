"""`fairlead admin`: `reset` requests a new key in the data folder, and waits for the server; others print its files."""

import threading
from pathlib import Path

import pytest

from fairlead.cli.server import admin
from fairlead.client.admin_kubeconfig import KUBECONFIG_NAME, write_admin_kubeconfig
from fairlead.client.admin_reset import claim_request, finish_request, is_pending
from tests.harness.cli import CliFixture

URL = "https://127.0.0.1:8443"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_admin_kubeconfig(tmp_path / KUBECONFIG_NAME, URL, None, "fairlead_old")
    return tmp_path


def serve(data: Path, key: str | None) -> threading.Thread:
    """A server that serves one request: with a new key, or without success."""

    def run() -> None:
        while claim_request(data) is None:
            pass
        if key is not None:
            write_admin_kubeconfig(data / KUBECONFIG_NAME, URL, None, key)
        finish_request(data)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_the_new_key_is_printed_alone_on_stdout(cli: CliFixture, data: Path) -> None:
    thread = serve(data, "fairlead_new")
    result = cli.run("admin", "reset", "--data", str(data), "--yes")
    thread.join()
    assert (result.code, result.out) == (0, "fairlead_new\n")
    assert str(data / KUBECONFIG_NAME) in result.err and "24 hours" in result.err


def test_a_server_that_fails_is_an_error(cli: CliFixture, data: Path) -> None:
    thread = serve(data, None)
    result = cli.run("admin", "reset", "--data", str(data), "--yes")
    thread.join()
    assert result.code == 1 and "did not replace the key" in result.err and not result.out


def test_without_a_server_the_request_stays_for_the_next_start(cli: CliFixture, data: Path) -> None:
    cli.patches.setattr(admin, "WAIT_SECONDS", 0.0)
    result = cli.run("admin", "reset", "--data", str(data), "--yes")
    assert (result.code, result.out) == (0, "") and "at its next start" in result.err
    assert is_pending(data)


def test_it_needs_a_confirmation(cli: CliFixture, data: Path) -> None:
    result = cli.run("admin", "reset", "--data", str(data))
    assert result.code == 2 and "add --yes" in result.err and not is_pending(data)


def test_a_folder_that_does_not_exist_is_an_error(cli: CliFixture, tmp_path: Path) -> None:
    result = cli.run("admin", "reset", "--data", str(tmp_path / "missing"), "--yes")
    assert result.code == 1 and "no such folder" in result.err


def test_the_kubeconfig_of_the_administrator_is_printed_as_it_is(cli: CliFixture, data: Path) -> None:
    result = cli.run("admin", "kubeconfig", "--data", str(data))
    assert (result.code, result.err) == (0, "")
    assert result.out == (data / KUBECONFIG_NAME).read_text()


def test_the_ca_is_printed_the_one_of_the_server_or_the_given_one(cli: CliFixture, data: Path) -> None:
    (data / "tls").mkdir()
    (data / "tls" / "ca.crt").write_text("own\n")
    assert cli.run("admin", "ca", "--data", str(data)).out == "own\n"
    (data / "given.crt").write_text("given\n")
    given = {"FAIRLEAD_TLS_CERT": "/c", "FAIRLEAD_TLS_KEY": "/k"}
    result = cli.run("admin", "ca", "--data", str(data), FAIRLEAD_TLS_CA=str(data / "given.crt"), **given)
    assert (result.code, result.out) == (0, "given\n")
    result = cli.run("admin", "ca", "--data", str(data), **given)
    assert (result.code, result.out) == (1, "") and "tls_ca is not set" in result.err


@pytest.mark.parametrize("command", ["kubeconfig", "ca"])
def test_a_file_or_folder_that_is_missing_is_an_error(cli: CliFixture, tmp_path: Path, command: str) -> None:
    result = cli.run("admin", command, "--data", str(tmp_path))
    assert (result.code, result.out) == (1, "") and "no such file; a server writes it at its first start" in result.err
    result = cli.run("admin", command, "--data", str(tmp_path / "none"))
    assert (result.code, result.out) == (1, "") and "no such folder" in result.err
