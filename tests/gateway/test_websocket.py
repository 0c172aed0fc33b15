"""Tests of `fairlead.gateway.websocket`: exec and port-forward with the framing of Kubernetes."""

import asyncio
from typing import Any

import pytest

from fairlead.core.call import Call, Reply
from fairlead.core.errors import ApiError, BadGateway, Forbidden, TooManyRequests, Unavailable
from fairlead.core.user import User
from fairlead.gateway import websocket
from fairlead.upstream.access import Limits
from fairlead.upstream.upstream import Upstream
from tests.fake_cluster.exchange import CannedResponse, RecordedRequest
from tests.fake_cluster.exec_websockets import FAILURE, SUCCESS
from tests.fake_cluster.server import FakeCluster
from tests.gateway.gateway_calls import STORED_TOKEN, WebSocketClient, build_call, connect_upstream, forward_call
from tests.harness.calls import FakeGuard
from tests.harness.eventually import eventually

EXEC_PATH = "/api/v1/namespaces/n/pods/p/exec?command=sh&stdin=true"
V5_PROTOCOL = "v5.channel.k8s.io"
CLOSE_FRAMES = [((1000, ""), 1000), ((1005, ""), 1000), ((1006, ""), 1011), ((4001, "x"), 4001)]


def build_websocket_call(path: str = EXEC_PATH, *protocols: str, headers: dict[str, Any] | None = None) -> Call:
    call = build_call(path, headers=headers)
    call.is_websocket = True
    call.subprotocols = protocols or (V5_PROTOCOL,)
    return call


def start_tunnel(reply: Reply, client: WebSocketClient) -> "asyncio.Task[None]":
    assert reply.status == 101
    assert reply.upgrade is not None
    return asyncio.ensure_future(reply.upgrade.run(client))


async def test_exec_impersonates_the_user(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    hostile_headers = {
        "authorization": "Bearer mine",
        "impersonate-user": "root",
        "cookie": "a=b",
        "origin": "https://evil",
    }
    reply = await forward_call(upstream, build_websocket_call(headers=hostile_headers))
    assert reply.upgrade is not None
    assert reply.upgrade.subprotocol == V5_PROTOCOL
    request = fake_cluster.requests[0]
    assert request.target == EXEC_PATH
    assert request.header_values("authorization") == [f"Bearer {STORED_TOKEN}"]
    assert request.header_values("impersonate-user") == ["fairlead:anna"]
    assert request.header_values("impersonate-group") == ["fairlead:devs", "system:authenticated"]
    assert request.header("cookie") == ""
    client = WebSocketClient()
    client.outgoing.put_nowait(None)
    await start_tunnel(reply, client)


@pytest.mark.parametrize(("last_message", "expected_status"), [(b"\xff\x00", SUCCESS), (b"\x00fail\n", FAILURE)])
async def test_exec_ends_with_the_status_of_the_command(
    fake_cluster: FakeCluster, upstream: Upstream, last_message: bytes, expected_status: bytes
) -> None:
    client = WebSocketClient()
    tunnel = start_tunnel(await forward_call(upstream, build_websocket_call()), client)
    for message in (b"\x00hello\n", b"\x00" + b"x" * 3_000_000, last_message):
        client.outgoing.put_nowait(message)
    await asyncio.wait_for(tunnel, 40)
    assert client.received == [b"\x01hello\n", b"\x01" + b"x" * 3_000_000, b"\x03" + expected_status]
    assert client.close_frame == (1000, "")
    await eventually(lambda: not fake_cluster.open_connections and upstream.in_use == 0)


async def test_port_forward_does_not_change_the_data(upstream: Upstream) -> None:
    protocol = "SPDY/3.1+portforward.k8s.io"
    client = WebSocketClient()
    reply = await forward_call(
        upstream, build_websocket_call("/api/v1/namespaces/n/pods/p/portforward", protocol, V5_PROTOCOL)
    )
    assert reply.upgrade is not None
    tunnel = start_tunnel(reply, client)
    messages: list[bytes | str] = [bytes(range(256)), b"", "text", b"\x80\x03\x00\x01" * 100_000]
    for message in messages:
        client.outgoing.put_nowait(message)
    await eventually(lambda: len(client.received) == len(messages))
    assert client.received == messages
    client.outgoing.put_nowait(None)
    await tunnel


async def test_t23_a_credential_in_the_subprotocols_is_not_forwarded(
    fake_cluster: FakeCluster, upstream: Upstream
) -> None:
    token = "base64url.bearer.authorization.k8s.io.Y2FsbGVycw"
    reply = await forward_call(upstream, build_websocket_call(EXEC_PATH, token, V5_PROTOCOL))
    assert b"Y2FsbGVycw" not in fake_cluster.requests[0].head
    client = WebSocketClient()
    client.outgoing.put_nowait(None)
    await start_tunnel(reply, client)


async def test_a_client_that_disconnects_closes_the_websocket_to_the_cluster(
    fake_cluster: FakeCluster, upstream: Upstream
) -> None:
    client = WebSocketClient()
    tunnel = start_tunnel(await forward_call(upstream, build_websocket_call()), client)
    client.outgoing.put_nowait(None)
    await tunnel
    await eventually(lambda: not fake_cluster.open_connections and upstream.in_use == 0)


async def test_a_cluster_that_disconnects_closes_the_websocket_to_the_client(upstream: Upstream) -> None:
    client = WebSocketClient()
    await asyncio.wait_for(start_tunnel(await forward_call(upstream, build_websocket_call("/fake/slam")), client), 40)
    assert client.close_frame == (1011, "the connection to the cluster was interrupted")


@pytest.mark.parametrize(("close_frame", "expected_code"), CLOSE_FRAMES)
def test_the_close_code_of_the_cluster_is_forwarded_if_it_is_valid(
    close_frame: tuple[int, str], expected_code: int
) -> None:
    assert websocket.client_close_reason(*close_frame)[0] == expected_code


async def test_a_server_that_stops_closes_both_websockets(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    client = WebSocketClient()
    tunnel = start_tunnel(await forward_call(upstream, build_websocket_call()), client)
    await asyncio.sleep(0.01)
    tunnel.cancel()
    await asyncio.gather(tunnel, return_exceptions=True)
    assert client.close_frame is not None
    assert client.close_frame[0] == 1001
    await eventually(lambda: not fake_cluster.open_connections)


async def test_a_revoked_key_closes_the_websocket(
    fake_cluster: FakeCluster, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "RECHECK_SECONDS", 0.03)
    rechecks = 0

    def recheck() -> None:
        nonlocal rechecks
        rechecks += 1
        if rechecks > 2:
            raise Forbidden("the key was revoked")

    call, client = build_websocket_call(), WebSocketClient()
    call.guard = FakeGuard(recheck)
    await asyncio.wait_for(start_tunnel(await forward_call(upstream, call), client), 40)
    assert client.close_frame == (1008, "the key was revoked")
    await eventually(lambda: not fake_cluster.open_connections and upstream.in_use == 0)


async def test_t20_a_rejected_upgrade_leaves_no_connection_open(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    reply = await forward_call(upstream, build_websocket_call("/fake/refuse"))
    assert (reply.status, reply.upgrade) == (403, None)
    assert b"exec is forbidden" in reply.body
    await eventually(lambda: not fake_cluster.open_connections and upstream.in_use == 0)


@pytest.mark.parametrize("status", [200, 204, 301, 302, 307, 401])
async def test_t20_only_a_101_switches_protocols(fake_cluster: FakeCluster, upstream: Upstream, status: int) -> None:
    reply = await request_websocket(fake_cluster, upstream, status)
    if status in (200, 204):
        assert isinstance(reply, Reply)
        assert (reply.status, reply.upgrade) == (status, None)
    else:
        assert isinstance(reply, BadGateway)
        assert "elsewhere" not in reply.message
    await eventually(lambda: not fake_cluster.open_connections and upstream.in_use == 0)


async def request_websocket(fake_cluster: FakeCluster, upstream: Upstream, status: int) -> Reply | ApiError:
    """Requests a WebSocket; the cluster responds with another status and keeps the connection open."""

    async def respond(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(CannedResponse(status, b"", headers={"location": "https://elsewhere.example/"}).encode("GET"))
        await writer.drain()
        await reader.read()
        return False

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("tests.fake_cluster.server.serve_websocket", respond)
        try:
            return await forward_call(upstream, build_websocket_call())
        except ApiError as error:
            return error


async def test_a_stopped_cluster_is_unavailable(fake_cluster: FakeCluster, upstream: Upstream) -> None:
    fake_cluster.stop()
    with pytest.raises(Unavailable):
        await forward_call(upstream, build_websocket_call())


async def test_a_client_that_disconnects_before_the_accept_leaves_no_connection_open(
    fake_cluster: FakeCluster, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "ACCEPT_SECONDS", 0.03)
    await forward_call(upstream, build_websocket_call())
    await eventually(lambda: not fake_cluster.open_connections and upstream.in_use == 0)


async def test_one_user_cannot_use_all_websockets_of_a_cluster(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(max_websockets=8)) as upstream:
        clients = [WebSocketClient(), WebSocketClient()]
        tunnels = [start_tunnel(await forward_call(upstream, build_websocket_call()), client) for client in clients]
        with pytest.raises(TooManyRequests, match="2 concurrent WebSockets") as caught:
            await forward_call(upstream, build_websocket_call())
        assert caught.value.details.retry_after == 1
        other = build_websocket_call()
        other.user = User("ada")
        clients.append(WebSocketClient())
        tunnels.append(start_tunnel(await forward_call(upstream, other), clients[-1]))
        for client in clients:
            client.outgoing.put_nowait(None)
        await asyncio.gather(*tunnels)
        await eventually(lambda: upstream.in_use == 0)
        for _ in range(3):
            assert (await forward_call(upstream, build_websocket_call("/fake/refuse"))).status == 403
        client = WebSocketClient()
        client.outgoing.put_nowait(None)
        await start_tunnel(await forward_call(upstream, build_websocket_call()), client)


class SlowClient(WebSocketClient):
    """Reads the close frame only after `has_read` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.has_read = asyncio.Event()

    async def close(self, code: int, reason: str) -> None:
        await super().close(code, reason)
        await self.has_read.wait()


async def test_a_websocket_counts_until_its_client_has_read_the_close_frame(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(max_websockets=4)) as upstream:
        client = SlowClient()
        tunnel = start_tunnel(await forward_call(upstream, build_websocket_call()), client)
        client.outgoing.put_nowait(b"\xff\x00")
        await eventually(lambda: client.close_frame is not None and upstream.in_use == 0)
        with pytest.raises(TooManyRequests, match="1 concurrent WebSockets"):
            await forward_call(upstream, build_websocket_call())
        client.has_read.set()
        await tunnel
        second_client = WebSocketClient()
        second_client.outgoing.put_nowait(None)
        await start_tunnel(await forward_call(upstream, build_websocket_call()), second_client)
