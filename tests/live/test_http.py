"""The server over HTTP/1.1, HTTP/2 and TLS: authentication, invalid requests, limits, and many clients at once."""

import asyncio
import resource
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, TIMEOUT_SECONDS, Server, configmap, running_server
from tests.live.raw_requests import VERSIONS, build_authorization, build_head, exchange

MEGABYTE = 1024 * 1024
SILENT_CONNECTIONS = 1_100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server started with a low limit of open files, as on many systems; the test itself has a higher limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    with running_server(tmp_path_factory.mktemp("http") / "data") as server:
        limit = max(soft, SILENT_CONNECTIONS + 500)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit if hard < 0 else min(limit, hard), hard))
        yield server
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- HTTP versions and TLS


@VERSIONS
def test_every_verb_works_over_both_versions(server: Server, http2: bool) -> None:
    name = f"verbs-{http2}".lower()
    with server.client(http2=http2) as client:
        created = client.post(CONFIGMAPS, json=configmap(name, a="1"))
        assert created.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
        assert created.status_code == 201
        assert client.get(f"{CONFIGMAPS}/{name}").json() == created.json()
        assert client.put(f"{CONFIGMAPS}/{name}", json=configmap(name, a="2")).json()["data"] == {"a": "2"}
        patch = {"Content-Type": "application/merge-patch+json"}
        patched = client.patch(f"{CONFIGMAPS}/{name}", content=b'{"data":{"b":"3"}}', headers=patch)
        assert patched.json()["data"] == {"a": "2", "b": "3"}
        assert name in [item["metadata"]["name"] for item in client.get(CONFIGMAPS).json()["items"]]
        assert client.head(f"{CONFIGMAPS}/{name}").content == b""
        assert client.delete(f"{CONFIGMAPS}/{name}").json()["status"] == "Success"
        assert client.get(f"{CONFIGMAPS}/{name}").status_code == 404


def test_a_client_without_the_ca_does_not_connect(server: Server) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{server.url}/version")


def test_plain_http_gets_no_response(server: Server) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{server.url.replace('https', 'http')}/version")


@VERSIONS
def test_every_response_has_an_audit_id_of_its_own(server: Server, http2: bool) -> None:
    with server.client(None, http2=http2) as client:
        ids = {client.get(path).headers["audit-id"] for path in ("/version", "/version", CONFIGMAPS, "/nowhere")}
    assert len(ids) == 4


# --- authentication


@VERSIONS
@pytest.mark.parametrize("path", ["/version", "/healthz", "/livez", "/readyz"])
@pytest.mark.parametrize("mount", ["", MANAGEMENT])
def test_anonymous_clients_may_read_version_and_health(server: Server, mount: str, path: str, http2: bool) -> None:
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
def test_anonymous_requests_to_other_paths_get_401_whether_they_exist_or_not(server: Server, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "OPTIONS", "get"):
        status, response = exchange(server, build_head(method, path))
        assert status in (400, 401), (method, response)


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
def test_an_invalid_credential_gets_401(server: Server, authorization: str, http2: bool) -> None:
    with server.client(None, http2=http2) as client:
        response = client.get(CONFIGMAPS, headers={"Authorization": authorization})
    assert (response.status_code, response.json()["reason"]) == (401, "Unauthorized")


@VERSIONS
@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
def test_the_authorization_scheme_is_case_insensitive(server: Server, scheme: str, http2: bool) -> None:
    with server.client(None, http2=http2) as client:
        assert client.get(CONFIGMAPS, headers={"Authorization": f"{scheme} {server.key}"}).status_code == 200


@pytest.mark.parametrize("second", [b"Bearer x", b"", b"Basic x"])
def test_two_authorization_headers_get_401(server: Server, second: bytes) -> None:
    valid = build_authorization(server).encode()
    for pair in ((valid, b"Authorization: " + second), (b"Authorization: " + second, valid), (valid, valid)):
        request = b"\r\n".join(
            (f"GET {CONFIGMAPS} HTTP/1.1\r\nHost: server\r\nConnection: close".encode(), *pair, b"", b"")
        )
        assert exchange(server, request)[0] == 401


@pytest.mark.parametrize("blank", ["", " ", "  \t ", "Bearer ", "Bearer  \t"])
def test_a_blank_credential_gets_401(server: Server, blank: str) -> None:
    assert exchange(server, build_head("GET", CONFIGMAPS, f"Authorization: {blank}"))[0] == 401


def test_oversized_headers_are_rejected_and_the_server_keeps_responding(server: Server) -> None:
    status, _ = exchange(server, build_head("GET", CONFIGMAPS, "Authorization: Bearer " + "x" * 200_000))
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
def test_identity_headers_without_a_credential_get_401(server: Server, lines: tuple[str, ...]) -> None:
    assert exchange(server, build_head("GET", CONFIGMAPS, *lines))[0] == 401


# --- names


@VERSIONS
@pytest.mark.parametrize("name", ["%2e%2e", "%2E", "%00", "a%00b", "%25", "%252e%252e"])
def test_a_name_with_escaped_dots_or_nul_gets_400(server: Server, name: str, http2: bool) -> None:
    with server.client(http2=http2) as client:
        for path in (f"{CONFIGMAPS}/{name}", f"{MANAGEMENT}/api/v1/namespaces/{name}/configmaps"):
            assert client.get(path).status_code == 400


@VERSIONS
@pytest.mark.parametrize("name", ["a%2fb", "%ff%fe", "..%2fsecrets%2fx", "%c0%ae%c0%ae"])
def test_an_impossible_name_is_not_found(server: Server, name: str, http2: bool) -> None:
    with server.client(http2=http2) as client:
        assert client.get(f"{CONFIGMAPS}/{name}").status_code in (400, 404)


# --- responses


@VERSIONS
def test_thousands_of_unknown_fields_get_a_response_with_readable_warnings(server: Server, http2: bool) -> None:
    body = configmap(f"warned-{http2}".lower()) | {f"unknown{number}": 1 for number in range(5_000)}
    with server.client(http2=http2) as client:
        response = client.post(CONFIGMAPS, json=body)
        assert response.status_code == 201
        assert "unknown0" in response.headers["warning"]


@pytest.mark.parametrize("http2", [False, True])
def test_a_304_has_no_headers_about_a_body(server: Server, http2: bool) -> None:
    with server.client(http2=http2) as client:
        etag = client.get(f"{MANAGEMENT}/apis").headers["etag"]
        response = client.get(f"{MANAGEMENT}/apis", headers={"If-None-Match": etag})
    assert (response.status_code, response.headers["etag"]) == (304, etag)
    assert not {"content-type", "content-length", "transfer-encoding"} & response.headers.keys()


@pytest.mark.parametrize("field", ["two\nlines", "re\rturn", "null\x00", "delete\x7f"])
def test_a_warning_is_sent_for_field_names_with_control_characters(server: Server, field: str) -> None:
    with server.client() as client:
        response = client.post(CONFIGMAPS, json=configmap("") | {"metadata": {"generateName": "odd-"}, field: 1})
        assert response.status_code == 201
        assert "unknown field" in response.headers["warning"]


@VERSIONS
def test_head_of_a_watch_gets_a_response_at_once(server: Server, http2: bool) -> None:
    with server.client(http2=http2) as client:
        assert client.head(CONFIGMAPS, params={"watch": "1"}).status_code in (200, 405)


# --- concurrency


@VERSIONS
async def test_concurrent_requests_each_get_exactly_one_response(server: Server, http2: bool) -> None:
    prefix = f"many-{http2}".lower()
    async with server.async_client(http2=http2) as client:

        async def create_all() -> list[httpx.Response]:
            bodies = [configmap(f"{prefix}-{number}") for number in range(150)]
            return await asyncio.gather(*[client.post(CONFIGMAPS, json=body) for body in bodies])

        responses = await create_all()
        assert {response.status_code for response in responses} == {201}
        assert len({response.json()["metadata"]["resourceVersion"] for response in responses}) == 150
        assert {response.status_code for response in await create_all()} == {409}
        names = {item["metadata"]["name"] for item in (await client.get(CONFIGMAPS)).json()["items"]}
    assert {f"{prefix}-{number}" for number in range(150)} <= names


def test_concurrent_writers_of_one_object_lose_no_update(server: Server) -> None:
    with server.client() as client, ThreadPoolExecutor(8) as threads:
        client.post(CONFIGMAPS, json=configmap("counter", count="0"))

        def increment(_: int) -> None:
            while True:
                obj = client.get(f"{CONFIGMAPS}/counter").json()
                obj["data"]["count"] = str(int(obj["data"]["count"]) + 1)
                response = client.put(f"{CONFIGMAPS}/counter", json=obj)
                if response.status_code == 200:
                    return
                assert response.status_code == 409

        list(threads.map(increment, range(40)))
        assert client.get(f"{CONFIGMAPS}/counter").json()["data"] == {"count": "40"}


def test_silent_connections_do_not_keep_other_clients_from_connecting(server: Server) -> None:
    limits = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < SILENT_CONNECTIONS + 500:
        pytest.skip(f"this machine allows only {hard} open files")
    connections: list[socket.socket] = []
    try:
        if soft != resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, SILENT_CONNECTIONS + 500), hard))
        for _ in range(SILENT_CONNECTIONS):
            connections.append(server.connect(timeout=TIMEOUT_SECONDS))
        with server.client() as client:
            assert client.get("/readyz").status_code == 200
    except (TimeoutError, httpx.TimeoutException):
        pytest.fail(f"after {len(connections)} silent connections no other client can connect", pytrace=False)
    finally:
        for connection in connections:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_long_accept_headers_of_anonymous_clients_do_not_fill_the_memory(server: Server) -> None:
    before = server.resident_bytes()
    with server.client(None) as client:
        for number in range(15):
            accept = f"x{number}/y" + ",a/b" * 15_000
            assert client.get(CONFIGMAPS, headers={"Accept": accept}, timeout=TIMEOUT_SECONDS).status_code in (401, 406)
    assert server.resident_bytes() - before < 20 * MEGABYTE
