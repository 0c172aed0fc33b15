"""What goes out to a cluster: our credential, the request as it is, and nothing that is not the cluster's business."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from fairlead.core.errors import BadRequest
from fairlead.upstream.errors import ProtocolError, TimedOut
from fairlead.upstream.upstream import Limits, Request
from tests.fake_cluster.server import FakeCluster
from tests.upstream.upstreams import MUCH, got, reaching, until


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_the_stored_credential_and_host_are_the_only_ones_that_go_along(fake_cluster: FakeCluster) -> None:
    """T-23, T-24."""
    headers = [
        ("Authorization", "Bearer client"),
        ("authorization", "Basic client"),
        ("Cookie", "session=client"),
        ("Host", "evil.example"),
        ("X-Kept", "yes"),
    ]
    async with reaching(fake_cluster) as upstream:
        await upstream.send(Request("GET", "/x", headers))
    seen = fake_cluster.seen[0]
    assert seen.all("authorization") == ["Bearer stored-token"]
    assert seen.all("host") == [f"127.0.0.1:{fake_cluster.port}"]
    assert seen.all("cookie") == []
    assert seen.all("x-kept") == ["yes"]


async def test_hop_by_hop_headers_do_not_go_along(fake_cluster: FakeCluster) -> None:
    names = [
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Expect",
        "Proxy-Authorization",
    ]
    async with reaching(fake_cluster) as upstream:
        await upstream.send(Request("GET", "/x", [(name, "chunked") for name in names]))
    assert {name for name, _ in fake_cluster.seen[0].headers} == {"host", "authorization"}


async def test_the_path_of_the_kubeconfigs_server_comes_first(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster, base_path="/k8s/clusters/c-1") as upstream:
        await got(upstream, "/api/v1/nodes?limit=1")
    assert fake_cluster.seen[0].target == "/k8s/clusters/c-1/api/v1/nodes?limit=1"


@pytest.mark.parametrize(
    "request_",
    [
        Request("GET", "/x HTTP/1.1\r\nevil: 1\r\n\r\n"),
        Request("GET", "/x y"),
        Request("GET", "x"),
        Request("GET", "//x\x7f"),
        Request("GET", "/ü"),
        Request("GET /evil HTTP/1.1\r\n", "/x"),
        Request("GET", "/x", [("a\r\nb", "c")]),
        Request("GET", "/x", [("a:b", "c")]),
        Request("GET", "/x", [("", "c")]),
        Request("GET", "/x", [("a", "b\r\nc: d")]),
        Request("GET", "/x", [("a", "b\nc: d")]),
        Request("GET", "/x", [("a", "b\rc")]),
        Request("GET", "/x", [("a", "b\0c")]),
        Request("GET", "/x", [("a", "\u20ac")]),
    ],
)
async def test_t25_a_request_cannot_smuggle_another_one_along(fake_cluster: FakeCluster, request_: Request) -> None:
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(BadRequest):
            await upstream.send(request_)
        with pytest.raises(BadRequest):
            await upstream.open_websocket(Request("GET", "/x", [("a", "b\r\nc: d")]), ())
        assert upstream.in_use == 0
    assert fake_cluster.seen == []


async def test_a_finished_body_goes_with_its_length(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        await (await upstream.send(Request("POST", "/x", [("content-length", "99")], b"abc"))).read(MUCH)
        await (await upstream.send(Request("PUT", "/x"))).read(MUCH)
    assert fake_cluster.seen[0].body == b"abc"
    assert [each.all("content-length") for each in fake_cluster.seen] == [["3"], ["0"]]


async def test_a_streamed_body_goes_in_chunks(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        response = await upstream.send(Request("POST", "/x", (), pieces(b"a" * 100_000, b"", b"b")))
        assert len(json.loads(await response.read(MUCH))["body"]) == 100_001
        await got(upstream, "/version")
    assert fake_cluster.connections == 1


async def test_a_streamed_body_of_known_length_keeps_it(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        await (await upstream.send(Request("POST", "/x", [("Content-Length", "4")], pieces(b"ab", b"cd")))).read(MUCH)
    assert fake_cluster.seen[0].body == b"abcd"
    assert fake_cluster.seen[0].all("content-length") == ["4"]


@pytest.mark.parametrize("length", ["3", "5"])
async def test_t25_a_body_of_another_length_than_it_says_is_refused(fake_cluster: FakeCluster, length: str) -> None:
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(BadRequest, match="content-length"):
            await upstream.send(Request("POST", "/x", [("content-length", length)], pieces(b"ab", b"cd")))
        assert upstream.in_use == 0
    assert fake_cluster.seen == []


@pytest.mark.parametrize("values", [["4", "4"], ["4x"], ["-4"], ["+4"], ["9" * 30], [""], ["\u0664"]])
async def test_t25_a_length_that_is_not_one_number_is_refused(fake_cluster: FakeCluster, values: list[str]) -> None:
    headers = [("content-length", value) for value in values]
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(BadRequest):
            await upstream.send(Request("POST", "/x", headers, pieces(b"abcd")))


async def test_a_client_that_breaks_off_its_body_breaks_off_the_request(fake_cluster: FakeCluster) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise BadRequest("the body broke off")

    async with reaching(fake_cluster) as upstream:
        with pytest.raises(BadRequest, match="broke off"):
            await upstream.send(Request("POST", "/x", (), broken()))
        assert upstream.in_use == 0
    assert fake_cluster.seen == []


async def test_an_answer_before_the_end_of_the_body_is_heard(fake_cluster: FakeCluster) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.Event().wait()

    fake_cluster.early("/early", b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
    before = asyncio.all_tasks()
    async with reaching(fake_cluster) as upstream:
        response = await upstream.send(Request("POST", "/early", (), endless()))
        assert response.status == 413
        assert await response.read(MUCH) == b"no"
        await until(lambda: asyncio.all_tasks() == before)
        assert upstream.in_use == 0


async def test_a_deadline_holds_for_uploads(fake_cluster: FakeCluster) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.Event().wait()

    async with reaching(fake_cluster) as upstream:
        with pytest.raises(TimedOut):
            await upstream.send(Request("POST", "/x", (), slow()), seconds=0.1)
        assert upstream.in_use == 0


async def test_a_cluster_that_does_not_take_the_body_is_given_up(fake_cluster: FakeCluster) -> None:
    async def much() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1_000_000

    fake_cluster.early("/deaf", b"")
    async with reaching(fake_cluster, Limits(response_header_seconds=0.3)) as upstream:
        with pytest.raises(TimedOut):
            await upstream.send(Request("POST", "/deaf", (), much()))
        assert upstream.in_use == 0


async def test_closing_breaks_off_what_is_under_way(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        response = await upstream.send(Request("GET", "/far/ticks"))
        await upstream.close()
        with pytest.raises(ProtocolError):
            await response.read(MUCH)
        assert upstream.in_use == 0


@pytest.mark.parametrize(
    "target", ["/a/../b", "/a/./b", "/..", "/a/..?x=y", "/a/%2e%2E/b", "/a/.%2e", "/%2e/x", "/a/%2e?b", "/a/.."]
)
async def test_nobody_sends_a_path_with_detours(fake_cluster: FakeCluster, target: str) -> None:
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(BadRequest, match="send the resolved path"):
            await upstream.send(Request("GET", target))
    assert fake_cluster.seen == []


@pytest.mark.parametrize("target", ["/.well-known/x", "/a/..b", "/a/...", "/a?b=/../c", "/a/b.c", "/a/%2Fx"])
async def test_names_with_dots_are_no_detours(fake_cluster: FakeCluster, target: str) -> None:
    async with reaching(fake_cluster) as upstream:
        await got(upstream, target)
    assert fake_cluster.seen[0].target == target
