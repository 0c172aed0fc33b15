"""HTTP clients of ports, one for each login, workspace and port: no two users share a connection."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from fairlead.core.objects import Object, metadata
from fairlead.links.requests import OpenRequest, Refused
from fairlead.subresources.ports.grants import Grant
from fairlead.subresources.ports.headers import PortHeadEncoder
from fairlead.subresources.workspaces.hub import RunnerHub
from fairlead.subresources.workspaces.targets import api_error, runner_of
from fairlead.upstream.access import Limits
from fairlead.upstream.errors import TimedOut
from fairlead.upstream.stream_transport import StreamTransport
from fairlead.upstream.transport import TransportProtocol
from fairlead.upstream.upstream import DialledExchanges, HttpClient

MAX_PORT_REQUESTS = 32
PORT_LIMITS = Limits(
    max_requests=MAX_PORT_REQUESTS,
    max_websockets=32,
    max_queued=512,
    connect_seconds=15,
    response_header_seconds=120,
    idle_seconds=15,
)
"""Of one client. A page may have hundreds of files: those beyond the first 32 wait."""
MAX_CLIENTS = 1024
"""Clients without open requests are closed beyond this number."""

AnyProtocol = TypeVar("AnyProtocol", bound=TransportProtocol)
ClientKey = tuple[str, str, str, int]


class PortConnector:
    """Connects to a port of a workspace through its runner. Implements `ProtocolConnector`."""

    def __init__(self, hub: RunnerHub, grant: Grant, get_workspace: Callable[[], Object]) -> None:
        self._hub = hub
        self._grant = grant
        self._get_workspace = get_workspace

    async def __call__(
        self, protocol_factory: Callable[[], AnyProtocol], seconds: float, is_exclusive: bool = False
    ) -> AnyProtocol:
        """Raises ApiError if the runner does not take the stream."""
        grant = self._grant
        workspace = self._get_workspace()
        request = OpenRequest(
            action="port",
            runner=runner_of(workspace),
            uid=grant.uid,
            namespace=grant.namespace,
            name=grant.workspace,
            user=grant.user,
            options={"port": grant.port},
            resource_version=metadata(workspace)["resourceVersion"],
        )
        try:
            async with asyncio.timeout(seconds):
                stream = await self._hub.open(request)
        except TimeoutError:
            raise TimedOut("the runner did not respond in time") from None
        except Refused as refusal:
            raise api_error(refusal) from None
        protocol = protocol_factory()
        StreamTransport(stream).start(protocol)
        return protocol


class PortClients:
    """`get_workspace` returns the workspace of a grant, and raises NotFound if it does not exist any more."""

    def __init__(self, hub: RunnerHub, get_workspace: Callable[[Grant], Object]) -> None:
        self._hub = hub
        self._get_workspace = get_workspace
        self._clients: dict[ClientKey, HttpClient] = {}

    async def get(self, grant: Grant) -> HttpClient:
        key = grant.key, grant.user, grant.uid, grant.port
        client = self._clients.pop(key, None)
        if client is None:
            connector = PortConnector(self._hub, grant, lambda: self._get_workspace(grant))
            exchanges = DialledExchanges(connector, PortHeadEncoder(grant.port), PORT_LIMITS, is_tunnel=True)
            client = HttpClient(exchanges, PORT_LIMITS)
        self._clients[key] = client  # the last one used is the last one in the dictionary
        if len(self._clients) > MAX_CLIENTS:
            await self._close_unused()
        return client

    async def _close_unused(self) -> None:
        unused = [key for key, client in self._clients.items() if not client.in_use]
        for key in unused[: len(self._clients) - MAX_CLIENTS]:
            await self._clients.pop(key).close()
