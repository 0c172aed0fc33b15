"""Tests of the rounds of a row: ours and the ceiling's must not fail, a peer's may."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from bench.aims import Aim, PeerAim
from bench.compare import Measure, ServerSet, compare
from bench.failure import Failure
from bench.figures import Reading
from bench.scale import QUICK
from bench.servers import Server

OURS, CEILING, KUBE, OTHER = (Server(name, "host", 1, {}) for name in ("fairlead", "ceiling", "kube", "other"))
SERVERS = ServerSet(OURS, CEILING, replace(QUICK, rounds=3), (KUBE, OTHER))


@dataclass(frozen=True, slots=True)
class FailingRow:
    """One of the servers fails from its second round on."""

    failing: Server
    name: str = "GET"
    unit: str = "requests/s"
    falling: bool = False
    aim: Aim | None = None
    peer_aim: PeerAim | None = None

    @asynccontextmanager
    async def session(self, server_set: ServerSet) -> AsyncIterator[Measure]:
        rounds = dict.fromkeys(("fairlead", "ceiling", "kube", "other"), 0)

        async def measure(server: Server) -> Reading:
            rounds[server.name] += 1
            if server is self.failing and rounds[server.name] > 1:
                raise Failure("a watch ended")
            return Reading(1.0, None, None)

        yield measure


async def test_a_peer_that_fails_is_left_out_of_the_row_and_named() -> None:
    progress: list[str] = []
    result = await compare(FailingRow(KUBE), SERVERS, progress.append)
    assert {name: len(readings) for name, readings in result.peers.items()} == {"other": 3}
    assert (len(result.ours), len(result.ceiling)) == (3, 3)
    assert progress == ["  kube is left out of this row: a watch ended"]


@pytest.mark.parametrize("server", [OURS, CEILING])
async def test_a_failure_of_our_own_servers_ends_the_run(server: Server) -> None:
    with pytest.raises(Failure, match="a watch ended"):
        await compare(FailingRow(server), SERVERS, print)
