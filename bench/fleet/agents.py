"""Agents of many clusters in one process: the code of the real ones, each with its key and its sessions over TLS.

`python -m bench.fleet.agents SERVER CA TOKENS PORT API_CA`: TOKENS is a file with a list of join tokens, PORT that of
the API server that all of them have. Prints a line when all have a session. On SIGUSR1, a tenth of them is lost at
once, and stays away.
"""

import asyncio
import json
import logging
import signal
import ssl
import sys
from pathlib import Path
from uuid import uuid4

import httpx
import structlog
import uvloop

from fairlead.agent.identity import Identity
from fairlead.agent.requests import RequestService
from fairlead.agent.sessions import REQUEST_SECONDS, AgentSessions, Server, ServerApi
from fairlead.core.crypto.agent_keys import JoinToken, parse_token
from fairlead.links.contract import OpenHandler
from fairlead.upstream.access import ClusterEndpoint, Limits
from fairlead.upstream.dial import DirectDialer
from fairlead.upstream.upstream import DialledExchanges, dialled_exchanges

ADDRESS = "127.0.0.1"
LOST_SHARE = 10


class MemoryStore:
    """The `IdentityStore` of one agent."""

    def __init__(self) -> None:
        self._identity: Identity | None = None

    async def load(self) -> Identity | None:
        return self._identity

    async def save(self, identity: Identity) -> Identity:
        self._identity = identity
        return identity


async def _resolve(host: str, port: int) -> str:
    return host


def connect_api_server(port: int, authority: str) -> DialledExchanges:
    endpoint = ClusterEndpoint(ADDRESS, port, "", ADDRESS, authority, "bench")
    return dialled_exchanges(endpoint, DirectDialer(endpoint, _resolve), Limits(max_requests=1024, max_queued=1024))


class Agents:
    def __init__(self, server: Server, api: ServerApi, serve: OpenHandler, tokens: list[JoinToken]) -> None:
        self._server = server
        self._sessions = [AgentSessions(api, MemoryStore(), serve, uuid4().hex, token) for token in tokens]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Returns when each has a session."""
        waiting: list[asyncio.Event] = []
        for each in self._sessions:
            connected = asyncio.Event()
            each.on_first_session = connected.set
            waiting.append(connected)
            self._tasks.append(asyncio.create_task(each.run()))
        for connected in waiting:
            await connected.wait()

    def lose_some(self) -> None:
        """Their connections end without a GOAWAY."""
        for task, sessions in list(zip(self._tasks, self._sessions, strict=True))[::LOST_SHARE]:
            for running in sessions._running.values():
                running.cancel()
            task.cancel()


async def run(url: str, ca_file: str, tokens: list[JoinToken], exchanges: DialledExchanges) -> None:
    context = ssl.create_default_context(cafile=ca_file)
    server = Server(url, context)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    timeout = httpx.Timeout(REQUEST_SECONDS, pool=None)  # real agents do not wait for each other's connections
    async with httpx.AsyncClient(base_url=url, verify=context, timeout=timeout) as http:
        agents = Agents(server, ServerApi(server, http), RequestService(lambda: exchanges).serve, tokens)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGUSR1, agents.lose_some)
        await agents.start()
        print(json.dumps({"url": url, "agents": len(tokens)}), flush=True)
        await stop.wait()


async def main(arguments: list[str]) -> None:
    await run(arguments[0], arguments[1], _read_tokens(arguments[2]), _read_api_server(*arguments[3:]))


def _read_tokens(file: str) -> list[JoinToken]:
    return [parse_token(each) for each in json.loads(Path(file).read_text())]


def _read_api_server(port: str, ca_file: str) -> DialledExchanges:
    return connect_api_server(int(port), Path(ca_file).read_text())


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1:]))
