"""WebSockets through a gateway: exec and port-forward as Kubernetes frames them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from fairlead.core.call import Call, Reply
from fairlead.core.errors import ApiError, BadGateway, Forbidden, TooManyRequests, Unavailable
from fairlead.core.user import User
from fairlead.gateway import websocket as tunnelling
from fairlead.upstream.access import Limits
from fairlead.upstream.upstream import Upstream
from tests.fake_cluster.exchange import Answer, RecordedRequest
from tests.fake_cluster.exec_websockets import FAILURE, SUCCESS
from tests.fake_cluster.server import FakeCluster
from tests.gateway.gateway_calls import STORED, Client, asking, connected, through, until
from tests.harness.calls import FakeGuard

EXEC = "/api/v1/namespaces/n/pods/p/exec?command=sh&stdin=true"
V5 = "v5.channel.k8s.io"
GOODBYES = [((1000, ""), 1000), ((1005, ""), 1000), ((1006, ""), 1011), ((4001, "x"), 4001)]


@pytest.fixture
def far() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        yield made


@pytest.fixture
async def upstream(far: FakeCluster) -> AsyncIterator[Upstream]:
    async with connected(far) as made:
        yield made


def socket(path: str = EXEC, *protocols: str, headers: dict[str, Any] | None = None) -> Call:
    call = asking(path, headers=headers)
    call.is_websocket = True
    call.subprotocols = protocols or (V5,)
    return call


def running(reply: Reply, client: Client) -> "asyncio.Task[None]":
    assert reply.status == 101
    assert reply.upgrade is not None
    return asyncio.ensure_future(reply.upgrade.run(client))


async def test_exec_goes_through_as_its_user(far: FakeCluster, upstream: Upstream) -> None:
    evil = {"authorization": "Bearer mine", "impersonate-user": "root", "cookie": "a=b", "origin": "https://evil"}
    reply = await through(upstream, socket(headers=evil))
    assert reply.upgrade is not None
    assert reply.upgrade.subprotocol == V5
    asked = far.seen[0]
    assert asked.target == EXEC
    assert asked.all("authorization") == [f"Bearer {STORED}"]
    assert asked.all("impersonate-user") == ["fairlead:anna"]
    assert asked.all("impersonate-group") == ["fairlead:devs", "system:authenticated"]
    assert asked.header("cookie") == ""
    client = Client()
    client.said.put_nowait(None)
    await running(reply, client)


@pytest.mark.parametrize(("last", "outcome"), [(b"\xff\x00", SUCCESS), (b"\x00fail\n", FAILURE)])
async def test_exec_ends_with_its_outcome(far: FakeCluster, upstream: Upstream, last: bytes, outcome: bytes) -> None:
    client = Client()
    over = running(await through(upstream, socket()), client)
    for message in (b"\x00hello\n", b"\x00" + b"x" * 3_000_000, last):
        client.said.put_nowait(message)
    await asyncio.wait_for(over, 10)
    assert client.heard == [b"\x01hello\n", b"\x01" + b"x" * 3_000_000, b"\x03" + outcome]
    assert client.goodbye == (1000, "")
    await until(lambda: not far.open and upstream.in_use == 0)


async def test_port_forward_passes_every_byte_as_it_is(upstream: Upstream) -> None:
    protocol = "SPDY/3.1+portforward.k8s.io"
    client = Client()
    reply = await through(upstream, socket("/api/v1/namespaces/n/pods/p/portforward", protocol, V5))
    assert reply.upgrade is not None
    over = running(reply, client)
    messages: list[bytes | str] = [bytes(range(256)), b"", "text", b"\x80\x03\x00\x01" * 100_000]
    for message in messages:
        client.said.put_nowait(message)
    await until(lambda: len(client.heard) == len(messages))
    assert client.heard == messages
    client.said.put_nowait(None)
    await over


async def test_t23_a_credential_among_the_subprotocols_stays_here(far: FakeCluster, upstream: Upstream) -> None:
    token = "base64url.bearer.authorization.k8s.io.Y2FsbGVycw"
    reply = await through(upstream, socket(EXEC, token, V5))
    assert b"Y2FsbGVycw" not in far.seen[0].head
    client = Client()
    client.said.put_nowait(None)
    await running(reply, client)


async def test_a_client_that_leaves_ends_the_far_side(far: FakeCluster, upstream: Upstream) -> None:
    client = Client()
    over = running(await through(upstream, socket()), client)
    client.said.put_nowait(None)
    await over
    await until(lambda: not far.open and upstream.in_use == 0)


async def test_a_far_side_that_hangs_up_ends_the_client(upstream: Upstream) -> None:
    client = Client()
    await asyncio.wait_for(running(await through(upstream, socket("/far/slam")), client), 10)
    assert client.goodbye == (1011, "the connection to the cluster was interrupted")


@pytest.mark.parametrize(("said", "told"), GOODBYES)
def test_a_goodbye_of_the_cluster_is_passed_on_if_it_can_be(said: tuple[int, str], told: int) -> None:
    assert tunnelling.client_close_reason(*said)[0] == told


async def test_a_server_that_stops_says_goodbye_to_both(far: FakeCluster, upstream: Upstream) -> None:
    client = Client()
    over = running(await through(upstream, socket()), client)
    await asyncio.sleep(0.01)
    over.cancel()
    await asyncio.gather(over, return_exceptions=True)
    assert client.goodbye is not None
    assert client.goodbye[0] == 1001
    await until(lambda: not far.open)


async def test_a_revoked_key_closes_the_socket(
    far: FakeCluster, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnelling, "RECHECK_SECONDS", 0.03)
    looks = 0

    def recheck() -> None:
        nonlocal looks
        looks += 1
        if looks > 2:
            raise Forbidden("the key is gone")

    call, client = socket(), Client()
    call.guard = FakeGuard(recheck)
    await asyncio.wait_for(running(await through(upstream, call), client), 10)
    assert client.goodbye == (1008, "the key is gone")
    await until(lambda: not far.open and upstream.in_use == 0)


async def test_t20_an_upgrade_that_is_refused_leaves_no_connection(far: FakeCluster, upstream: Upstream) -> None:
    reply = await through(upstream, socket("/far/refuse"))
    assert (reply.status, reply.upgrade) == (403, None)
    assert b"no exec for you" in reply.body
    await until(lambda: not far.open and upstream.in_use == 0)


@pytest.mark.parametrize("status", [200, 204, 301, 302, 307, 401])
async def test_t20_only_a_101_switches(far: FakeCluster, upstream: Upstream, status: int) -> None:
    reply = await attempt(far, upstream, status)
    if status in (200, 204):
        assert isinstance(reply, Reply)
        assert (reply.status, reply.upgrade) == (status, None)
    else:
        assert isinstance(reply, BadGateway)
        assert "elsewhere" not in reply.message
    await until(lambda: not far.open and upstream.in_use == 0)


async def attempt(far: FakeCluster, upstream: Upstream, status: int) -> Reply | ApiError:
    """A WebSocket is asked for, and the far side answers with something else and keeps the connection open."""

    async def answering(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(Answer(status, b"", headers={"location": "https://elsewhere.example/"}).wire("GET"))
        await writer.drain()
        await reader.read()
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.fake_cluster.server.socket", answering)
        try:
            return await through(upstream, socket())
        except ApiError as error:
            return error


async def test_a_dead_cluster_is_an_answer_and_no_socket(far: FakeCluster, upstream: Upstream) -> None:
    far.stop()
    with pytest.raises(Unavailable):
        await through(upstream, socket())


async def test_a_client_that_is_gone_before_it_is_accepted_keeps_nothing_open(
    far: FakeCluster, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnelling, "ACCEPT_SECONDS", 0.03)
    await through(upstream, socket())
    await until(lambda: not far.open and upstream.in_use == 0)


async def test_one_user_cannot_open_all_sockets_of_a_cluster(far: FakeCluster) -> None:
    async with connected(far, Limits(max_websockets=8)) as upstream:
        clients = [Client(), Client()]
        tunnels = [running(await through(upstream, socket()), client) for client in clients]
        with pytest.raises(TooManyRequests, match="2 concurrent WebSockets") as caught:
            await through(upstream, socket())
        assert caught.value.details.retry_after == 1
        other = socket()
        other.user = User("ada")
        clients.append(Client())
        tunnels.append(running(await through(upstream, other), clients[-1]))
        for client in clients:
            client.said.put_nowait(None)
        await asyncio.gather(*tunnels)
        await until(lambda: upstream.in_use == 0)
        for _ in range(3):
            assert (await through(upstream, socket("/far/refuse"))).status == 403
        client = Client()
        client.said.put_nowait(None)
        await running(await through(upstream, socket()), client)


class SlowClient(Client):
    """Takes its time to read the end."""

    def __init__(self) -> None:
        super().__init__()
        self.has_read = asyncio.Event()

    async def close(self, code: int, reason: str) -> None:
        await super().close(code, reason)
        await self.has_read.wait()


async def test_a_socket_counts_until_its_client_has_read_the_end(far: FakeCluster) -> None:
    async with connected(far, Limits(max_websockets=4)) as upstream:
        client = SlowClient()
        tunnel = running(await through(upstream, socket()), client)
        client.said.put_nowait(b"\xff\x00")
        await until(lambda: client.goodbye is not None and upstream.in_use == 0)
        with pytest.raises(TooManyRequests, match="1 concurrent WebSockets"):
            await through(upstream, socket())
        client.has_read.set()
        await tunnel
        last = Client()
        last.said.put_nowait(None)
        await running(await through(upstream, socket()), last)
