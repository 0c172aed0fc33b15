"""`exec`: runs a command or a shell in a workspace, with or without a terminal, over a WebSocket of any client.

Unlike `ssh`, it needs no SSH client, so a browser can use it. The links to runners carry no sizes of terminals: a
change of the size is a request of its own, with the name that the session got here.

The messages of `exec`: those of `pods/exec` in Kubernetes, so that its clients and libraries can be used.

Binary, and the first byte is the channel: 0 stdin, 1 stdout, 2 stderr, 3 the Status at the end, 4 the size of the
terminal as JSON. In version 5, 255 and a channel closes that channel.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from fairlead.core.call import Call, Reply, Upgrade, WebSocket
from fairlead.core.errors import ApiError, BadRequest, NotImplementedStatus, TooManyRequests
from fairlead.core.refusals import note_refusal
from fairlead.core.waiting import end_tasks
from fairlead.links.frames import STDERR, STDIN, STDOUT
from fairlead.links.requests import OpenRequest
from fairlead.links.streams import Data, Eof, Exit, Message
from fairlead.server.api.actions import ActionRequest
from fairlead.server.api.routing import read_flag
from fairlead.server.flow.streams import StreamLimits
from fairlead.subresources.workspaces.exchanges import ExchangeHandlers
from fairlead.subresources.workspaces.session import (
    INTERNAL_ERROR,
    PROTOCOL_ERROR,
    TOO_BIG,
    TRY_AGAIN_LATER,
    UNSUPPORTED_DATA,
    ClientMessageError,
    Session,
)
from fairlead.subresources.workspaces.targets import MAX_OPTIONS_BYTES
from fairlead.subresources.workspaces.waking import Waking

V5, V4 = PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
ERROR_CHANNEL, RESIZE_CHANNEL, CLOSE_CHANNEL = 3, 4, 255
MAX_MESSAGE_BYTES = 64 * 1024
"""Clients of Kubernetes send 32 KiB of input and the channel."""
MAX_TERMINAL = 4096
POLICY_VIOLATION = 1008


class _Size(msgspec.Struct):
    Width: int
    Height: int


_decode_size = msgspec.json.Decoder(_Size)


class ExecFraming:
    """`outputs` are the channels that the client wants, and `on_resize` gets the size of its terminal."""

    def __init__(self, has_stdin: bool, outputs: frozenset[int], on_resize: Callable[[int, int], None]) -> None:
        self._has_stdin = has_stdin
        self._outputs = outputs
        self._on_resize = on_resize

    def decode(self, message: bytes | str) -> Data | Eof | None:
        if isinstance(message, str):
            raise ClientMessageError(UNSUPPORTED_DATA, "messages must be binary")
        if len(message) > MAX_MESSAGE_BYTES:
            raise ClientMessageError(TOO_BIG, f"a message may have at most {MAX_MESSAGE_BYTES} bytes")
        channel, content = message[:1], message[1:]
        if channel == bytes((STDIN,)):
            return Data(STDIN, content) if self._has_stdin else None
        if channel == bytes((RESIZE_CHANNEL,)):
            self._resize(content)
            return None
        if channel == bytes((CLOSE_CHANNEL,)):
            return Eof(STDIN) if content == bytes((STDIN,)) and self._has_stdin else None
        raise ClientMessageError(PROTOCOL_ERROR, "clients send the channels 0 (stdin), 4 (size) and 255 (close)")

    def _resize(self, content: bytes) -> None:
        try:
            size = _decode_size.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise ClientMessageError(PROTOCOL_ERROR, 'a size is {"Width": 80, "Height": 24}') from None
        if 0 < min(size.Width, size.Height) <= max(size.Width, size.Height) <= MAX_TERMINAL:
            self._on_resize(size.Width, size.Height)

    def encode(self, message: Message) -> Sequence[bytes]:
        match message:
            case Data(channel, content) if channel in self._outputs:
                return (bytes((channel,)) + content,)
            case Exit(code):
                return (encode_status(build_exit_status(code)),)
        return ()

    def encode_failure(self, code: int, reason: str) -> Sequence[bytes]:
        is_denied = code == POLICY_VIOLATION
        status = build_failure(403, "Forbidden", reason) if is_denied else build_failure(500, "InternalError", reason)
        return (encode_status(status),)


def build_failure(code: int, reason: str, message: str) -> dict[str, object]:
    return {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}


def build_exit_status(code: int) -> dict[str, object]:
    """The Status at the end of a command, as Kubernetes sends it."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def encode_status(status: dict[str, object]) -> bytes:
    return bytes((ERROR_CHANNEL,)) + msgspec.json.encode(status)


OUTPUTS = {"stdout": STDOUT, "stderr": STDERR}
"""The query parameters that select output, and their channels."""


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
                await end_tasks(*tasks)
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
