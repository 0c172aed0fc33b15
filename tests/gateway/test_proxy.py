"""A request through a gateway and its answer, against a server that can be asked to misbehave."""

import json
from collections.abc import AsyncIterator, Iterator

import pytest

from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.errors import ApiError, BadGateway, BadRequest, Timeout, TooManyRequests, Unauthorized, Unavailable
from fairlead.core.user import User
from fairlead.gateway import proxy as forwarding
from fairlead.upstream.access import Limits
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream
from tests.fake_cluster.behaviours import sending
from tests.fake_cluster.exchange import Answer, status_object
from tests.fake_cluster.server import ClusterBehaviour, FakeCluster
from tests.gateway.gateway_calls import STORED, asking, connected, content, through, until
from tests.harness.calls import FakeGuard


@pytest.fixture
def far() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        yield made


@pytest.fixture
async def upstream(far: FakeCluster) -> AsyncIterator[Upstream]:
    async with connected(far) as made:
        yield made


async def refusal(upstream: Upstream, call: Call) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await through(upstream, call)
    assert "127.0.0.1" not in caught.value.message
    assert STORED not in caught.value.message
    return caught.value


async def test_a_request_arrives_as_its_user_with_the_stored_credential(far: FakeCluster, upstream: Upstream) -> None:
    sent = {"authorization": "Bearer mine", "accept": "application/json", "impersonate-user": "root", "host": "evil"}
    reply = await through(upstream, asking("/api/v1/pods?limit=5", headers=sent))
    assert reply.status == 200
    asked = far.seen[0]
    assert (asked.method, asked.target) == ("GET", "/api/v1/pods?limit=5")
    assert asked.all("authorization") == [f"Bearer {STORED}"]
    assert asked.all("impersonate-user") == ["fairlead:anna"]
    assert asked.all("impersonate-group") == ["fairlead:devs", "system:authenticated"]
    assert asked.all("impersonate-uid") == ["u-anna"]
    assert asked.all("accept") == ["application/json"]


async def test_t24_no_header_chooses_the_upstream_host(far: FakeCluster, upstream: Upstream) -> None:
    names = ("host", "x-forwarded-host", "forwarded", "x-original-host", "x-host", ":authority")
    await through(upstream, asking("/version", headers=dict.fromkeys(names, "evil.example")))
    assert far.seen[0].all("host") == [f"127.0.0.1:{far.port}"]
    assert b"evil" not in far.seen[0].head


async def test_t13_neither_a_header_nor_the_query_names_another_target(far: FakeCluster, upstream: Upstream) -> None:
    with FakeCluster() as other:
        headers = {"x-cluster": "other", "x-forwarded-host": f"127.0.0.1:{other.port}"}
        raw = f"/api/v1/pods?cluster=other&server={other.url}"
        await through(upstream, asking(raw, headers=headers))
        assert far.paths() == [f"GET {raw}"]
        assert other.connections == 0


async def test_t23_the_callers_credential_goes_nowhere(far: FakeCluster, upstream: Upstream) -> None:
    headers = {"authorization": "Bearer callers-own", "cookie": "session=callers-own", "x-token": "callers-own"}
    await through(upstream, asking("/api", headers=headers))
    assert b"callers-own" not in far.seen[0].head


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("headers", [{"content-length": "9"}, {"transfer-encoding": "chunked"}, {}])
async def test_bodies_arrive_whole(far: FakeCluster, upstream: Upstream, method: str, headers: dict[str, str]) -> None:
    reply = await through(upstream, asking("/api/v1/x", method, headers=headers, body=(b'{"a":', b'"b"}')))
    assert reply.status == 200
    assert far.seen[0].body == b'{"a":"b"}'


async def test_a_large_upload_is_streamed(far: FakeCluster, upstream: Upstream) -> None:
    chunks = [bytes([number]) * 50_000 for number in range(40)]
    await through(upstream, asking("/x", "POST", headers={"content-length": "2000000"}, body=chunks))
    assert far.seen[0].body == b"".join(chunks)


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
async def test_a_request_without_a_body_says_so(far: FakeCluster, upstream: Upstream, method: str) -> None:
    await through(upstream, asking("/x", method))
    assert far.seen[0].header("transfer-encoding") == ""
    assert far.seen[0].header("content-length") in ("", "0")


async def test_an_upload_that_breaks_off_is_no_request_to_the_cluster(far: FakeCluster, upstream: Upstream) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield b"half"
        raise BadRequest("the request body is incomplete")

    call = asking("/x", "POST")
    call.stream_body = breaking
    assert (await refusal(upstream, call)).code == 400
    await until(lambda: not far.open)
    assert far.seen == []
    assert upstream.in_use == 0


async def test_a_small_answer_comes_back_whole(upstream: Upstream) -> None:
    reply = await through(upstream, asking("/version"))
    assert reply.stream is None
    assert json.loads(reply.body)["gitVersion"] == "v1.34.1"
    assert reply.content_type == "application/json"


@pytest.mark.parametrize("path", ["/far/huge?bytes=3000000", "/far/chunked?bytes=3000000&size=70000"])
async def test_a_large_answer_comes_back_piece_by_piece(upstream: Upstream, path: str) -> None:
    reply = await through(upstream, asking(path))
    assert reply.stream is not None
    assert len(await content(reply)) == 3_000_000
    assert upstream.in_use == 0


async def test_connections_are_used_again(far: FakeCluster, upstream: Upstream) -> None:
    for path in ("/version", "/far/chunked?bytes=10", "/far/huge?bytes=200000", "/far/status?code=204", "/version"):
        await content(await through(upstream, asking(path)))
    await content(await through(upstream, asking("/version", "HEAD")))
    assert far.connections == 1


async def test_head_says_the_length_and_has_no_body(upstream: Upstream) -> None:
    reply = await through(upstream, asking("/version", "HEAD"))
    assert reply.body == b""
    assert reply.stream is None
    assert int(dict(reply.headers)["content-length"]) > 0


@pytest.mark.parametrize("code", [204, 400, 403, 404, 409, 410, 422, 429, 500, 503])
async def test_what_the_cluster_says_is_handed_back(upstream: Upstream, code: int) -> None:
    assert (await through(upstream, asking(f"/far/status?code={code}"))).status == code


async def test_not_modified_is_no_redirect(upstream: Upstream) -> None:
    reply = await through(upstream, asking("/far/status?code=304", headers={"if-none-match": '"a"'}))
    assert (reply.status, await content(reply)) == (304, b"")


async def test_a_304_brings_no_header_that_the_cluster_did_not_send(far: FakeCluster, upstream: Upstream) -> None:
    """Clients write them into the answer that they have kept."""
    sent = [
        ("etag", '"a"'),
        ("vary", "Accept"),
        ("date", "Sun, 15 Nov 2026 22:28:02 GMT"),
        ("cache-control", "private"),
    ]
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent)
    far.behave("/apis", sending(f"HTTP/1.1 304 Not Modified\r\n{lines}\r\n".encode()))
    reply = await through(upstream, asking("/apis", headers={"if-none-match": '"a"'}))
    assert (reply.status, reply.content_type, reply.headers) == (304, "", sent)
    assert reply.cacheable, "no Cache-Control of our own is added to the cluster's"


@pytest.mark.parametrize("status", ["200 OK", "304 Not Modified", "404 Not Found"])
@pytest.mark.parametrize(
    ("sent", "passed"),
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
async def test_no_answer_is_for_caches_that_serve_others(
    far: FakeCluster, upstream: Upstream, status: str, sent: list[str], passed: str
) -> None:
    """A 304 says the same as the answer that it confirms."""
    lines = "".join(f"Cache-Control: {each}\r\n" for each in sent)
    far.behave("/x", sending(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n{lines}\r\n".encode()))
    reply = await through(upstream, asking("/x"))
    assert [value for name, value in reply.headers if name == "cache-control"] == [passed]
    assert reply.cacheable, "no Cache-Control of our own is added"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_an_answer_without_a_type_gets_none(far: FakeCluster, upstream: Upstream, method: str) -> None:
    far.behave("/x", sending(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"))
    reply = await through(upstream, asking("/x", method))
    assert (reply.status, reply.content_type, reply.cacheable) == (200, "", False)


async def test_a_refusal_of_the_cluster_keeps_its_words(far: FakeCluster, upstream: Upstream) -> None:
    far.answer("/api/v1/pods", status_object(403, "Forbidden", 'pods is forbidden: User "anna" cannot list'))
    reply = await through(upstream, asking("/api/v1/pods"))
    assert reply.status == 403
    assert json.loads(reply.body)["message"] == 'pods is forbidden: User "anna" cannot list'


@pytest.mark.parametrize("code", [300, 301, 302, 303, 305, 307, 308, 399])
async def test_t21_redirects_are_neither_followed_nor_relayed(far: FakeCluster, upstream: Upstream, code: int) -> None:
    with FakeCluster() as elsewhere:
        far.answer("/go", Answer(code, b"moved", headers={"location": f"{elsewhere.url}/stolen"}))
        error = await refusal(upstream, asking("/go"))
        assert (error.code, error.reason) == (502, "BadGateway")
        assert "redirect" in error.message
        assert elsewhere.connections == 0
        assert upstream.in_use == 0


async def test_t21_locations_and_cookies_are_dropped_from_any_answer(far: FakeCluster, upstream: Upstream) -> None:
    names = ("location", "set-cookie", "content-location", "refresh", "www-authenticate", "alt-svc", "link", "server")
    more = ("access-control-allow-origin", "strict-transport-security", "clear-site-data", "audit-id", "x-anything")
    far.answer("/x", Answer(201, b"{}", headers=dict.fromkeys((*names, *more), "evil")))
    reply = await through(upstream, asking("/x", "POST"))
    assert reply.status == 201
    assert "evil" not in str(reply.headers)


async def test_pages_of_a_cluster_do_nothing_in_a_browser(far: FakeCluster, upstream: Upstream) -> None:
    evil = {"content-security-policy": "default-src *", "x-content-type-options": "sniff"}
    far.answer("/page", Answer(200, b"<script>", "text/html", evil))
    reply = await through(upstream, asking("/page"))
    assert [value for name, value in reply.headers if name == "content-security-policy"] == ["sandbox"]
    assert [value for name, value in reply.headers if name == "x-content-type-options"] == ["nosniff"]


async def test_warnings_and_etags_come_back(far: FakeCluster, upstream: Upstream) -> None:
    wanted = {"warning": '299 - "old"', "etag": '"1"', "content-encoding": "gzip", "retry-after": "3"}
    far.answer("/x", Answer(200, b"{}", headers=wanted))
    assert wanted.items() <= dict((await through(upstream, asking("/x"))).headers).items()


async def test_a_stored_credential_that_is_refused_is_not_the_callers_fault(
    far: FakeCluster, upstream: Upstream
) -> None:
    far.answer("/x", status_object(401, "Unauthorized", "Unauthorized"))
    error = await refusal(upstream, asking("/x"))
    assert (error.code, error.reason) == (502, "BadGateway")
    assert "store a new kubeconfig" in error.message


@pytest.mark.parametrize("path", ["/far/hang-up", "/far/garbage", "/far/long-head?bytes=300000", "/far/switch"])
async def test_an_answer_that_is_none_is_a_bad_gateway(upstream: Upstream, path: str) -> None:
    assert (await refusal(upstream, asking(path, "POST"))).code in (502, 503)
    assert upstream.in_use == 0


async def test_a_small_answer_that_breaks_off_is_a_bad_gateway(upstream: Upstream) -> None:
    assert (await refusal(upstream, asking("/far/break-off?bytes=10"))).code == 502


@pytest.mark.parametrize("path", ["/far/break-off?bytes=500000", "/far/break-chunked"])
async def test_a_large_answer_that_breaks_off_breaks_off_here_too(upstream: Upstream, path: str) -> None:
    reply = await through(upstream, asking(path))
    with pytest.raises(UpstreamError):
        await content(reply)
    assert upstream.in_use == 0


async def test_a_silent_cluster_is_a_timeout(far: FakeCluster) -> None:
    async with connected(far, Limits(response_header_seconds=0.1)) as upstream:
        error = await refusal(upstream, asking("/far/never"))
        assert isinstance(error, Timeout)
        assert upstream.in_use == 0


async def test_a_dead_cluster_is_unavailable(far: FakeCluster, upstream: Upstream) -> None:
    far.stop()
    error = await refusal(upstream, asking("/version"))
    assert isinstance(error, Unavailable)
    assert error.message.startswith('cluster "c": ')


async def test_a_cluster_with_a_strangers_certificate_is_a_bad_gateway() -> None:
    with FakeCluster(manner=ClusterBehaviour(names=("elsewhere.example",))) as far:
        async with connected(far) as upstream:
            assert isinstance(await refusal(upstream, asking("/version")), BadGateway)
            assert far.seen == []


def asked_by(name: str, path: str, verb: str = "get") -> Call:
    call = asking(path, target=RequestInfo(verb, path))
    call.user = User(name)
    return call


async def let_go(*replies: Reply) -> None:
    for reply in replies:
        assert reply.stream is not None
        await anext(reply.stream)
        await reply.stream.aclose()  # type: ignore[attr-defined]


async def test_a_cluster_with_too_much_to_do_says_when_to_come_again(far: FakeCluster) -> None:
    async with connected(far, Limits(max_requests=4, max_queued=0)) as upstream:
        streams = [await through(upstream, asked_by(name, "/far/ticks")) for name in "abcd"]
        error = await refusal(upstream, asking("/version"))
        assert isinstance(error, Unavailable)
        assert error.details.retry_after == 1
        await let_go(*streams)
        await through(upstream, asking("/version"))


async def test_one_user_cannot_take_all_of_a_cluster(far: FakeCluster) -> None:
    async with connected(far, Limits(max_requests=8)) as upstream:
        streams = [await through(upstream, asked_by("eve", "/far/ticks", "watch")) for _ in range(2)]
        for path, verb in (("/version", "get"), ("/far/ticks", "watch")):
            error = await refusal(upstream, asked_by("eve", path, verb))
            assert isinstance(error, TooManyRequests)
            assert error.details.retry_after == 1 and "your limit" in error.message
        assert (await through(upstream, asked_by("ada", "/version"))).status == 200
        await let_go(*streams)
        for _ in range(5):
            assert (await through(upstream, asked_by("eve", "/version"))).status == 200


async def test_requests_that_fail_hold_no_share(far: FakeCluster) -> None:
    async with connected(far, Limits(max_requests=4)) as upstream:
        for path in ("/far/hang-up", "/far/break-off", "/far/redirect", "/far/garbage"):
            await refusal(upstream, asked_by("ada", path, "watch"))
        assert (await through(upstream, asked_by("ada", "/version"))).status == 200


async def test_watches_of_many_users_leave_room_for_short_requests(far: FakeCluster) -> None:
    async with connected(far, Limits(max_requests=4)) as upstream:
        streams = [await through(upstream, asked_by(name, "/far/ticks", "watch")) for name in "abc"]
        error = await refusal(upstream, asked_by("d", "/far/ticks", "watch"))
        assert isinstance(error, Unavailable) and error.details.retry_after == 1
        for said in ("true", "1", "yes", ""):
            following = asked_by("d", "/far/ticks")
            following.query = {"follow": [said]}
            assert isinstance(await refusal(upstream, following), Unavailable)
        assert (await through(upstream, asked_by("d", "/version"))).status == 200
        await let_go(*streams)


async def test_an_answer_that_took_long_is_for_those_who_still_may(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "RECHECK_SECONDS", 0.05)
    call = asking("/far/slow?seconds=0.1")

    def gone() -> None:
        raise Unauthorized

    call.guard = FakeGuard(gone)
    with pytest.raises(Unauthorized):
        await through(upstream, call)
    quick = asking("/version")
    quick.guard = FakeGuard(gone)
    assert (await through(upstream, quick)).status == 200
