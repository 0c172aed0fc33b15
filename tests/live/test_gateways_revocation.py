"""What is taken away from somebody is gone from what they have open in clusters, too (T-15, T-16).

Everybody opens a stream of each sort: a log that is followed, a watch that says nothing, a command, and a forwarded
port. Then each loses something, all in one moment, so that the promised ten seconds pass once and not for every way.
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
from tests.harness.gateways import GatewayUser, connect, create_user, gateway_path, merge, wait_until
from tests.harness.server_process import Server, running
from tests.live.websocket_client import BROKEN, WebSocket

PROMISE = 10.0
"""Seconds. Not a measurement of speed: the promise itself is a time."""
SILENT = "/silent"

Revoke = Callable[[httpx.Client, GatewayUser], None]


def disable_key(admin: httpx.Client, someone: GatewayUser) -> None:
    merge(admin, someone.key_path, {"spec": {"disabled": True}})


def delete_key(admin: httpx.Client, someone: GatewayUser) -> None:
    assert admin.delete(someone.key_path).status_code == 200


def let_key_expire(admin: httpx.Client, someone: GatewayUser) -> None:
    merge(admin, someone.key_path, {"spec": {"ttl": 1}})


def narrow_scope(admin: httpx.Client, someone: GatewayUser) -> None:
    merge(admin, someone.key_path, {"spec": {"scope": {"clusters": [{"cluster": "paris"}]}}})


def disable_user(admin: httpx.Client, someone: GatewayUser) -> None:
    merge(admin, someone.user_path, {"spec": {"disabled": True}})


def delete_user(admin: httpx.Client, someone: GatewayUser) -> None:
    assert admin.delete(someone.user_path).status_code == 200


def take_use_away(admin: httpx.Client, someone: GatewayUser) -> None:
    assert admin.delete(someone.binding_path).status_code == 200


def nothing(admin: httpx.Client, someone: GatewayUser) -> None:
    """Who keeps everything keeps what is open."""


WAYS: tuple[Revoke, ...] = (
    disable_key, delete_key, let_key_expire, narrow_scope, disable_user, delete_user, take_use_away, nothing,
)  # fmt: skip
STREAMS = ("log", "watch", "exec", "port-forward")
UNREAD = ("/flood/log", "/flood/exec")
"""What a cluster sends without end and its client never reads: everything on the way is full."""


@dataclass
class Open:
    """Something that is open, and when and how it ended."""

    ended: threading.Event = field(default_factory=threading.Event)
    at: float = 0.0
    code: int = 0
    """Of a WebSocket's goodbye."""

    def wait(self, taken: Callable[[], None]) -> None:
        """In a thread of its own, until `taken` returns or complains."""

        def run() -> None:
            with suppress(httpx.HTTPError, *BROKEN):
                taken()
            self.at = time.monotonic()
            self.ended.set()

        threading.Thread(target=run, daemon=True).start()


async def flood(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Says that it has begun by no more than having begun: to wait until there is room again is all that it does."""
    if asked.header("upgrade"):
        writer.write(build_upgrade_response(asked))
        frame = Frame(Opcode.BINARY, bytes(60_000)).serialize(mask=False)
    else:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n")
        frame = b"%x\r\n%b\r\n" % (60_000, bytes(60_000))
    while True:
        writer.write(frame)
        await writer.drain()


def leave_unread(server: Server, someone: GatewayUser, stack: ExitStack) -> None:
    client = stack.enter_context(server.client(someone.key))
    stack.enter_context(client.stream("GET", gateway_path("oslo") + UNREAD[0]))
    stack.enter_context(WebSocket(server, gateway_path("oslo") + UNREAD[1], someone.key, "v5.channel.k8s.io"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of each person's streams, and when everything was taken away."""

    streams: dict[tuple[str, str], Open]
    taken: float
    far: FakeCluster
    later: dict[str, int]
    """The status of one more request of each."""


def http_stream(client: httpx.Client, path: str, stack: ExitStack) -> Open:
    response = stack.enter_context(client.stream("GET", gateway_path("oslo") + path, timeout=httpx.Timeout(60)))
    assert response.status_code == 200
    found = Open()

    def read() -> None:
        for _ in response.iter_raw():
            pass

    found.wait(read)
    return found


def web_socket(server: Server, key: str, path: str, protocol: str, stack: ExitStack) -> Open:
    connection = stack.enter_context(WebSocket(server, gateway_path("oslo") + path, key, protocol))
    connection.patient(60)
    found = Open()

    def read() -> None:
        while connection.receive() is not None:
            pass
        found.code = connection.code

    found.wait(read)
    return found


def opened(server: Server, someone: GatewayUser, stack: ExitStack) -> dict[str, Open]:
    client = stack.enter_context(server.client(someone.key))
    forward = "SPDY/3.1+portforward.k8s.io"
    return {
        "log": http_stream(client, f"{POD_PATH}/log?follow=true", stack),
        "watch": http_stream(client, SILENT, stack),
        "exec": web_socket(server, someone.key, f"{POD_PATH}/exec?command=cat&stdin=true", "v5.channel.k8s.io", stack),
        "port-forward": web_socket(server, someone.key, f"{POD_PATH}/portforward?ports=80", forward, stack),
    }


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    folder = tmp_path_factory.mktemp("revoked")
    with running(folder / "data") as server, server.client() as admin, FakeCluster() as far, ExitStack() as stack:
        serve_pod(far)
        far.set_behaviour(SILENT, silent)
        far.set_behaviour(UNREAD[0], flood)
        far.set_upgrade_behaviour(UNREAD[1], flood)
        connect(admin, "oslo", far.build_kubeconfig())
        people = {way: create_user(admin, way.__name__.replace("_", "-"), "oslo", "use") for way in WAYS}
        streams = {way.__name__: opened(server, each, stack) for way, each in people.items()}
        leave_unread(server, people[disable_key], stack)
        assert not any(each.ended.is_set() for those in streams.values() for each in those.values())
        for way, someone in people.items():
            way(admin, someone)
        taken = time.monotonic()
        flat = {(way, sort): each for way, those in streams.items() for sort, each in those.items()}
        for (name, _), each in flat.items():
            if name != nothing.__name__:
                each.ended.wait(max(0.0, taken + PROMISE + 1 - time.monotonic()))
        later = {way.__name__: status(server, someone) for way, someone in people.items()}
        yield Outcome(flat, taken, far, later)


async def silent(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """A watch on which nothing happens."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    await reader.read()
    return False


def status(server: Server, someone: GatewayUser) -> int:
    with server.client(someone.key) as client:
        return client.get(f"{gateway_path('oslo')}{POD_PATH}").status_code


CUTS = [(way.__name__, sort) for way in WAYS if way is not nothing for sort in STREAMS]


@pytest.mark.parametrize(("way", "sort"), CUTS)
def test_t15_t16_what_is_open_in_a_cluster_ends_with_the_right_to_it(outcome: Outcome, way: str, sort: str) -> None:
    stream = outcome.streams[way, sort]
    assert stream.ended.is_set(), "it is still open"
    # The key that expires has a second to live after everything else was taken away.
    assert stream.at - outcome.taken <= PROMISE + (1 if way == let_key_expire.__name__ else 0)
    if sort in ("exec", "port-forward"):
        assert stream.code == 1008
    assert outcome.later[way] == (403 if way in ("narrow_scope", "take_use_away") else 401)


@pytest.mark.parametrize("sort", STREAMS)
def test_who_keeps_everything_keeps_what_is_open(outcome: Outcome, sort: str) -> None:
    assert not outcome.streams[nothing.__name__, sort].ended.is_set()
    assert outcome.later[nothing.__name__] == 200


def test_t16_nothing_stays_open_at_the_cluster(outcome: Outcome) -> None:
    """Of those who were cut: the connections of the one who keeps everything, and one that is kept for later ones."""
    kept = {each.connection for each in outcome.far.requests if each.header("impersonate-user") == "fairlead:nothing"}
    streaming = {
        each.connection
        for each in outcome.far.requests
        if each.path in (SILENT, f"{POD_PATH}/log", f"{POD_PATH}/exec", f"{POD_PATH}/portforward", *UNREAD)
    }
    assert len(streaming) == len(WAYS) * len(STREAMS) + len(UNREAD)
    wait_until(
        lambda: not (streaming - kept) & outcome.far.open_connections,
        max(0.5, outcome.taken + PROMISE - time.monotonic()),
    )
