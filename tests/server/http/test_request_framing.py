"""What could be read in two ways is named, and what real clients send is not."""

import pytest

from fairlead.server.http import request
from fairlead.server.http.request import HOST_CACHE_SIZE, find_ambiguity

Pairs = list[tuple[bytes, bytes]]
HOST = (b"host", b"fairlead.example.com:8443")


def fault(*pairs: tuple[bytes, bytes], method: str = "GET", path: str = "/version", version: str = "1.1") -> str:
    return find_ambiguity(method, path, version, list(pairs), dict(reversed(pairs)))


@pytest.mark.parametrize(
    "host", [b"a", b"a:1", b"10.0.0.1:8443", b"[::1]:8443", b"[fe80::1]", b"a_b.example", b"a:", b"xn--a.example"]
)
def test_requests_of_real_clients_are_in_order(host: bytes) -> None:
    assert fault((b"host", host)) == ""
    assert fault((b"host", host), (b"accept", b"a"), (b"accept", b"b"), (b"content-length", b"1"), method="POST") == ""


@pytest.mark.parametrize("method", ["GET", "PROPFIND", "BREW", "M-SEARCH"])
def test_methods_that_nobody_knows_are_for_others_to_answer(method: str) -> None:
    assert fault(HOST, method=method) == ""


@pytest.mark.parametrize("method", ["get", "GE!T", "G1", "", "-", "G" * 33, "CONNECT"])
def test_what_is_no_method_is_refused(method: str) -> None:
    assert "unsupported HTTP method" in fault(HOST, method=method)


@pytest.mark.parametrize("name", [b"host", b"content-length", b"transfer-encoding"])
def test_what_says_where_a_request_goes_and_ends_comes_once(name: bytes) -> None:
    value = {b"host": b"a", b"content-length": b"1", b"transfer-encoding": b"chunked"}[name]
    assert "must not be repeated" in fault(HOST, (name, value), (name, value))


@pytest.mark.parametrize("value", [b"gzip, chunked", b"chunked, chunked", b"identity", b"xchunked", b""])
def test_only_chunks_are_understood(value: bytes) -> None:
    assert "the only supported transfer encoding is chunked" in fault(
        HOST, (b"transfer-encoding", value), method="POST"
    )
    assert fault(HOST, (b"transfer-encoding", b"Chunked"), method="POST") == ""


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", "*"), ("GET", "a:443"), ("OPTIONS", "x")])
def test_a_target_is_a_path(method: str, path: str) -> None:
    assert "begins with a slash" in fault(HOST, method=method, path=path)
    assert fault(HOST, method="OPTIONS", path="*") == ""


@pytest.mark.parametrize("host", [b"a b", b"a/b", b"a@b", b"a,b", b"a:1:2", b"[::1", b"a:123456", b"a\xff", b"a?b"])
def test_a_host_is_a_host(host: bytes) -> None:
    assert "not a valid host name" in fault((b"host", host))


def test_http_1_1_has_a_host_and_others_may_not() -> None:
    assert "missing" in fault() and "missing" in fault((b"host", b""))
    assert fault(version="1.0") == fault(version="2") == ""


def test_hosts_that_somebody_makes_up_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    known = set[bytes]()
    monkeypatch.setattr(request, "_valid_hosts", known)
    for number in range(HOST_CACHE_SIZE + 10):
        assert fault((b"host", b"h%d" % number)) == ""
    assert len(known) == HOST_CACHE_SIZE
