"""ReplicaPeers over real TLS on loopback: forwarding, replicas that do not respond, and limits of the listener."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from fairlead.core.clock import SystemClock
from fairlead.core.crypto.peer_certificates import (
    PeerAuthority,
    PeerContexts,
    build_peer_contexts,
    create_peer_authority,
)
from fairlead.links.contract import SUPERSEDED
from fairlead.links.requests import OpenRequest, Refused
from fairlead.links.sockets import SocketTransport
from fairlead.links.tls_sockets import TlsError, TlsLimits, connect_tls, serve_tls
from fairlead.subresources.workspaces import replica_peers
from fairlead.subresources.workspaces.hub import RunnerHub
from fairlead.subresources.workspaces.peers import PeerGroups
from fairlead.subresources.workspaces.replica_leases import Replica
from fairlead.subresources.workspaces.replica_peers import ReplicaPeers
from fairlead.subresources.workspaces.worker_peers import WorkerPeers
from tests.harness.eventually import TIMEOUT_SECONDS, eventually
from tests.subresources.workspaces.test_hub import REQUEST, Runner, allow, connected, converse, echo

DAY = timedelta(days=1)
AUTHORITY = create_peer_authority(datetime.now(UTC), DAY)


def listen() -> socket.socket:
    listener = socket.socket()
    listener.setblocking(False)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def count_connections(listener: socket.socket) -> int:
    """How many connections wait to be accepted."""
    count = 0
    with suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that responds does so in time, however busy the machine is."""
    monkeypatch.setattr(replica_peers, "CONNECT_SECONDS", TIMEOUT_SECONDS)
    monkeypatch.setattr(replica_peers, "ASK_SECONDS", TIMEOUT_SECONDS)


class FixedAuthority:
    def __init__(self, identity: str, folder: Path, authority: PeerAuthority = AUTHORITY) -> None:
        self.built = build_peer_contexts(authority, identity, datetime.now(UTC), DAY, folder)

    async def contexts(self) -> PeerContexts:
        return self.built


class Members:
    """The Leases of the replicas of a test."""

    def __init__(self) -> None:
        self.replicas: list[Replica] = []

    def without(self, identity: str) -> "_Others":
        return _Others(self, identity)


class _Others:
    def __init__(self, members: Members, identity: str) -> None:
        self._members, self._identity = members, identity

    def others(self) -> list[Replica]:
        return [each for each in self._members.replicas if each.identity != self._identity]


@asynccontextmanager
async def replica(
    members: Members, identity: str, folder: Path, authority: PeerAuthority = AUTHORITY
) -> AsyncIterator[RunnerHub]:
    hub, listener = RunnerHub(SystemClock(), identity), listen()
    mine = Replica(identity, "127.0.0.1", listener.getsockname()[1])
    certificates = FixedAuthority(identity, folder, authority)
    peers = ReplicaPeers(identity, hub, hub.peers, members.without(identity), certificates)
    hub.peers = PeerGroups((hub.peers, peers))
    async with peers.serve(listener):
        members.replicas.append(mine)
        yield hub


@asynccontextmanager
async def replicas(folder: Path, count: int) -> AsyncIterator[list[RunnerHub]]:
    members = Members()
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(replica(members, f"r{n}", folder)) for n in range(count)]


async def test_every_replica_reaches_a_runner_that_one_of_them_has(tmp_path: Path) -> None:
    async with replicas(tmp_path, 3) as hubs, connected(hubs[1]):
        for hub in hubs * 2:
            assert await converse(await hub.open(REQUEST)) == (b"hello" * 100_000, 7)


async def test_a_replica_forwards_to_its_own_workers(tmp_path: Path) -> None:
    members = Members()
    async with replica(members, "far", tmp_path) as far:
        first, second = (RunnerHub(SystemClock(), f"w{n}") for n in (1, 2))
        workers = [WorkerPeers(tmp_path, n, 2, hub) for n, hub in ((1, first), (2, second))]
        listener = listen()
        members.replicas.append(Replica("near", "127.0.0.1", listener.getsockname()[1]))
        certificates = FixedAuthority("near", tmp_path)
        peers = ReplicaPeers("near", first, workers[0], members.without("near"), certificates)
        second.peers = workers[1]
        async with workers[0].serve(), workers[1].serve(), peers.serve(listener), connected(second, "old") as old:
            assert await converse(await far.open(REQUEST)) == (b"hello" * 100_000, 7)
            async with connected(far, "new"):
                assert (await old.end()).code == SUPERSEDED


async def test_a_process_that_was_superseded_at_another_replica_is_rejected_everywhere(tmp_path: Path) -> None:
    async with replicas(tmp_path, 3) as hubs, connected(hubs[0], "old") as old, connected(hubs[1], "new"):
        assert (await old.end()).code == SUPERSEDED
        for hub in hubs:
            async with connected(hub, "old") as again:
                assert (await again.end()).code == SUPERSEDED
        assert await converse(await hubs[2].open(REQUEST)) == (b"hello" * 100_000, 7)


def is_decided(runners: list[Runner], hubs: list[RunnerHub]) -> bool:
    pairs = zip(runners, hubs, strict=True)
    return all(runner.running.done() or hub.is_connected("local") for runner, hub in pairs)


async def test_of_two_processes_that_connect_at_the_same_moment_at_most_one_is_accepted(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as hubs:
        for _ in range(5):
            runners = [Runner(hub, f"boot-{n}", echo, allow) for n, hub in enumerate(hubs)]
            await eventually(partial(is_decided, runners, hubs))
            assert [hub.is_connected("local") for hub in hubs].count(True) <= 1
            for runner in runners:
                runner.serving.cancel()
                await asyncio.gather(runner.serving, runner.running, return_exceptions=True)


async def test_a_runner_that_moves_is_found_again(tmp_path: Path) -> None:
    async with replicas(tmp_path, 3) as hubs:
        async with connected(hubs[0]):
            await hubs[2].open(REQUEST)
        with pytest.raises(Refused, match="is not connected since 20") as refused:
            await hubs[2].open(REQUEST)
        assert refused.value.code == 503
        async with connected(hubs[1]):
            assert await converse(await hubs[2].open(REQUEST)) == (b"hello" * 100_000, 7)


async def test_a_replica_that_does_not_respond_delays_a_request_and_the_next_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_peers, "CONNECT_SECONDS", 3.0)
    monkeypatch.setattr(replica_peers, "RETRY_SECONDS", 3600.0)
    members, silent = Members(), listen()  # it accepts connections, and says nothing
    members.replicas.append(Replica("silent", "127.0.0.1", silent.getsockname()[1]))
    with silent:
        async with replica(members, "one", tmp_path) as one, replica(members, "two", tmp_path) as two, connected(two):
            await eventually(lambda: two.is_connected("local"))
            count_connections(silent)  # that of the announcement
            for _ in range(2):
                await one.open(REQUEST)
            assert count_connections(silent) == 1


@pytest.mark.parametrize("retry_seconds", [0.0, 3600.0])
async def test_a_runner_that_may_be_connected_to_a_replica_that_does_not_respond_is_not_said_to_be_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retry_seconds: float
) -> None:
    monkeypatch.setattr(replica_peers, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(replica_peers, "RETRY_SECONDS", retry_seconds)
    members, silent = Members(), listen()
    members.replicas.append(Replica("silent", "127.0.0.1", silent.getsockname()[1]))
    with silent:
        async with replica(members, "one", tmp_path) as one:
            for _ in range(2):
                with pytest.raises(Refused, match='it may be connected to "silent"') as refused:
                    await one.open(REQUEST)
                assert refused.value.code == 503


async def test_an_address_that_another_process_has_taken_over_is_not_used(tmp_path: Path) -> None:
    members = Members()
    async with replica(members, "one", tmp_path) as one, replica(members, "two", tmp_path) as two, connected(two):
        members.replicas[1] = Replica("former", "127.0.0.1", members.replicas[1].port)
        with pytest.raises(Refused, match="may be connected"):
            await one.open(REQUEST)


async def test_a_replica_of_another_installation_is_refused_by_both_ends(tmp_path: Path) -> None:
    members, foreign = Members(), create_peer_authority(datetime.now(UTC), DAY)
    async with replica(members, "one", tmp_path) as one, replica(members, "two", tmp_path, foreign) as two:
        for with_runner, without in ((one, two), (two, one)):
            async with connected(with_runner):
                with pytest.raises(Refused, match="may be connected"):
                    await without.open(REQUEST)


async def test_a_replica_whose_certificate_has_expired_is_refused_by_both_ends(tmp_path: Path) -> None:
    """Also one with the right CA: an attacker may have got the disk of a replica that is long gone."""
    listener, accepted = listen(), list[SocketTransport]()
    fresh = FixedAuthority("fresh", tmp_path).built
    long_ago = datetime.now(UTC) - 3 * DAY
    expired = build_peer_contexts(AUTHORITY, "expired", long_ago, DAY, tmp_path)
    served = [fresh.server, expired.server]

    async def find_context() -> ssl.SSLContext:
        return served[0]

    async with serve_tls(listener, find_context, accepted.append):
        transport = await connect_tls(
            listener.getsockname(), expired.client, "fresh.fairlead.internal", TIMEOUT_SECONDS
        )
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await transport.receive() is None
        served.reverse()
        with pytest.raises(TlsError):
            await connect_tls(listener.getsockname(), fresh.client, "expired.fairlead.internal", TIMEOUT_SECONDS)
        assert accepted == []


async def test_a_client_without_a_certificate_gets_no_link(tmp_path: Path) -> None:
    listener, accepted = listen(), list[SocketTransport]()
    own = FixedAuthority("one", tmp_path)

    async def find_context() -> ssl.SSLContext:
        return own.built.server

    anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anonymous.load_verify_locations(cadata=AUTHORITY.certificate)
    async with serve_tls(listener, find_context, accepted.append):
        transport = await connect_tls(listener.getsockname(), anonymous, "one.fairlead.internal", TIMEOUT_SECONDS)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await transport.receive() is None
        assert accepted == []


async def test_handshakes_that_do_not_go_on_are_bounded_in_number_and_time(tmp_path: Path) -> None:
    listener, accepted = listen(), list[SocketTransport]()
    own = FixedAuthority("one", tmp_path)

    async def find_context() -> ssl.SSLContext:
        return own.built.server

    limits = TlsLimits(handshakes=2, connections=3, handshake_seconds=5)
    address = listener.getsockname()
    async with serve_tls(listener, find_context, accepted.append, limits):
        idle = [await asyncio.open_connection(*address) for _ in range(3)]  # the last is closed at once
        for reader, writer in idle:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                assert await reader.read() == b""
            writer.close()
        for _ in range(3):
            await connect_tls(address, own.built.client, "one.fairlead.internal", TIMEOUT_SECONDS)
        await eventually(lambda: len(accepted) == 3)
        with pytest.raises(TlsError):
            await connect_tls(address, own.built.client, "one.fairlead.internal", TIMEOUT_SECONDS)
        assert len(accepted) == 3


async def test_a_peer_that_floods_is_read_no_further_than_the_limit(tmp_path: Path) -> None:
    listener, accepted = listen(), list[SocketTransport]()
    own = FixedAuthority("one", tmp_path)

    async def find_context() -> ssl.SSLContext:
        return own.built.server

    async with serve_tls(listener, find_context, accepted.append):
        transport = await connect_tls(
            listener.getsockname(), own.built.client, "one.fairlead.internal", TIMEOUT_SECONDS
        )
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 200_000:
                async with asyncio.timeout(2):
                    await transport.send(bytes(100))
                sent += 1
                await asyncio.sleep(0)
        queued = len(accepted[0]._received)
        assert 8192 < queued < 30_000
        for _ in range(sent):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                assert await accepted[0].receive() == bytes(100)


async def test_an_unknown_runner_is_refused_when_no_replica_has_it(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as hubs:
        with pytest.raises(Refused, match='runner "other" is not connected'):
            await hubs[0].open(OpenRequest("ssh", "other", user="ada"))
