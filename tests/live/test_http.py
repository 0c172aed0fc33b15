"""The server from outside, over both versions of HTTP and real TLS: who gets in, what is refused, and at what cost."""

import asyncio
import resource
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, TIMEOUT_SECONDS, Server, configmap, running

MEGABYTE = 1024 * 1024
SILENT_CONNECTIONS = 1_100
VERSIONS = pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that was started with few descriptors, as many systems do it, from a test that has enough of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    with running(tmp_path_factory.mktemp("http") / "data") as started:
        wanted = max(soft, SILENT_CONNECTIONS + 500)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
        yield started
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def exchange(server: Server, request: str | bytes, *more: bytes) -> tuple[int, bytes]:
    """Sends bytes as they are over HTTP/1.1; the status, 0 where there was no answer, and everything that came back."""
    with server.connect() as connection:
        try:
            for piece in (request.encode() if isinstance(request, str) else request, *more):
                connection.sendall(piece)
        except OSError:
            pass  # the server has closed already; what it said before that is there to be read
        answer = received(connection)
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0, answer


def received(connection: ssl.SSLSocket) -> bytes:
    """Everything up to the end of the connection."""
    answer = b""
    try:
        while piece := connection.recv(1 << 16):
            answer += piece
    except OSError:
        pass
    return answer


def head(method: str, path: str, *lines: str) -> str:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: server", "Connection: close", *lines, "", ""))


def signed(server: Server) -> str:
    return f"Authorization: Bearer {server.key}"


# --- both versions, and nothing but TLS


@VERSIONS
def test_every_verb_works_over_both_versions(server: Server, http2: bool) -> None:
    name = f"verbs-{http2}".lower()
    with server.client(http2=http2) as client:
        made = client.post(CONFIGMAPS, json=configmap(name, a="1"))
        assert made.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
        assert made.status_code == 201
        assert client.get(f"{CONFIGMAPS}/{name}").json() == made.json()
        assert client.put(f"{CONFIGMAPS}/{name}", json=configmap(name, a="2")).json()["data"] == {"a": "2"}
        patch = {"Content-Type": "application/merge-patch+json"}
        patched = client.patch(f"{CONFIGMAPS}/{name}", content=b'{"data":{"b":"3"}}', headers=patch)
        assert patched.json()["data"] == {"a": "2", "b": "3"}
        assert name in [item["metadata"]["name"] for item in client.get(CONFIGMAPS).json()["items"]]
        assert client.head(f"{CONFIGMAPS}/{name}").content == b""
        assert client.delete(f"{CONFIGMAPS}/{name}").json()["status"] == "Success"
        assert client.get(f"{CONFIGMAPS}/{name}").status_code == 404


def test_who_does_not_trust_the_authority_does_not_connect(server: Server) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{server.url}/version")


def test_nothing_is_told_in_the_clear(server: Server) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{server.url.replace('https', 'http')}/version")


@VERSIONS
def test_every_answer_has_an_audit_id_of_its_own(server: Server, http2: bool) -> None:
    with server.client(None, http2=http2) as client:
        ids = {client.get(path).headers["audit-id"] for path in ("/version", "/version", CONFIGMAPS, "/nowhere")}
    assert len(ids) == 4


# --- who gets in


@VERSIONS
@pytest.mark.parametrize("path", ["/version", "/healthz", "/livez", "/readyz"])
@pytest.mark.parametrize("mount", ["", MANAGEMENT])
def test_strangers_may_read_the_version_and_health(server: Server, mount: str, path: str, http2: bool) -> None:
    with server.client(None, http2=http2) as client:
        assert client.get(mount + path).status_code == 200
        assert client.post(mount + path).status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/",
        MANAGEMENT,
        f"{MANAGEMENT}/api",
        f"{MANAGEMENT}/apis",
        f"{MANAGEMENT}/api/v1",
        f"{MANAGEMENT}/openapi/v2",
        f"{MANAGEMENT}/openapi/v3",
        CONFIGMAPS,
        f"{CONFIGMAPS}?watch=1",
        f"{MANAGEMENT}/api/v1/secrets",
        "/metrics",
        "/debug",
        "/nowhere",
        f"{MANAGEMENT}/version/../api",
        f"{MANAGEMENT}/%76ersion/../api",
        "//version",
        "/version%00",
        "/version%2f",
        "/version;x",
        "*",
    ],
)
def test_strangers_may_not_even_know_what_else_there_is(server: Server, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "OPTIONS", "get"):
        status, answer = exchange(server, head(method, path))
        assert status in (400, 401), (method, answer)


@VERSIONS
@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer x",
        "bearer fairlead_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "Basic YWRtaW46YWRtaW4=",
        "Bearer " + "x" * 50_000,
    ],
)
def test_a_credential_that_is_none_is_401(server: Server, authorization: str, http2: bool) -> None:
    with server.client(None, http2=http2) as client:
        answer = client.get(CONFIGMAPS, headers={"Authorization": authorization})
    assert (answer.status_code, answer.json()["reason"]) == (401, "Unauthorized")


@VERSIONS
@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
def test_the_scheme_may_be_written_in_any_case(server: Server, scheme: str, http2: bool) -> None:
    with server.client(None, http2=http2) as client:
        assert client.get(CONFIGMAPS, headers={"Authorization": f"{scheme} {server.key}"}).status_code == 200


@pytest.mark.parametrize("second", [b"Bearer x", b"", b"Basic x"])
def test_two_credentials_are_none(server: Server, second: bytes) -> None:
    valid = signed(server).encode()
    for pair in ((valid, b"Authorization: " + second), (b"Authorization: " + second, valid), (valid, valid)):
        request = b"\r\n".join(
            (f"GET {CONFIGMAPS} HTTP/1.1\r\nHost: server\r\nConnection: close".encode(), *pair, b"", b"")
        )
        assert exchange(server, request)[0] == 401


@pytest.mark.parametrize("blank", ["", " ", "  \t ", "Bearer ", "Bearer  \t"])
def test_a_credential_of_blanks_is_none(server: Server, blank: str) -> None:
    assert exchange(server, head("GET", CONFIGMAPS, f"Authorization: {blank}"))[0] == 401


def test_headers_beyond_all_measure_are_refused_and_the_server_goes_on(server: Server) -> None:
    status, _ = exchange(server, head("GET", CONFIGMAPS, "Authorization: Bearer " + "x" * 200_000))
    assert status in (0, 400, 401, 431)
    with server.client() as client:
        assert client.get(CONFIGMAPS).status_code == 200


@pytest.mark.parametrize(
    "lines",
    [
        ("X-Remote-User: admin", "X-Remote-Group: system:masters"),
        ("Impersonate-User: admin", "Impersonate-Group: system:masters"),
        ("X-Forwarded-User: admin", "X-Forwarded-For: 127.0.0.1"),
    ],
)
def test_nobody_is_somebody_by_saying_so(server: Server, lines: tuple[str, ...]) -> None:
    assert exchange(server, head("GET", CONFIGMAPS, *lines))[0] == 401


# --- names


@VERSIONS
@pytest.mark.parametrize("name", ["%2e%2e", "%2E", "%00", "a%00b", "%25", "%252e%252e"])
def test_a_name_that_plays_tricks_is_refused(server: Server, name: str, http2: bool) -> None:
    with server.client(http2=http2) as client:
        for path in (f"{CONFIGMAPS}/{name}", f"{MANAGEMENT}/api/v1/namespaces/{name}/configmaps"):
            assert client.get(path).status_code == 400


@VERSIONS
@pytest.mark.parametrize("name", ["a%2fb", "%ff%fe", "..%2fsecrets%2fx", "%c0%ae%c0%ae"])
def test_a_name_that_can_be_nobodys_is_not_found(server: Server, name: str, http2: bool) -> None:
    with server.client(http2=http2) as client:
        assert client.get(f"{CONFIGMAPS}/{name}").status_code in (400, 404)


# --- what comes back


@VERSIONS
def test_a_body_with_thousands_of_unknown_fields_gets_an_answer_that_clients_can_read(
    server: Server, http2: bool
) -> None:
    body = configmap(f"warned-{http2}".lower()) | {f"unknown{number}": 1 for number in range(5_000)}
    with server.client(http2=http2) as client:
        answer = client.post(CONFIGMAPS, json=body)
        assert answer.status_code == 201
        assert "unknown0" in answer.headers["warning"]


@pytest.mark.parametrize("http2", [False, True])
def test_a_304_says_nothing_about_a_body(server: Server, http2: bool) -> None:
    with server.client(http2=http2) as client:
        held = client.get(f"{MANAGEMENT}/apis").headers["etag"]
        answer = client.get(f"{MANAGEMENT}/apis", headers={"If-None-Match": held})
    assert (answer.status_code, answer.headers["etag"]) == (304, held)
    assert not {"content-type", "content-length", "transfer-encoding"} & answer.headers.keys()


@pytest.mark.parametrize("field", ["two\nlines", "re\rturn", "null\x00", "delete\x7f"])
def test_a_warning_is_told_whatever_the_field_is_called(server: Server, field: str) -> None:
    with server.client() as client:
        answer = client.post(CONFIGMAPS, json=configmap("") | {"metadata": {"generateName": "odd-"}, field: 1})
        assert answer.status_code == 201
        assert "unknown field" in answer.headers["warning"]


@VERSIONS
def test_head_of_a_watch_is_answered_at_once(server: Server, http2: bool) -> None:
    with server.client(http2=http2) as client:
        assert client.head(CONFIGMAPS, params={"watch": "1"}, timeout=3).status_code in (200, 405)


# --- many at once


@VERSIONS
async def test_many_requests_at_once_are_all_answered_and_each_once(server: Server, http2: bool) -> None:
    prefix = f"many-{http2}".lower()
    async with server.async_client(http2=http2) as client:

        async def create_all() -> list[httpx.Response]:
            bodies = [configmap(f"{prefix}-{number}") for number in range(150)]
            return await asyncio.gather(*[client.post(CONFIGMAPS, json=body) for body in bodies])

        answers = await create_all()
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.json()["metadata"]["resourceVersion"] for answer in answers}) == 150
        assert {answer.status_code for answer in await create_all()} == {409}
        names = {item["metadata"]["name"] for item in (await client.get(CONFIGMAPS)).json()["items"]}
    assert {f"{prefix}-{number}" for number in range(150)} <= names


def test_of_many_writers_of_one_object_each_wins_once(server: Server) -> None:
    with server.client() as client, ThreadPoolExecutor(8) as threads:
        client.post(CONFIGMAPS, json=configmap("counter", count="0"))

        def increment(_: int) -> None:
            while True:
                obj = client.get(f"{CONFIGMAPS}/counter").json()
                obj["data"]["count"] = str(int(obj["data"]["count"]) + 1)
                answer = client.put(f"{CONFIGMAPS}/counter", json=obj)
                if answer.status_code == 200:
                    return
                assert answer.status_code == 409

        list(threads.map(increment, range(40)))
        assert client.get(f"{CONFIGMAPS}/counter").json()["data"] == {"count": "40"}


def test_strangers_who_connect_and_say_nothing_do_not_lock_the_others_out(server: Server) -> None:
    limits = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < SILENT_CONNECTIONS + 500:
        pytest.skip(f"this machine allows only {hard} open files")
    silent: list[socket.socket] = []
    try:
        if soft != resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, SILENT_CONNECTIONS + 500), hard))
        for _ in range(SILENT_CONNECTIONS):
            silent.append(server.connect(timeout=3))
        with server.client() as client:
            assert client.get("/readyz", timeout=3).status_code == 200
    except (TimeoutError, httpx.TimeoutException):
        pytest.fail(f"after {len(silent)} silent connections nobody is let in any more", pytrace=False)
    finally:
        for connection in silent:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_strangers_cannot_fill_the_memory_with_what_they_would_accept(server: Server) -> None:
    before = server.resident()
    with server.client(None) as client:
        for number in range(15):
            accept = f"x{number}/y" + ",a/b" * 15_000
            assert client.get(CONFIGMAPS, headers={"Accept": accept}, timeout=TIMEOUT_SECONDS).status_code in (401, 406)
    assert server.resident() - before < 20 * MEGABYTE
