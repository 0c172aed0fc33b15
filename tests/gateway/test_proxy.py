"""Tests of `fairlead.gateway.proxy`: requests to a fake cluster, which can be told to misbehave, and its responses."""

import json
from collections.abc import AsyncIterator

import pytest

from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.errors import ApiError, BadGateway, BadRequest, Timeout, TooManyRequests, Unauthorized, Unavailable
from fairlead.core.user import User
from fairlead.gateway import proxy
from fairlead.upstream.access import Limits
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream
from tests.fake_cluster.behaviours import respond_with_bytes
from tests.fake_cluster.exchange import CannedResponse, build_status_response
from tests.fake_cluster.server import ClusterOptions, FakeCluster
from tests.gateway.gateway_calls import STORED_TOKEN, build_call, connect_upstream, forward_call, read_body
from tests.harness.calls import FakeGuard
from tests.harness.eventually import eventually


async def expect_error(upstream: Upstream, call: Call) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await forward_call(upstream, call)
    assert "127.0.0.1" not in caught.value.message
    assert STORED_TOKEN not in caught.value.message
    return caught.value


async def test_a_request_arrives_as_its_user_with_the_stored_credential(
    fake_cluster: FakeCluster, upstream: Upstream
) -> None:
    headers = {"authorization": "Bearer mine", "accept": "application/json", "impersonate-user": "root", "host": "evil"}
    reply = await forward_call(upstream, build_call("/api/v1/pods?limit=5", headers=headers))
    assert reply.status == 200
    request = fake_cluster.requests[0]
    assert (request.method, request.target) == ("GET", "/api/v1/pods?limit=5")
    assert request.header_values("authorization") == [f"Bearer {STORED_TOKEN}"]
    assert request.header_values("impersonate-user") == ["fairlead:anna"]
    assert request.header_values("impersonate-group") == ["fairlead:devs", "system:authenticated"]
    assert request.header_values("impersonate-uid") == ["u-anna"]
    assert request.header_values("accept") == ["application/json"]


async def test_t24_no_header_chooses_the_upstream_host(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    names = ("host", "x-forwarded-host", "forwarded", "x-original-host", "x-host", ":authority")
    await forward_call(upstream, build_call("/version", headers=dict.fromkeys(names, "evil.example")))
    assert fake_cluster.requests[0].header_values("host") == [f"127.0.0.1:{fake_cluster.port}"]
    assert b"evil" not in fake_cluster.requests[0].head


async def test_t13_neither_headers_nor_the_query_select_another_cluster(
    fake_cluster: FakeCluster, upstream: Upstream
) -> None:
    with FakeCluster() as other:
        headers = {"x-cluster": "other", "x-forwarded-host": f"127.0.0.1:{other.port}"}
        raw = f"/api/v1/pods?cluster=other&server={other.url}"
        await forward_call(upstream, build_call(raw, headers=headers))
        assert fake_cluster.request_lines() == [f"GET {raw}"]
        assert other.connection_count == 0


async def test_t23_the_callers_credential_is_not_forwarded(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    headers = {"authorization": "Bearer callers-own", "cookie": "session=callers-own", "x-token": "callers-own"}
    await forward_call(upstream, build_call("/api", headers=headers))
    assert b"callers-own" not in fake_cluster.requests[0].head


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("headers", [{"content-length": "9"}, {"transfer-encoding": "chunked"}, {}])
async def test_request_bodies_arrive_complete(
    fake_cluster: FakeCluster, upstream: Upstream, method: str, headers: dict[str, str]
) -> None:
    reply = await forward_call(upstream, build_call("/api/v1/x", method, headers=headers, body=(b'{"a":', b'"b"}')))
    assert reply.status == 200
    assert fake_cluster.requests[0].body == b'{"a":"b"}'


async def test_a_large_upload_is_streamed(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    chunks = [bytes([number]) * 50_000 for number in range(40)]
    await forward_call(upstream, build_call("/x", "POST", headers={"content-length": "2000000"}, body=chunks))
    assert fake_cluster.requests[0].body == b"".join(chunks)


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
async def test_a_request_without_a_body_has_no_content_length(
    fake_cluster: FakeCluster, upstream: Upstream, method: str
) -> None:
    await forward_call(upstream, build_call("/x", method))
    assert fake_cluster.requests[0].header("transfer-encoding") == ""
    assert fake_cluster.requests[0].header("content-length") in ("", "0")


async def test_an_interrupted_upload_does_not_become_a_request_to_the_cluster(
    fake_cluster: FakeCluster, upstream: Upstream
) -> None:
    async def interrupted_body() -> AsyncIterator[bytes]:
        yield b"half"
        raise BadRequest("the request body is incomplete")

    call = build_call("/x", "POST")
    call.stream_body = interrupted_body
    assert (await expect_error(upstream, call)).code == 400
    await eventually(lambda: not fake_cluster.open_connections)
    assert fake_cluster.requests == []
    assert upstream.in_use == 0


async def test_a_small_response_is_not_streamed(upstream: Upstream) -> None:
    reply = await forward_call(upstream, build_call("/version"))
    assert reply.stream is None
    assert json.loads(reply.body)["gitVersion"] == "v1.34.1"
    assert reply.content_type == "application/json"


@pytest.mark.parametrize("path", ["/fake/huge?bytes=3000000", "/fake/chunked?bytes=3000000&size=70000"])
async def test_a_large_response_is_streamed(upstream: Upstream, path: str) -> None:
    reply = await forward_call(upstream, build_call(path))
    assert reply.stream is not None
    assert len(await read_body(reply)) == 3_000_000
    assert upstream.in_use == 0


async def test_connections_are_reused(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    for path in ("/version", "/fake/chunked?bytes=10", "/fake/huge?bytes=200000", "/fake/status?code=204", "/version"):
        await read_body(await forward_call(upstream, build_call(path)))
    await read_body(await forward_call(upstream, build_call("/version", "HEAD")))
    assert fake_cluster.connection_count == 1


async def test_the_response_to_head_has_a_content_length_and_no_body(upstream: Upstream) -> None:
    reply = await forward_call(upstream, build_call("/version", "HEAD"))
    assert reply.body == b""
    assert reply.stream is None
    assert int(dict(reply.headers)["content-length"]) > 0


@pytest.mark.parametrize("code", [204, 400, 403, 404, 409, 410, 422, 429, 500, 503])
async def test_the_status_of_the_cluster_is_returned(upstream: Upstream, code: int) -> None:
    assert (await forward_call(upstream, build_call(f"/fake/status?code={code}"))).status == code


async def test_a_304_is_not_treated_as_a_redirect(upstream: Upstream) -> None:
    reply = await forward_call(upstream, build_call("/fake/status?code=304", headers={"if-none-match": '"a"'}))
    assert (reply.status, await read_body(reply)) == (304, b"")


async def test_a_304_has_only_headers_that_the_cluster_sent(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    """Clients merge them into their cached response."""
    sent = [
        ("etag", '"a"'),
        ("vary", "Accept"),
        ("date", "Sun, 15 Nov 2026 22:28:02 GMT"),
        ("cache-control", "private"),
    ]
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent)
    fake_cluster.set_behaviour("/apis", respond_with_bytes(f"HTTP/1.1 304 Not Modified\r\n{lines}\r\n".encode()))
    reply = await forward_call(upstream, build_call("/apis", headers={"if-none-match": '"a"'}))
    assert (reply.status, reply.content_type, reply.headers) == (304, "", sent)
    assert reply.cacheable, "the server adds no Cache-Control to that of the cluster"


@pytest.mark.parametrize("status", ["200 OK", "304 Not Modified", "404 Not Found"])
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (["no-cache, private"], "no-cache, private"),
        (["public"], "private"),
        (["public, immutable"], "immutable, private"),
        (["Public , max-age=60", "S-MaxAge = 600"], "max-age=60, private"),
        (["max-age=60, must-revalidate"], "max-age=60, must-revalidate, private"),
        (["no-cache"], "no-cache, private"),
        (["no-store"], "no-store"),
        (["public, no-store"], "no-store"),
        ([""], "private"),
        (['private="set-cookie", max-age=60'], "no-cache, private"),
        (['x="a, private, b", public'], "no-cache, private"),
    ],
)
async def test_no_response_can_be_stored_by_shared_caches(
    fake_cluster: FakeCluster, upstream: Upstream, status: str, sent: list[str], expected: str
) -> None:
    """A 304 has the same Cache-Control as the response that it validates."""
    lines = "".join(f"Cache-Control: {directives}\r\n" for directives in sent)
    fake_cluster.set_behaviour(
        "/x", respond_with_bytes(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n{lines}\r\n".encode())
    )
    reply = await forward_call(upstream, build_call("/x"))
    assert [value for name, value in reply.headers if name == "cache-control"] == [expected]
    assert reply.cacheable, "the server adds no Cache-Control"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_response_without_a_content_type_gets_none(
    fake_cluster: FakeCluster, upstream: Upstream, method: str
) -> None:
    fake_cluster.set_behaviour("/x", respond_with_bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"))
    reply = await forward_call(upstream, build_call("/x", method))
    assert (reply.status, reply.content_type, reply.cacheable) == (200, "", False)


async def test_a_rejection_by_the_cluster_keeps_its_message(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    fake_cluster.set_response(
        "/api/v1/pods", build_status_response(403, "Forbidden", 'pods is forbidden: User "anna" cannot list')
    )
    reply = await forward_call(upstream, build_call("/api/v1/pods"))
    assert reply.status == 403
    assert json.loads(reply.body)["message"] == 'pods is forbidden: User "anna" cannot list'


@pytest.mark.parametrize("code", [300, 301, 302, 303, 305, 307, 308, 399])
async def test_t21_redirects_are_neither_followed_nor_relayed(
    fake_cluster: FakeCluster, upstream: Upstream, code: int
) -> None:
    with FakeCluster() as other_cluster:
        fake_cluster.set_response(
            "/go", CannedResponse(code, b"moved", headers={"location": f"{other_cluster.url}/stolen"})
        )
        error = await expect_error(upstream, build_call("/go"))
        assert (error.code, error.reason) == (502, "BadGateway")
        assert "redirect" in error.message
        assert other_cluster.connection_count == 0
        assert upstream.in_use == 0


async def test_t21_location_and_cookie_headers_are_removed_from_responses(
    fake_cluster: FakeCluster, upstream: Upstream
) -> None:
    names = ("location", "set-cookie", "content-location", "refresh", "www-authenticate", "alt-svc", "link", "server")
    more = ("access-control-allow-origin", "strict-transport-security", "clear-site-data", "audit-id", "x-anything")
    fake_cluster.set_response("/x", CannedResponse(201, b"{}", headers=dict.fromkeys((*names, *more), "evil")))
    reply = await forward_call(upstream, build_call("/x", "POST"))
    assert reply.status == 201
    assert "evil" not in str(reply.headers)


async def test_pages_of_a_cluster_are_sandboxed_in_a_browser(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    hostile_headers = {"content-security-policy": "default-src *", "x-content-type-options": "sniff"}
    fake_cluster.set_response("/page", CannedResponse(200, b"<script>", "text/html", hostile_headers))
    reply = await forward_call(upstream, build_call("/page"))
    assert [value for name, value in reply.headers if name == "content-security-policy"] == ["sandbox"]
    assert [value for name, value in reply.headers if name == "x-content-type-options"] == ["nosniff"]


async def test_warnings_and_etags_are_returned(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    expected = {"warning": '299 - "old"', "etag": '"1"', "content-encoding": "gzip", "retry-after": "3"}
    fake_cluster.set_response("/x", CannedResponse(200, b"{}", headers=expected))
    assert expected.items() <= dict((await forward_call(upstream, build_call("/x"))).headers).items()


async def test_a_rejected_stored_credential_is_a_502_and_not_a_401(
    fake_cluster: FakeCluster, upstream: Upstream
) -> None:
    fake_cluster.set_response("/x", build_status_response(401, "Unauthorized", "Unauthorized"))
    error = await expect_error(upstream, build_call("/x"))
    assert (error.code, error.reason) == (502, "BadGateway")
    assert "store a new kubeconfig" in error.message


@pytest.mark.parametrize("path", ["/fake/hang-up", "/fake/garbage", "/fake/long-head?bytes=300000", "/fake/switch"])
async def test_an_invalid_response_is_a_502_or_503(upstream: Upstream, path: str) -> None:
    assert (await expect_error(upstream, build_call(path, "POST"))).code in (502, 503)
    assert upstream.in_use == 0


async def test_a_small_response_that_is_interrupted_is_a_502(upstream: Upstream) -> None:
    assert (await expect_error(upstream, build_call("/fake/break-off?bytes=10"))).code == 502


@pytest.mark.parametrize("path", ["/fake/break-off?bytes=500000", "/fake/break-chunked"])
async def test_a_large_response_that_is_interrupted_is_interrupted_for_the_client(
    upstream: Upstream, path: str
) -> None:
    reply = await forward_call(upstream, build_call(path))
    with pytest.raises(UpstreamError):
        await read_body(reply)
    assert upstream.in_use == 0


async def test_a_cluster_that_does_not_respond_is_a_timeout(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(response_header_seconds=0.1)) as upstream:
        error = await expect_error(upstream, build_call("/fake/never"))
        assert isinstance(error, Timeout)
        assert upstream.in_use == 0


async def test_a_stopped_cluster_is_unavailable(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    fake_cluster.stop()
    error = await expect_error(upstream, build_call("/version"))
    assert isinstance(error, Unavailable)
    assert error.message.startswith('cluster "c": ')


async def test_a_cluster_with_a_certificate_for_another_name_is_a_502() -> None:
    with FakeCluster(options=ClusterOptions(names=("elsewhere.example",))) as fake_cluster:
        async with connect_upstream(fake_cluster) as upstream:
            assert isinstance(await expect_error(upstream, build_call("/version")), BadGateway)
            assert fake_cluster.requests == []


def build_call_of_user(name: str, path: str, verb: str = "get") -> Call:
    call = build_call(path, target=RequestInfo(verb, path))
    call.user = User(name)
    return call


async def close_streams(*replies: Reply) -> None:
    for reply in replies:
        assert reply.stream is not None
        await anext(reply.stream)
        await reply.stream.aclose()  # type: ignore[attr-defined]


async def test_a_cluster_at_its_limit_is_unavailable_with_retry_after(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(max_requests=4, max_queued=0)) as upstream:
        streams = [await forward_call(upstream, build_call_of_user(name, "/fake/ticks")) for name in "abcd"]
        error = await expect_error(upstream, build_call("/version"))
        assert isinstance(error, Unavailable)
        assert error.details.retry_after == 1
        await close_streams(*streams)
        await forward_call(upstream, build_call("/version"))


async def test_one_user_cannot_use_all_slots_of_a_cluster(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(max_requests=8)) as upstream:
        streams = [await forward_call(upstream, build_call_of_user("eve", "/fake/ticks", "watch")) for _ in range(2)]
        for path, verb in (("/version", "get"), ("/fake/ticks", "watch")):
            error = await expect_error(upstream, build_call_of_user("eve", path, verb))
            assert isinstance(error, TooManyRequests)
            assert error.details.retry_after == 1 and "your limit" in error.message
        assert (await forward_call(upstream, build_call_of_user("ada", "/version"))).status == 200
        await close_streams(*streams)
        for _ in range(5):
            assert (await forward_call(upstream, build_call_of_user("eve", "/version"))).status == 200


async def test_failed_requests_hold_no_slot(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(max_requests=4)) as upstream:
        for path in ("/fake/hang-up", "/fake/break-off", "/fake/redirect", "/fake/garbage"):
            await expect_error(upstream, build_call_of_user("ada", path, "watch"))
        assert (await forward_call(upstream, build_call_of_user("ada", "/version"))).status == 200


async def test_watches_of_many_users_leave_slots_for_short_requests(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(max_requests=4)) as upstream:
        streams = [await forward_call(upstream, build_call_of_user(name, "/fake/ticks", "watch")) for name in "abc"]
        error = await expect_error(upstream, build_call_of_user("d", "/fake/ticks", "watch"))
        assert isinstance(error, Unavailable) and error.details.retry_after == 1
        for follow in ("true", "1", "yes", ""):
            log_request = build_call_of_user("d", "/fake/ticks")
            log_request.query = {"follow": [follow]}
            assert isinstance(await expect_error(upstream, log_request), Unavailable)
        assert (await forward_call(upstream, build_call_of_user("d", "/version"))).status == 200
        await close_streams(*streams)


async def test_a_slow_response_is_returned_only_if_the_caller_is_still_authorized(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "RECHECK_SECONDS", 2)
    call = build_call("/fake/slow?seconds=2.5")

    def reject() -> None:
        raise Unauthorized

    call.guard = FakeGuard(reject)
    with pytest.raises(Unauthorized):
        await forward_call(upstream, call)
    fast_call = build_call("/version")
    fast_call.guard = FakeGuard(reject)
    assert (await forward_call(upstream, fast_call)).status == 200
