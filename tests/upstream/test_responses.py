"""Every way in which a cluster can answer, or fail to."""

import asyncio
import json

import pytest

from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.errors import ProtocolError, TimedOut, Unreachable
from fairlead.upstream.upstream import Limits, Request
from tests.fake_cluster.behaviours import sending
from tests.fake_cluster.exchange import Answer
from tests.fake_cluster.server import FakeCluster
from tests.upstream.upstreams import MUCH, asked, got, reaching, until

OK = b"HTTP/1.1 200 OK\r\n"


async def test_an_answer_comes_back_whole(fake_cluster: FakeCluster) -> None:
    fake_cluster.answer("/x", Answer(200, b'{"a":1}', headers={"X-Cluster": "yes"}))
    async with reaching(fake_cluster) as upstream:
        response = await asked(upstream, "/x?y=%20z")
        assert response.status == 200
        assert ("x-cluster", "yes") in response.headers
        assert await response.read(MUCH) == b'{"a":1}'
    assert fake_cluster.seen[0].target == "/x?y=%20z"


async def test_connections_are_used_again(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        for _ in range(5):
            await got(upstream, "/version")
        assert upstream.in_use == 0
    assert fake_cluster.connections == 1


@pytest.mark.parametrize("target", ["/far/huge?bytes=3000000", "/far/chunked?bytes=3000000&size=1000"])
async def test_large_bodies_come_in_pieces(fake_cluster: FakeCluster, target: str) -> None:
    async with reaching(fake_cluster) as upstream:
        response = await asked(upstream, target)
        sizes = []
        while chunk := await response.read_chunk():
            sizes.append(len(chunk))
        assert sum(sizes) == 3_000_000
        assert len(sizes) > 1
        await got(upstream, "/version")
    assert fake_cluster.connections == 1


async def test_a_body_that_nobody_takes_is_not_read_into_memory(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        response = await asked(upstream, "/far/huge?bytes=60000000")
        await asyncio.sleep(0.3)
        assert response.buffered_body() is None
        assert 0 < len(await response.read_chunk()) < 2_000_000
        await response.close()


async def test_a_body_past_its_limit_is_broken_off(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        response = await asked(upstream, "/far/huge?bytes=60000000")
        with pytest.raises(ProtocolError, match="larger than 1000 bytes"):
            await response.read(1000)
        assert upstream.in_use == 0


async def test_a_small_answer_is_there_at_once(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        response = await asked(upstream, "/version")
        assert json.loads(response.buffered_body() or b"")["gitVersion"] == "v1.34.1"


async def test_a_stream_comes_as_it_is_made(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        response = await asked(upstream, "/far/ticks?seconds=0.01")
        assert await response.read_chunk() == b"tick 0\n"
        assert (await response.read_chunk()).startswith(b"tick 1\n")
        await response.close()
        await response.close()
        assert upstream.in_use == 0


async def test_answers_without_a_body_leave_the_connection_usable(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        head = await asked(upstream, "/version", "HEAD")
        assert dict(head.headers)["content-length"] == "81"
        assert await head.read(MUCH) == b""
        assert await got(upstream, "/far/status?code=204") == b""
        assert (await asked(upstream, "/far/status?code=304")).status == 304
        assert json.loads(await got(upstream, "/version"))
    assert fake_cluster.connections == 1


async def test_t21_a_redirect_is_an_answer_and_is_not_followed(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        response = await asked(upstream, f"/far/redirect?to={fake_cluster.url}/elsewhere")
        assert response.status == 302
        await response.read(MUCH)
    assert len(fake_cluster.seen) == 1


async def test_interim_answers_are_passed_over(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        assert await got(upstream, "/far/continue") == b'"at last"'


async def test_a_body_without_length_ends_with_the_connection(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        assert await got(upstream, "/far/until-closed?bytes=1000") == b"x" * 1000


async def test_a_last_answer_is_the_last_of_its_connection(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        assert await got(upstream, "/far/last") == b'"last"'
        await got(upstream, "/version")
    assert fake_cluster.connections == 2


async def test_a_connection_that_was_closed_meanwhile_is_replaced(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        for _ in range(10):
            await got(upstream, "/far/drop-idle")
        assert fake_cluster.connections == 10


async def test_a_request_that_may_have_been_heard_is_not_repeated(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        await got(upstream, "/version")
        with pytest.raises(Unreachable):
            await upstream.send(Request("POST", "/far/hang-up", (), b"{}"))
        await got(upstream, "/version")
        with pytest.raises(Unreachable):
            await upstream.send(Request("GET", "/far/hang-up"))
    # The GET came by a used connection first, which might have been an old one, and then by one of its own.
    assert [each for each in fake_cluster.paths() if "hang-up" in each] == [
        "POST /far/hang-up",
        "GET /far/hang-up",
        "GET /far/hang-up",
    ]


@pytest.mark.parametrize("target", ["/far/break-off?bytes=10", "/far/break-chunked"])
async def test_a_body_that_breaks_off_is_no_short_body(fake_cluster: FakeCluster, target: str) -> None:
    async with reaching(fake_cluster) as upstream:
        response = await asked(upstream, target)
        with pytest.raises(ProtocolError, match="in the middle"):
            await response.read(MUCH)
        assert upstream.in_use == 0


@pytest.mark.parametrize("target", ["/far/garbage", "/far/long-head?bytes=70000", "/far/switch"])
async def test_an_answer_that_is_no_http_is_broken(fake_cluster: FakeCluster, target: str) -> None:
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(ProtocolError):
            await asked(upstream, target)
        assert upstream.in_use == 0


SMUGGLED = {
    "both lengths": OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": OK + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    "signed length": OK + b"content-length: +3\r\n\r\nabc",
    "folded header": OK + b"x: a\r\n b\r\ncontent-length: 0\r\n\r\n",
    "bare line feed": OK + b"x: a\ny: b\r\ncontent-length: 0\r\n\r\n",
    "space before colon": OK + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "strange encoding": OK + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "encoding after chunked": OK + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "NUL": OK + b"x: a\0b\r\ncontent-length: 0\r\n\r\n",
    "other version": b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    "many small headers": OK + b"x: yyyyyyy\r\n" * 10_000 + b"content-length: 0\r\n\r\n",
    "endless interim": b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
}
SMUGGLED_CHUNKS = {
    "bad size": b"0x3\r\nabc\r\n0\r\n\r\n",
    "space after size": b"3 \r\nabc\r\n0\r\n\r\n",
    "bare line feed": b"3\nabc\r\n0\r\n\r\n",
    "too long": b"3\r\nabcd\r\n0\r\n\r\n",
    "negative": b"-3\r\nabc\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("name", SMUGGLED)
async def test_t25_a_head_that_can_be_read_two_ways_is_broken(fake_cluster: FakeCluster, name: str) -> None:
    fake_cluster.behave("/smuggle", sending(SMUGGLED[name]))
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(ProtocolError):
            await asked(upstream, "/smuggle")
        await got(upstream, "/version")
    assert fake_cluster.seen[0].connection != fake_cluster.seen[1].connection


@pytest.mark.parametrize("name", SMUGGLED_CHUNKS)
async def test_t25_chunks_that_can_be_read_two_ways_are_broken(fake_cluster: FakeCluster, name: str) -> None:
    fake_cluster.behave("/smuggle", sending(OK + b"transfer-encoding: chunked\r\n\r\n" + SMUGGLED_CHUNKS[name]))
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(ProtocolError):
            await got(upstream, "/smuggle")
        await got(upstream, "/version")
    assert fake_cluster.seen[0].connection != fake_cluster.seen[1].connection


async def test_t25_bytes_after_an_answer_are_never_the_next_answer(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        assert await got(upstream, "/far/extra") == b"ok"
        assert b"evil" not in await got(upstream, "/version")
    assert fake_cluster.seen[0].connection != fake_cluster.seen[1].connection


async def test_headers_between_the_cluster_and_us_go_no_further(fake_cluster: FakeCluster) -> None:
    headers = {"Connection": "keep-alive, X-Hop", "X-Hop": "1", "Keep-Alive": "timeout=5", "X-End": "2"}
    fake_cluster.answer("/x", Answer(200, b"", "text/plain", headers))
    async with reaching(fake_cluster) as upstream:
        names = {name for name, _ in (await asked(upstream, "/x")).headers}
    assert names == {"content-type", "content-length", "x-end"}


@pytest.mark.parametrize("target", ["/far/never", "/far/stall"])
async def test_a_deadline_holds_to_the_end_of_the_body(fake_cluster: FakeCluster, target: str) -> None:
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(TimedOut):
            await (await asked(upstream, target, seconds=0.1)).read(MUCH)
        assert upstream.in_use == 0


async def test_a_head_that_never_comes_is_waited_for_so_long_only(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster, Limits(response_header_seconds=0.1)) as upstream:
        with pytest.raises(TimedOut):
            await asked(upstream, "/far/never")
        assert b"tick 39" in await got(upstream, "/far/ticks?count=40&seconds=0.01")


async def test_a_request_that_nobody_waits_for_any_more_is_broken_off(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        waiting = asyncio.create_task(asked(upstream, "/far/never"))
        await until(lambda: bool(fake_cluster.seen))
        waiting.cancel()
        await asyncio.wait([waiting])
        assert upstream.in_use == 0


async def test_giving_up_just_when_the_answer_has_come_harms_nobody(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        for _ in range(20):
            giving_up = asyncio.create_task(asked(upstream, "/version"))
            asyncio.get_running_loop().call_later(0.001, giving_up.cancel)
            await asyncio.wait([giving_up])
            assert b"v1.34.1" in await got(upstream, "/version")
        assert upstream.in_use == 0


def test_the_text_of_an_access_shows_no_credential() -> None:
    access = ClusterEndpoint("h", 1, "", "h", "", "secret-token", "secret-certificate", "secret-key")
    assert "secret" not in repr(access)
