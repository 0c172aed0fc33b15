"""server.http.request: ambiguous requests are rejected, and requests of real clients are not."""

import pytest

from fairlead.server.http import request
from fairlead.server.http.request import HOST_CACHE_SIZE, MAX_HEADER_BYTES, are_headers_too_large, find_ambiguity

HOST = (b"host", b"fairlead.example.com:8443")


def find_problem(*pairs: tuple[bytes, bytes], method: str = "GET", path: str = "/version", version: str = "1.1") -> str:
    return find_ambiguity(method, path, version, list(pairs), dict(reversed(pairs)))


@pytest.mark.parametrize(
    "host", [b"a", b"a:1", b"10.0.0.1:8443", b"[::1]:8443", b"[fe80::1]", b"a_b.example", b"a:", b"xn--a.example"]
)
def test_requests_of_real_clients_are_accepted(host: bytes) -> None:
    assert find_problem((b"host", host)) == ""
    assert (
        find_problem((b"host", host), (b"accept", b"a"), (b"accept", b"b"), (b"content-length", b"1"), method="POST")
        == ""
    )


@pytest.mark.parametrize("method", ["GET", "PROPFIND", "BREW", "M-SEARCH"])
def test_unknown_methods_are_not_a_framing_problem(method: str) -> None:
    assert find_problem(HOST, method=method) == ""


@pytest.mark.parametrize("method", ["get", "GE!T", "G1", "", "-", "G" * 33, "CONNECT"])
def test_an_invalid_method_is_rejected(method: str) -> None:
    assert "unsupported HTTP method" in find_problem(HOST, method=method)


@pytest.mark.parametrize("name", [b"host", b"content-length", b"transfer-encoding"])
def test_headers_about_framing_and_routing_must_not_be_repeated(name: bytes) -> None:
    value = {b"host": b"a", b"content-length": b"1", b"transfer-encoding": b"chunked"}[name]
    assert "must not be repeated" in find_problem(HOST, (name, value), (name, value))


@pytest.mark.parametrize("value", [b"gzip, chunked", b"chunked, chunked", b"identity", b"xchunked", b""])
def test_only_chunked_transfer_encoding_is_supported(value: bytes) -> None:
    assert "the only supported transfer encoding is chunked" in find_problem(
        HOST, (b"transfer-encoding", value), method="POST"
    )
    assert find_problem(HOST, (b"transfer-encoding", b"Chunked"), method="POST") == ""


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", "*"), ("GET", "a:443"), ("OPTIONS", "x")])
def test_a_target_must_be_a_path(method: str, path: str) -> None:
    assert "begins with a slash" in find_problem(HOST, method=method, path=path)
    assert find_problem(HOST, method="OPTIONS", path="*") == ""


@pytest.mark.parametrize("host", [b"a b", b"a/b", b"a@b", b"a,b", b"a:1:2", b"[::1", b"a:123456", b"a\xff", b"a?b"])
def test_an_invalid_host_is_rejected(host: bytes) -> None:
    assert "not a valid host name" in find_problem((b"host", host))


def test_http_1_1_requires_a_host_and_other_versions_do_not() -> None:
    assert "missing" in find_problem() and "missing" in find_problem((b"host", b""))
    assert find_problem(version="1.0") == find_problem(version="2") == ""


def test_the_cache_of_valid_hosts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    valid_hosts = set[bytes]()
    monkeypatch.setattr(request, "_valid_hosts", valid_hosts)
    for number in range(HOST_CACHE_SIZE + 10):
        assert find_problem((b"host", b"h%d" % number)) == ""
    assert len(valid_hosts) == HOST_CACHE_SIZE


def test_the_request_line_and_all_headers_count_for_their_limit() -> None:
    rest = MAX_HEADER_BYTES - len("/version") - len(b"host" + b"a" + b"x-long") - 2 * 4
    assert not are_headers_too_large("/version", [(b"host", b"a"), (b"x-long", b"x" * rest)])
    assert are_headers_too_large("/version?", [(b"host", b"a"), (b"x-long", b"x" * rest)])
    assert are_headers_too_large("/version", [(b"host", b"a"), (b"x-long", b"x" * rest), (b"y", b"")])
