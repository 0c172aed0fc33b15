"""Requests to providers: limits of time and size, redirects, addresses, certificates. With real TLS on loopback."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from fairlead.signin.oidc.discovery import ProviderClient
from fairlead.signin.oidc.fetch import (
    MAX_CONCURRENT_REQUESTS,
    MAX_DOCUMENT_BYTES,
    Fetcher,
    Request,
    check_address,
    check_issuer_url,
    parse_url,
)
from fairlead.signin.oidc.issuer import Issuer
from fairlead.signin.oidc.tokens import ProviderError, Reason
from tests.harness.openid_issuer import DRIP, STALL, OpenIdIssuer, run_issuer, server_context


@pytest.fixture
async def issuer() -> AsyncIterator[OpenIdIssuer]:
    async with run_issuer() as running:
        running.publish("/document", {"a": 1})
        yield running


async def _get(issuer: OpenIdIssuer, path: str = "/document", fetcher: Fetcher | None = None, **changes: Any):
    request = Request("GET", issuer.url + path)
    return await (fetcher or Fetcher()).fetch_json(issuer.issuer(**changes), request)


async def _fail(*args: Any, **changes: Any) -> ProviderError:
    with pytest.raises(ProviderError) as failed:
        await _get(*args, **changes)
    return failed.value


async def test_a_json_object_is_fetched(issuer: OpenIdIssuer) -> None:
    assert await _get(issuer) == {"a": 1}
    line, headers, _ = issuer.received[-1]
    assert line == "GET /document HTTP/1.1"
    assert headers["host"] == f"127.0.0.1:{issuer.port}"


@pytest.mark.parametrize("status", [STALL, DRIP])
async def test_a_slow_response_ends_with_a_timeout(issuer: OpenIdIssuer, status: int) -> None:
    issuer.publish("/document", {}, status)
    assert (await _fail(issuer, fetcher=Fetcher(timeout_seconds=2))).reason == Reason.PROVIDER_TIMEOUT


async def test_a_socket_that_never_answers_the_handshake_ends_with_a_timeout() -> None:
    ended = asyncio.Event()

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(ignore, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    error = await _fail(OpenIdIssuer(port), fetcher=Fetcher(timeout_seconds=1))
    assert error.reason == Reason.PROVIDER_TIMEOUT
    async with asyncio.timeout(10):  # the connection is closed with the attempt, not by the garbage collector
        await ended.wait()
    server.close()


async def test_a_slow_provider_delays_neither_the_event_loop_nor_other_providers(issuer: OpenIdIssuer) -> None:
    issuer.publish("/slow", {}, STALL)
    async with run_issuer() as other:
        fetcher = Fetcher(timeout_seconds=10)
        waiting = [asyncio.create_task(_fail(issuer, "/slow", fetcher)) for _ in range(MAX_CONCURRENT_REQUESTS * 2)]
        await asyncio.sleep(0.3)
        assert (await _get(other, "/keys", fetcher))["keys"]
        assert not any(task.done() for task in waiting)
        assert issuer.requests["/slow"] <= MAX_CONCURRENT_REQUESTS
        assert {error.reason for error in await asyncio.gather(*waiting)} == {Reason.PROVIDER_TIMEOUT}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(issuer: OpenIdIssuer, status: int) -> None:
    issuer.publish("/document", {}, status, location=issuer.url + "/keys")
    assert (await _fail(issuer)).reason == Reason.PROVIDER_REDIRECT
    assert issuer.requests["/keys"] == 0


async def test_responses_have_a_size_limit(issuer: OpenIdIssuer) -> None:
    issuer.publish("/document", b"[" + b" " * MAX_DOCUMENT_BYTES + b"]")
    assert (await _fail(issuer)).reason == Reason.RESPONSE_TOO_LARGE


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"{", b"[" * 100_000, b'{"a": 1e400}', b"\xff"])
async def test_only_json_objects_are_accepted(issuer: OpenIdIssuer, body: bytes) -> None:
    issuer.publish("/document", body)
    assert (await _fail(issuer)).reason == Reason.RESPONSE_INVALID


async def test_compressed_responses_are_rejected(issuer: OpenIdIssuer) -> None:
    issuer.publish("/document", {}, content_encoding="gzip")
    assert (await _fail(issuer)).reason == Reason.RESPONSE_INVALID


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"error": "invalid_grant", "error_description": "<script>"}', "invalid_grant"),
        (b'{"error": "<script>"}', ""),
        (b'{"error": ["invalid_grant"]}', ""),
        (b"oops", ""),
    ],
)
async def test_errors_have_the_code_of_oauth_and_nothing_else(issuer: OpenIdIssuer, body: bytes, code: str) -> None:
    issuer.publish("/document", body, 400)
    error = await _fail(issuer)
    assert (error.reason, error.status, error.oauth_error) == (Reason.PROVIDER_STATUS, 400, code)
    assert "script" not in str(error)


async def test_certificates_are_verified(issuer: OpenIdIssuer) -> None:
    assert (await _fail(issuer, ca_pem="")).reason == Reason.PROVIDER_TLS
    assert (await _fail(issuer, ca_pem="no certificate")).reason == Reason.PROVIDER_TLS
    async with run_issuer("provider.example") as misnamed:
        assert (await _fail(misnamed, "/keys")).reason == Reason.PROVIDER_TLS


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
async def test_old_versions_of_tls_are_rejected() -> None:
    context = server_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    error = await _fail(OpenIdIssuer(server.sockets[0].getsockname()[1]))
    assert error.reason in (Reason.PROVIDER_TLS, Reason.PROVIDER_UNREACHABLE)
    server.close()


async def test_a_closed_port_is_unreachable(issuer: OpenIdIssuer) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert (await _fail(OpenIdIssuer(port))).reason == Reason.PROVIDER_UNREACHABLE


async def test_the_connection_goes_to_the_checked_address_and_the_certificate_is_that_of_the_name() -> None:
    lookups: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        """Answers with a metadata service from the second lookup on, as DNS rebinding does."""
        lookups.append(host)
        return ["127.0.0.1"] if len(lookups) == 1 else ["169.254.169.254"]

    async with run_issuer("provider.example", host="provider.example") as issuer:
        fetcher = Fetcher(resolve)
        assert (await _get(issuer, "/keys", fetcher))["keys"]
        assert lookups == ["provider.example"]
        assert issuer.received[-1][1]["host"] == f"provider.example:{issuer.port}"
        assert (await _fail(issuer, "/keys", fetcher)).reason == Reason.ADDRESS_BLOCKED
        misnamed = OpenIdIssuer(issuer.port, "other.example")
        lookups.clear()
        assert (await _fail(misnamed, "/keys", fetcher)).reason == Reason.PROVIDER_TLS


async def test_the_next_address_is_tried_if_one_is_unreachable() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async with run_issuer() as issuer:
        assert (await _get(issuer, "/keys", Fetcher(resolve)))["keys"]


async def test_one_blocked_address_of_a_host_is_enough(issuer: OpenIdIssuer) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1", "169.254.169.254"]

    assert (await _fail(issuer, "/keys", Fetcher(resolve))).reason == Reason.ADDRESS_BLOCKED
    assert issuer.requests["/keys"] == 0


async def test_a_name_without_an_address_is_unreachable(issuer: OpenIdIssuer) -> None:
    error = await _fail(OpenIdIssuer(issuer.port, "provider.invalid"), fetcher=Fetcher())
    assert error.reason in (Reason.PROVIDER_UNREACHABLE, Reason.PROVIDER_TIMEOUT)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "[::1]"])
async def test_loopback_is_blocked_unless_the_issuer_allows_it(issuer: OpenIdIssuer, host: str) -> None:
    error = await _fail(OpenIdIssuer(issuer.port, host), "/keys", allow_loopback=False)
    assert error.reason == Reason.ADDRESS_BLOCKED
    assert issuer.requests["/keys"] == 0


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%lo", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"),
        *("2002:a9fe:a9fe::", "::a9fe:a9fe", "fd00:ec2::254", "168.63.129.16", "100.100.100.200"),
        *("0.0.0.0", "::", "224.0.0.1", "ff02::1"),
    ],
)
def test_link_local_addresses_are_always_blocked(address: str) -> None:
    with pytest.raises(ProviderError) as blocked:
        check_address(address, allow_loopback=True)
    assert blocked.value.reason == Reason.ADDRESS_BLOCKED


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.1.1", "140.82.121.3", "2606:50c0:8000::153", "fd12::1"])
def test_public_and_private_addresses_are_allowed(address: str) -> None:
    check_address(address, allow_loopback=False)


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "http://provider.example", "ftp://provider.example", "HTTPS://provider.example"),
        *("https:/provider.example", "https://", "https://user@provider.example", "https://a:b@provider.example"),
        *("https://provider.example#x", "https://provider.example:0", "https://provider.example:99999"),
        *("https://provider.example/\n", "https://provider.example/ ", "https://provider.example\\@evil.example"),
        *("https://provider%2eexample", "https://prövider.example", "https://[::1", "", "provider.example"),
        "https://provider.example/" + "a" * 3_000,
        *(None, 7, ["https://provider.example"]),
    ],
)
def test_only_plain_https_urls_are_fetched(url: Any) -> None:
    with pytest.raises(ProviderError) as failed:
        parse_url(url)
    assert failed.value.reason == Reason.ISSUER_URL


def test_an_issuer_url_has_no_query() -> None:
    check_issuer_url("https://provider.example/tenant")
    with pytest.raises(ProviderError):
        check_issuer_url("https://provider.example/?tenant=a")


async def test_forms_are_posted_with_encoded_client_credentials(issuer: OpenIdIssuer) -> None:
    issuer.publish("/token", {"access_token": "a"})
    client = ProviderClient()
    form = {"grant_type": "authorization_code", "code": "a&b=ü"}
    reply = await client.post_form(
        issuer.url + "/token", form, issuer=issuer.issuer(), basic_auth=("id:1", "pass word+ü")
    )
    assert reply == {"access_token": "a"}
    line, headers, body = issuer.received[-1]
    assert line.startswith("POST /token")
    assert body == b"grant_type=authorization_code&code=a%26b%3D%C3%BC"
    assert headers["content-type"] == "application/x-www-form-urlencoded"
    assert headers["authorization"] == "Basic aWQlM0ExOnBhc3Mrd29yZCUyQiVDMyVCQw=="


async def test_userinfo_is_requested_with_the_access_token(issuer: OpenIdIssuer) -> None:
    issuer.publish("/userinfo", {"sub": "a"})
    client = ProviderClient()
    assert await client.get_json(issuer.url + "/userinfo", "t", issuer=issuer.issuer()) == {"sub": "a"}
    assert issuer.received[-1][1]["authorization"] == "Bearer t"
    with pytest.raises(ProviderError):
        await client.get_json(issuer.url + "/userinfo", "t\r\nX-Evil: 1", issuer=issuer.issuer())


def test_secrets_are_not_part_of_a_request_in_a_traceback() -> None:
    request = Request("POST", "https://provider.example/token", {"authorization": "secret"}, b"secret")
    assert "secret" not in repr(request)
    assert Issuer("https://provider.example").allow_loopback is False
