"""`exec`: runs a command or a shell in a workspace, with or without a terminal, over a WebSocket of any client.

Unlike `ssh`, it needs no SSH client, so a browser can use it. The links to runners carry no sizes of terminals: a
change of the size is a request of its own, with the name that the session got here.
"""

import asyncio
import secrets
from functools import partial
from typing import Any

from fairlead.core.call import Call, Reply, Upgrade, WebSocket, note_refusal
from fairlead.core.errors import ApiError, BadRequest, NotImplementedStatus, TooManyRequests
from fairlead.links.frames import STDIN
from fairlead.links.requests import OpenRequest
from fairlead.server.api.actions import ActionRequest
from fairlead.server.flow.streams import StreamLimits
from fairlead.subresources.workspaces.exchanges import ExchangeHandlers
from fairlead.subresources.workspaces.exec_frames import OUTPUTS, PROTOCOLS, ExecFraming, build_failure, encode_status
from fairlead.subresources.workspaces.session import INTERNAL_ERROR, TRY_AGAIN_LATER, Session
from fairlead.subresources.workspaces.targets import MAX_OPTIONS_BYTES, read_flag
from fairlead.subresources.workspaces.waking import Waking

RETRY_SECONDS = 1.0
TERM = "xterm-256color"
REFUSED_ANNOTATION = "service.sh/exec-refused"
"""Audit annotation: why there is no session although the upgrade succeeded."""


class Resizer:
    """Passes on the newest size of a terminal, one change at a time, until it is cancelled."""

    def __init__(self, exchanges: ExchangeHandlers, request: ActionRequest, session: str) -> None:
        self._exchanges = exchanges
        self._request = request
        self._session = session
        self._size: dict[str, int] = {}
        self._changed = asyncio.Event()

    def set_size(self, columns: int, rows: int) -> None:
        self._size = {"columns": columns, "rows": rows}
        self._changed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = OpenRequest("resize", options={"session": self._session, **self._size})
            try:
                await self._exchanges.exchange(self._request, wanted, None)
            except NotImplementedStatus:  # a runner of an earlier version: its terminals keep their size
                return
            except ApiError:  # the command has not started yet, because the workspace is still waking up
                await asyncio.sleep(RETRY_SECONDS)
                self._changed.set()


class ExecHandler:
    """GET with a WebSocket and a subprotocol of `pods/exec`."""

    def __init__(self, exchanges: ExchangeHandlers, waking: Waking, streams: StreamLimits) -> None:
        self._exchanges = exchanges
        self._waking = waking
        self._streams = streams

    async def __call__(self, request: ActionRequest) -> Reply:
        call = request.call
        if not call.is_websocket:
            raise BadRequest("Upgrade request required: this subresource is a WebSocket")
        protocol = next((each for each in call.subprotocols if each in PROTOCOLS), "")
        if not protocol:
            raise BadRequest(f"Sec-WebSocket-Protocol: must have {' or '.join(PROTOCOLS)}")
        options = parse_exec_options(call)
        await self._streams.require_room(request.user)
        try:
            stream = await self._waking.open_session(request, OpenRequest("exec", options=options))
        except ApiError as error:
            call.annotations[REFUSED_ANNOTATION] = f"{error.code} {error.reason}"  # the response is 101
            note_refusal(call, error)
            return Reply(101, upgrade=Upgrade(protocol, partial(_refuse, error)))
        resizer = Resizer(self._exchanges, request, options["session"])
        has_stdin, on_resize = read_flag(call, "stdin"), resizer.set_size if options["tty"] else _ignore_size
        framing = ExecFraming(has_stdin, _wanted_outputs(call), on_resize)
        session = Session(stream, call.client, call.recheck, framing)

        async def run(websocket: WebSocket) -> None:
            tasks = [asyncio.create_task(resizer.run())]
            if not has_stdin and not options["tty"]:  # at a terminal, it would be a Ctrl-D
                tasks.append(asyncio.create_task(stream.send_eof(STDIN)))
            try:
                async with self._streams.admit(request.user):
                    await session.run(websocket)
            except TooManyRequests as error:  # others were faster
                await websocket.close(TRY_AGAIN_LATER, error.message)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await self._waking.note_session_end(request)

        return Reply(101, upgrade=Upgrade(protocol, run), on_close=(partial(stream.abandon, "the session has ended"),))


async def _refuse(error: ApiError, websocket: WebSocket) -> None:
    """Sends why there is no session. A browser does not show a page the response to an upgrade that fails."""
    await websocket.send(encode_status(build_failure(error.code, error.reason, error.message)))
    await websocket.close(INTERNAL_ERROR, error.message)


def parse_exec_options(call: Call) -> dict[str, Any]:
    """The options for the runner. Raises BadRequest."""
    command = call.query.get("command") or []
    if sum(len(each.encode()) for each in command) > MAX_OPTIONS_BYTES:
        raise BadRequest(f"command: may have at most {MAX_OPTIONS_BYTES} bytes")
    if any("\0" in each for each in command):
        raise BadRequest("command: must not contain NUL")
    options: dict[str, Any] = {"command": command, "tty": read_flag(call, "tty"), "session": secrets.token_hex(16)}
    if options["tty"]:
        options["environment"] = {"TERM": TERM}
    if "wake" in call.query:
        options["wake"] = read_flag(call, "wake")
    return options


def _wanted_outputs(call: Call) -> frozenset[int]:
    return frozenset(channel for name, channel in OUTPUTS.items() if name not in call.query or read_flag(call, name))


def _ignore_size(columns: int, rows: int) -> None:
    """Without a terminal, there is nothing to resize."""
