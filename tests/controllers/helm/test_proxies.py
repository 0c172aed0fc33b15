"""Tests of `fairlead.controllers.helm.proxies`, and of downloads through a real proxy."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead.controllers.helm.proxies import InvalidProxy, find_proxy
from tests.controllers.helm.chart_hosts import ALLOWED, INSIDE, INTERNAL, REPOSITORY, VC, Hosts, https_chart, open_hosts
from tests.fake_cluster.chart_repository import redirect_to

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("host", "no_proxy", "expected"),
    [
        ("charts.example", "", PROXY),
        ("charts.example", "charts.example", ""),
        ("charts.example", "other.example, example", ""),
        ("charts.example", ".example", ""),
        ("charts.example", "*.example", ""),
        ("charts.example", "*", ""),
        ("charts.example", "charts.example:443", ""),
        ("charts.example", "charts.example:444", PROXY),
        ("charts.example", ".charts.example", PROXY),
        ("charts.example", "arts.example", PROXY),
        ("charts.example", "10.0.0.0/8,x/y,[,:", PROXY),
        ("10.1.2.3", "10.0.0.0/8", ""),
        ("10.1.2.3", "10.1.2.3", ""),
        ("10.1.2.3", "10.1.2.3:443", ""),
        ("10.1.2.3", "10.1.2", PROXY),
        ("fd00::1", "[fd00::1]:443", ""),
        ("fd00::1", "fd00::/8", ""),
        ("fd00::1", "fd00::1", ""),
        ("localhost", "", ""),
        ("127.0.0.1", "", ""),
    ],
)
def test_hosts_in_no_proxy_are_reached_directly(host: str, no_proxy: str, expected: str) -> None:
    for names in (("HTTPS_PROXY", "NO_PROXY"), ("https_proxy", "no_proxy")):
        environment = dict(zip(names, (PROXY, no_proxy), strict=True))
        assert find_proxy(environment, host, 443) == expected


def test_the_proxy_for_http_is_not_used() -> None:
    assert find_proxy({"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}, "charts.example", 443) == ""


def test_a_proxy_may_be_written_without_a_scheme() -> None:
    assert find_proxy({"HTTPS_PROXY": "proxy.example:3128"}, "charts.example", 443) == PROXY


@pytest.mark.parametrize("proxy", ["socks5://proxy.example", "http://", "http://a:b:c", "file:///x"])
def test_a_proxy_that_cannot_be_used_is_reported(tmp_path: Path, proxy: str) -> None:
    with pytest.raises(InvalidProxy):
        find_proxy({"HTTPS_PROXY": proxy}, "charts.example", 443)
    with open_hosts(tmp_path) as hosts:
        error = hosts.fail(https_chart(hosts.start(REPOSITORY, VC)), HTTPS_PROXY=proxy)
    assert "HTTPS_PROXY" in error.message


@contextmanager
def running_proxy(port: int, answer: bytes) -> Iterator[tuple[str, list[str]]]:
    """A proxy that connects to 127.0.0.1 at that port, whatever it is asked for. Yields its URL, and the requests."""
    requests: list[str] = []

    def serve(client: socket.socket) -> None:
        with client, socket.create_connection((ALLOWED, port)) as server:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4096)
            requests.append(head.decode())
            client.sendall(answer)
            if b" 200 " in answer:
                copying = threading.Thread(target=copy, args=(server, client), daemon=True)
                copying.start()
                copy(client, server)
                copying.join()

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    with socket.create_server((ALLOWED, 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://user:secret@{ALLOWED}:{listener.getsockname()[1]}", requests
        listener.shutdown(socket.SHUT_RDWR)


def copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while content := source.recv(65536):
            target.sendall(content)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other side has closed


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with open_hosts(tmp_path) as opened:
        yield opened


def test_a_download_goes_through_the_proxy(hosts: Hosts) -> None:
    repository = hosts.start(REPOSITORY, VC)
    with running_proxy(repository.port, b"HTTP/1.1 200 OK\r\n\r\n") as (url, requests):
        hosts.fetch(https_chart(repository), HTTPS_PROXY=url)
    assert [each.splitlines()[0] for each in requests] == [f"CONNECT {REPOSITORY}:{repository.port} HTTP/1.1"] * 2
    assert repository.paths == ["/index.yaml", "/vc-1.2.3.tgz"]


def test_t22_the_proxy_gets_no_request_for_an_internal_address(hosts: Hosts) -> None:
    hosts.names[INSIDE] = [INTERNAL]
    repository = hosts.start(REPOSITORY, VC, responses={"/index.yaml": redirect_to(f"https://{INSIDE}/")})
    with running_proxy(repository.port, b"HTTP/1.1 200 OK\r\n\r\n") as (url, requests):
        assert hosts.fail(https_chart(repository), HTTPS_PROXY=url).reason == "RepositoryAddressBlocked"
    assert len(requests) == 1


def test_a_proxy_that_refuses_is_reported(hosts: Hosts) -> None:
    repository = hosts.start(REPOSITORY, VC)
    with running_proxy(repository.port, b"HTTP/1.1 403 Forbidden\r\n\r\n") as (url, _):
        error = hosts.fail(https_chart(repository), HTTPS_PROXY=url)
    assert "the proxy in HTTPS_PROXY did not connect" in error.message and "secret" not in error.message
