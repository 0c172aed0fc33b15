"""The WebSocket `runners/<name>/link`, over which the server reaches a runner. Only the runner itself may open it."""

from fairlead.authz.component_access import ComponentResolver
from fairlead.core.call import Reply, Upgrade, WebSocket
from fairlead.core.errors import BadRequest, Forbidden
from fairlead.server.api.actions import ActionRequest
from fairlead.subresources.workspaces.hub import RunnerHub

GOING_AWAY = 1001


class LinkTransport:
    """A `MessageTransport` on the WebSocket of a runner."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def receive(self) -> bytes | None:
        message = await self._websocket.receive()
        return message.encode() if isinstance(message, str) else message

    async def send(self, message: bytes) -> None:
        await self._websocket.send(message)

    async def close(self) -> None:
        await self._websocket.close(GOING_AWAY, "the link has ended")


class LinkHandler:
    def __init__(self, hub: RunnerHub, runners: ComponentResolver) -> None:
        self._hub = hub
        self._runners = runners

    async def __call__(self, request: ActionRequest) -> Reply:
        """The name of the user alone is not enough: administrators may impersonate it."""
        name, call = request.name, request.call
        if request.user.impersonator is not None or self._runners.component_of(request.user) != name:
            raise Forbidden.of("runners", request.kind.group, name, "only the key of the runner may open its link")
        if not call.is_websocket:
            raise BadRequest("Upgrade request required: the link of a runner is a WebSocket")

        async def run(websocket: WebSocket) -> None:
            await self._hub.serve(name, LinkTransport(websocket), call.recheck)

        return Reply(101, upgrade=Upgrade("", run))
