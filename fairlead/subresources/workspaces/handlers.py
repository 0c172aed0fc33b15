"""The handlers of the subresources of workspaces, and of the link of runners.

The WebSocket `runners/<name>/link`, over which the server reaches a runner. Only the runner itself may open it.
"""

from dataclasses import dataclass
from functools import partial

from fairlead.authn.ssh_authority import SshAuthority
from fairlead.authz.component_access import ComponentResolver
from fairlead.authz.secret_access import SecretAccess
from fairlead.core.call import Reply, Upgrade, WebSocket
from fairlead.core.errors import BadRequest, Forbidden, TooManyRequests
from fairlead.core.objects import Object
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT, RUNNERS
from fairlead.links.requests import OpenRequest
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest
from fairlead.server.api.routing import read_flag
from fairlead.server.flow.streams import StreamLimits
from fairlead.subresources.workspaces.credentials import CredentialsHandler
from fairlead.subresources.workspaces.downloads import DownloadHandlers
from fairlead.subresources.workspaces.exchanges import AccessHandlers, ExchangeHandlers
from fairlead.subresources.workspaces.exec import ExecHandler
from fairlead.subresources.workspaces.hub import RunnerHub
from fairlead.subresources.workspaces.moves import MoveHandler
from fairlead.subresources.workspaces.session import TRY_AGAIN_LATER, Session
from fairlead.subresources.workspaces.targets import WORKSPACES, RunnerRequests, parse_options
from fairlead.subresources.workspaces.waking import Waking

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


STATUS, SSH = "status", "ssh"
SESSION_ACTIONS = {
    "up": "up",
    "stop": "stop",
    "ssh": SSH,
    "port": "port",
    "delete": "delete",
    "getstatus": STATUS,
    "get-status": STATUS,
}
"""Subresources with a WebSocket, and the action of the runner for each."""
UP_PARAMETERS = ("webMode", "cliMode")
"""Query parameters of `up` that the runner gets as options."""


class SessionHandler:
    """GET with a WebSocket."""

    def __init__(
        self, requests: RunnerRequests, waking: Waking, streams: StreamLimits, authority: SshAuthority
    ) -> None:
        self._requests = requests
        self._waking = waking
        self._streams = streams
        self._authority = authority

    async def __call__(self, request: ActionRequest) -> Reply:
        call = request.call
        if not call.is_websocket:
            raise BadRequest("Upgrade request required: this subresource is a WebSocket")
        action = SESSION_ACTIONS[call.target.subresource]
        options = parse_options(call.parameter("options"))
        if action == "up":
            options |= {name: read_flag(call, name) for name in UP_PARAMETERS if name in call.query}
        await self._streams.require_room(request.user)
        authorities = tuple(await self._authority.public_keys()) if action == SSH else ()
        wanted = OpenRequest(
            action, options=options, debug=read_flag(call, "debug"), ssh_authorities=tuple(authorities)
        )
        open_stream = self._waking.open_session if action == SSH else self._requests.open
        stream = await open_stream(request, wanted)
        session = Session(stream, call.client, call.recheck)

        async def run(websocket: WebSocket) -> None:
            try:
                async with self._streams.admit(request.user):
                    await session.run(websocket)
            except TooManyRequests as error:  # others were faster
                await websocket.close(TRY_AGAIN_LATER, error.message)
            finally:
                if action == SSH:
                    await self._waking.note_session_end(request)

        return Reply(101, upgrade=Upgrade("", run), on_close=(partial(stream.abandon, "the session has ended"),))


class TaskOrSessionHandler:
    """`up` and `stop`: a WebSocket with GET, a task with POST."""

    def __init__(self, sessions: SessionHandler, exchanges: ExchangeHandlers, waking: Waking) -> None:
        self._sessions = sessions
        self._exchanges = exchanges
        self._waking = waking

    async def __call__(self, request: ActionRequest) -> Object | Reply:
        is_stop, is_session = request.call.target.subresource == "stop", request.verb == "get"
        if not is_stop and not request.dry_run and (request.call.is_websocket or not is_session):
            await self._waking.wake_for_up(request)
        result: Object | Reply = await (self._sessions(request) if is_session else self._exchanges.start_task(request))
        if is_stop:
            await self._waking.keep_stopped(request)
        return result


@dataclass(frozen=True, slots=True)
class WorkspaceServices:
    """What the handlers use. `streams` limits the open streams of each user, `authority` signs SSH certificates,
    `namespace_prefix` is that of projects."""

    registry: Registry
    hub: RunnerHub
    streams: StreamLimits
    secret_access: SecretAccess
    authority: SshAuthority
    namespace_prefix: str


def workspace_handlers(api_group: str, services: WorkspaceServices) -> dict[ActionPath, ActionHandler]:
    registry, hub, streams, authority = services.registry, services.hub, services.streams, services.authority
    requests = RunnerRequests(hub, registry, api_group)
    waking = Waking(requests, registry, api_group)
    exchanges = ExchangeHandlers(requests, registry.clock)
    sessions = SessionHandler(requests, waking, streams, authority)
    access = AccessHandlers(requests, exchanges, authority)
    downloads = DownloadHandlers(requests, streams)
    starts = TaskOrSessionHandler(sessions, exchanges, waking)
    handlers: dict[str, ActionHandler] = {
        **dict.fromkeys(SESSION_ACTIONS, sessions),
        "up": starts,
        "stop": starts,
        "exec": ExecHandler(exchanges, waking, streams),
        "tasks": exchanges.list_tasks,
        "cancel": exchanges.cancel_task,
        "state": exchanges.get_or_set_state,
        "snapshots": exchanges.list_snapshots,
        "restore": exchanges.restore_snapshot,
        "deletesnapshot": exchanges.delete_snapshot,
        "move": MoveHandler(requests, exchanges, waking, registry, api_group, services.namespace_prefix),
        "troubleshoot": exchanges.troubleshoot,
        "log": downloads.stream_log,
        "download": downloads.download,
        "sshcertificate": access.issue_certificate,
        "ports": access.list_ports,
    }
    runners = ComponentResolver(RUNNER_COMPONENT, api_group, registry.view)
    handlers["credentials"] = CredentialsHandler(
        api_group, registry, runners, services.secret_access, services.namespace_prefix
    )
    return {
        **{(api_group, WORKSPACES, name): handler for name, handler in handlers.items()},
        (api_group, RUNNERS, "link"): LinkHandler(hub, runners),
    }
