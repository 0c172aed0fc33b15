"""Revoked permissions end the open streams of a user in clusters (T-15, T-16).

Each user opens a stream of each kind: a followed log, a silent watch, an exec, and a forwarded port. Then each user is
revoked in another way, all at the same time, so that the test waits only once for ten seconds.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import httpx
import pytest
from websockets.frames import Frame, Opcode

from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.exec_websockets import build_upgrade_response
from tests.fake_cluster.pods import POD_PATH, serve_pod
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import BUSY_SECONDS, wait_until
from tests.harness.gateways import GatewayUser, connect_cluster, create_user, gateway_path, merge_patch
from tests.harness.server_process import Server, running_server
from tests.live.websocket_client import CONNECTION_ERRORS, WebSocket

REVOCATION_SECONDS = 10.0
"""Not a performance test: the time itself is guaranteed."""
SILENT_WATCH = "/silent"

Revoke = Callable[[httpx.Client, GatewayUser], None]


def disable_key(admin: httpx.Client, user: GatewayUser) -> None:
    merge_patch(admin, user.key_path, {"spec": {"disabled": True}})


def delete_key(admin: httpx.Client, user: GatewayUser) -> None:
    assert admin.delete(user.key_path).status_code == 200


def expire_key(admin: httpx.Client, user: GatewayUser) -> None:
    merge_patch(admin, user.key_path, {"spec": {"ttl": 1}})


def narrow_scope(admin: httpx.Client, user: GatewayUser) -> None:
    merge_patch(admin, user.key_path, {"spec": {"scope": {"clusters": [{"cluster": "paris"}]}}})


def disable_user(admin: httpx.Client, user: GatewayUser) -> None:
    merge_patch(admin, user.user_path, {"spec": {"disabled": True}})


def delete_user(admin: httpx.Client, user: GatewayUser) -> None:
    assert admin.delete(user.user_path).status_code == 200


def remove_use_permission(admin: httpx.Client, user: GatewayUser) -> None:
    assert admin.delete(user.binding_path).status_code == 200


def keep_everything(admin: httpx.Client, user: GatewayUser) -> None:
    """Revokes nothing; the streams must stay open."""


REVOCATIONS: tuple[Revoke, ...] = (
    disable_key, delete_key, expire_key, narrow_scope, disable_user, delete_user, remove_use_permission,
    keep_everything,
)  # fmt: skip
STREAMS = ("log", "watch", "exec", "port-forward")
UNREAD_PATHS = ("/output/log", "/output/exec")
"""Endless output that the client never reads, so that all buffers are full."""


@dataclass
class OpenStream:
    """An open stream, and when and how it ended."""

    ended: threading.Event = field(default_factory=threading.Event)
    ended_at: float = 0.0
    code: int = 0
    """The close code of a WebSocket."""

    def wait(self, read: Callable[[], None]) -> None:
        """Runs `read` in a thread until it returns or raises an error of the connection."""

        def run() -> None:
            with suppress(httpx.HTTPError, *CONNECTION_ERRORS):
                read()
            self.ended_at = time.monotonic()
            self.ended.set()

        threading.Thread(target=run, daemon=True).start()


async def send_endlessly(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Sends without end, as fast as the connection allows."""
    if request.header("upgrade"):
        writer.write(build_upgrade_response(request))
        frame = Frame(Opcode.BINARY, bytes(60_000)).serialize(mask=False)
    else:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n")
        frame = b"%x\r\n%b\r\n" % (60_000, bytes(60_000))
    while True:
        writer.write(frame)
        await writer.drain()


def open_unread_streams(server: Server, user: GatewayUser, stack: ExitStack) -> None:
    client = stack.enter_context(server.client(user.key))
    stack.enter_context(client.stream("GET", gateway_path("oslo") + UNREAD_PATHS[0]))
    stack.enter_context(WebSocket(server, gateway_path("oslo") + UNREAD_PATHS[1], user.key, "v5.channel.k8s.io"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The streams of each user, and when the users were revoked."""

    streams: dict[tuple[str, str], OpenStream]
    revoked_at: float
    cluster: FakeCluster
    later_statuses: dict[str, int]
    """The status of one more request of each user."""


def open_http_stream(client: httpx.Client, path: str, stack: ExitStack) -> OpenStream:
    response = stack.enter_context(client.stream("GET", gateway_path("oslo") + path, timeout=httpx.Timeout(60)))
    assert response.status_code == 200
    stream = OpenStream()

    def read() -> None:
        for _ in response.iter_raw():
            pass

    stream.wait(read)
    return stream


def open_websocket(server: Server, key: str, path: str, protocol: str, stack: ExitStack) -> OpenStream:
    connection = stack.enter_context(WebSocket(server, gateway_path("oslo") + path, key, protocol))
    connection.set_timeout(60)
    stream = OpenStream()

    def read() -> None:
        while connection.receive() is not None:
            pass
        stream.code = connection.code

    stream.wait(read)
    return stream


def open_streams(server: Server, user: GatewayUser, stack: ExitStack) -> dict[str, OpenStream]:
    client = stack.enter_context(server.client(user.key))
    forward = "SPDY/3.1+portforward.k8s.io"
    return {
        "log": open_http_stream(client, f"{POD_PATH}/log?follow=true", stack),
        "watch": open_http_stream(client, SILENT_WATCH, stack),
        "exec": open_websocket(server, user.key, f"{POD_PATH}/exec?command=cat&stdin=true", "v5.channel.k8s.io", stack),
        "port-forward": open_websocket(server, user.key, f"{POD_PATH}/portforward?ports=80", forward, stack),
    }


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    folder = tmp_path_factory.mktemp("revoked")
    with (
        running_server(folder / "data") as server,
        server.client() as admin,
        FakeCluster() as cluster,
        ExitStack() as stack,
    ):
        serve_pod(cluster)
        cluster.set_behaviour(SILENT_WATCH, keep_silent)
        cluster.set_behaviour(UNREAD_PATHS[0], send_endlessly)
        cluster.set_upgrade_behaviour(UNREAD_PATHS[1], send_endlessly)
        connect_cluster(admin, "oslo", cluster.build_kubeconfig())
        users = {
            revocation: create_user(admin, revocation.__name__.replace("_", "-"), "oslo", "use")
            for revocation in REVOCATIONS
        }
        streams = {revocation.__name__: open_streams(server, each, stack) for revocation, each in users.items()}
        open_unread_streams(server, users[disable_key], stack)
        assert not any(each.ended.is_set() for user_streams in streams.values() for each in user_streams.values())
        for revocation, user in users.items():
            revocation(admin, user)
        revoked_at = time.monotonic()
        all_streams = {
            (revocation, stream_type): each
            for revocation, user_streams in streams.items()
            for stream_type, each in user_streams.items()
        }
        for (name, _), each in all_streams.items():
            if name != keep_everything.__name__:
                each.ended.wait(max(0.0, revoked_at + REVOCATION_SECONDS + BUSY_SECONDS - time.monotonic()))
        later_statuses = {revocation.__name__: get_request_status(server, user) for revocation, user in users.items()}
        yield Outcome(all_streams, revoked_at, cluster, later_statuses)


async def keep_silent(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """A watch without events."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    await reader.read()
    return False


def get_request_status(server: Server, user: GatewayUser) -> int:
    with server.client(user.key) as client:
        return client.get(f"{gateway_path('oslo')}{POD_PATH}").status_code


ENDED_STREAMS = [
    (revocation.__name__, stream_type)
    for revocation in REVOCATIONS
    if revocation is not keep_everything
    for stream_type in STREAMS
]


@pytest.mark.parametrize(("revocation", "stream_type"), ENDED_STREAMS)
def test_t15_t16_open_streams_in_a_cluster_end_with_the_permission(
    outcome: Outcome, revocation: str, stream_type: str
) -> None:
    stream = outcome.streams[revocation, stream_type]
    assert stream.ended.is_set(), "the stream is still open"
    assert stream.ended_at - outcome.revoked_at <= REVOCATION_SECONDS + BUSY_SECONDS
    if stream_type in ("exec", "port-forward"):
        assert stream.code == 1008
    assert outcome.later_statuses[revocation] == (
        403 if revocation in ("narrow_scope", "remove_use_permission") else 401
    )


@pytest.mark.parametrize("stream_type", STREAMS)
def test_streams_of_a_user_who_was_not_revoked_stay_open(outcome: Outcome, stream_type: str) -> None:
    assert not outcome.streams[keep_everything.__name__, stream_type].ended.is_set()
    assert outcome.later_statuses[keep_everything.__name__] == 200


def test_t16_no_connection_of_a_revoked_user_stays_open_at_the_cluster(outcome: Outcome) -> None:
    """Except for the user who was not revoked, and one idle connection for later requests."""
    remaining = {
        each.connection
        for each in outcome.cluster.requests
        if each.header("impersonate-user") == "fairlead:keep-everything"
    }
    stream_connections = {
        each.connection
        for each in outcome.cluster.requests
        if each.path in (SILENT_WATCH, f"{POD_PATH}/log", f"{POD_PATH}/exec", f"{POD_PATH}/portforward", *UNREAD_PATHS)
    }
    assert len(stream_connections) == len(REVOCATIONS) * len(STREAMS) + len(UNREAD_PATHS)
    wait_until(
        lambda: not (stream_connections - remaining) & outcome.cluster.open_connections,
    )
