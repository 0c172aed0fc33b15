"""A server uses a new certificate as soon as its files are replaced, with one worker and with two."""

import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.harness.certificates import Authority, create_authority
from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, running_server

WATCH = f"{MANAGEMENT}/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=60"


def served_serial_number(server: Server, ca_file: Path) -> int:
    context = ssl.create_default_context(cafile=ca_file)
    address = "127.0.0.1", urlsplit(server.url).port or 0
    with (
        socket.create_connection(address, TIMEOUT_SECONDS) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as connection,
    ):
        return int(str((connection.getpeercert() or {})["serialNumber"]), 16)


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 3 * TIMEOUT_SECONDS
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def read_serial_number(file: Path) -> int:
    return int(ssl._ssl._test_decode_cert(str(file))["serialNumber"], 16)  # type: ignore[attr-defined]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return create_authority(tmp_path / "ca")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_replaced_certificate_is_used_by_all_workers_and_a_watch_goes_on(
    tmp_path: Path, authority: Authority, workers: int
) -> None:
    cert, key = authority.issue("server", "127.0.0.1")
    files = {"tls_cert": str(cert), "tls_key": str(key), "tls_ca": str(authority.file)}
    with running_server(tmp_path / "data", workers=workers, **files) as server:
        old = read_serial_number(cert)
        assert served_serial_number(server, authority.file) == old
        with server.client() as client, client.stream("GET", WATCH) as watch:
            events = watch.iter_lines()
            cert.with_name("other.crt").write_bytes(b"damaged")
            cert.with_name("other.crt").replace(cert)  # not usable: the old one stays in use
            time.sleep(3)
            assert served_serial_number(server, authority.file) == old
            authority.issue("server", "127.0.0.1")
            new = read_serial_number(cert)
            assert new != old
            eventually(lambda: {served_serial_number(server, authority.file) for _ in range(8)} == {new})
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "seen"}}
            with server.client() as other:
                assert other.post(WATCH.partition("?")[0], json=body).status_code == 201
            assert any('"seen"' in line for line in events)
        assert "the previous ones stay in use" in server.log.read_text()
        assert server.stop() == 0
