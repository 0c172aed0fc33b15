"""Responses that are streamed from a runner over plain HTTP: logs of tasks and services, and an archive of files.

Access is checked every few seconds, as for sessions. A stream that fails after its start is aborted, so that no client
takes a part for the whole.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from functools import partial

import orjson

from fairlead.core.call import RECHECK_SECONDS, Reply
from fairlead.core.errors import BadGateway, BadRequest
from fairlead.links.contract import Stream
from fairlead.links.frames import STDERR, STDIN, STDOUT, clean_text
from fairlead.links.requests import OpenRequest
from fairlead.links.streams import Data, Eof, Exit, Message, StreamReset
from fairlead.server.api.actions import ActionRequest
from fairlead.server.api.routing import read_flag
from fairlead.server.flow.streams import StreamLimits
from fairlead.subresources.workspaces.session import CLOSE_TYPES, DATA_TYPES, EXIT_CODE
from fairlead.subresources.workspaces.targets import RunnerRequests, parse_task_id, reset_on_failure

MAX_PATH_CHARS = 4096
MAX_OFFSET = 2**53
MAX_NAME = 253
MAX_ERROR_BYTES = 4 * 1024
NDJSON, TAR = "application/json", "application/x-tar"


class DownloadHandlers:
    def __init__(self, requests: RunnerRequests, streams: StreamLimits) -> None:
        self._requests = requests
        self._streams = streams

    async def stream_log(self, request: ActionRequest) -> Reply:
        """One JSON object per line. `offset` skips the bytes of the log of a task that a client has already."""
        call = request.call
        offset = _parse_offset(call.parameter("offset"))
        follow = read_flag(call, "follow")
        service = call.parameter("service")
        if not service:
            task_id = parse_task_id(call.parameter("taskID"))
            wanted = OpenRequest("log", task_id=task_id, options={"offset": offset, "follow": follow})
        elif offset or follow or len(service) > MAX_NAME:
            raise BadRequest(f"service: a name of at most {MAX_NAME} characters, without offset and follow")
        else:
            wanted = OpenRequest("service-log", options={"service": service})
        await self._streams.require_room(request.user)
        stream = await self._requests.open(request, wanted)
        start = stream.details.get("offset")
        position = start if isinstance(start, int) and not isinstance(start, bool) and start >= 0 else offset
        lines = _log_lines(_messages(stream, call.recheck), position)
        return self._build_reply(request, stream, NDJSON, lines)

    async def download(self, request: ActionRequest) -> Reply:
        """A tar archive of a file or folder in the workspace."""
        path = request.call.parameter("path")
        if not path or len(path) > MAX_PATH_CHARS or "\x00" in path:
            raise BadRequest(f"path: name a file or folder in the workspace, with at most {MAX_PATH_CHARS} characters")
        await self._streams.require_room(request.user)
        stream = await self._requests.open(request, OpenRequest("download", options={"path": path}))
        try:
            await stream.send_eof(STDIN)
            messages = _messages(stream, request.call.recheck)
            first = await _first_content(messages)
        except BaseException as error:
            await reset_on_failure(stream, error)
            raise
        return self._build_reply(request, stream, TAR, _archive(first, messages))

    def _build_reply(
        self, request: ActionRequest, stream: Stream, content_type: str, content: AsyncIterator[bytes]
    ) -> Reply:
        async def send() -> AsyncIterator[bytes]:
            async with self._streams.admit(request.user):
                async for chunk in content:
                    yield chunk

        abandon = partial(stream.abandon, "the client has disconnected")  # it may have before the first chunk
        return Reply(200, content_type=content_type, stream=send(), on_close=(abandon,))


async def _messages(stream: Stream, recheck: Callable[[], None]) -> AsyncIterator[Message]:
    """The messages of a stream up to the exit code. Raises ApiError when access is lost or the runner breaks off."""
    receiving: asyncio.Task[Message | None] | None = None
    try:
        while True:
            receiving = receiving or asyncio.create_task(_receive(stream))
            done, _ = await asyncio.wait((receiving,), timeout=RECHECK_SECONDS)
            if not done:
                recheck()
                continue
            message, receiving = receiving.result(), None
            if message is None:
                return
            yield message
            if isinstance(message, Exit):
                return
    except StreamReset as reset:
        raise BadGateway(f"the runner has ended the stream: {reset.reason}") from None
    finally:
        if receiving is not None:
            receiving.cancel()
        await stream.reset("the client has disconnected")


async def _receive(stream: Stream) -> Message | None:
    return await stream.receive()


async def _log_lines(messages: AsyncIterator[Message], position: int) -> AsyncIterator[bytes]:
    """The types are those of the WebSocket. `offset` is where to continue after this line."""
    async for message in messages:
        match message:
            case Data(channel, content) if channel in DATA_TYPES:
                position += len(content)
                encoded = b64encode(content).decode()
                yield _encode_line({"type": DATA_TYPES[channel], "bytes": encoded, "offset": position})
            case Eof(channel) if channel in CLOSE_TYPES:
                yield _encode_line({"type": CLOSE_TYPES[channel]})
            case Exit(code):
                yield _encode_line({"type": EXIT_CODE, "exitCode": code})


def _encode_line(value: dict[str, object]) -> bytes:
    return orjson.dumps(value) + b"\n"


async def _first_content(messages: AsyncIterator[Message]) -> bytes:
    """The first content of stdout. Raises BadRequest if there is none, with what was sent on stderr."""
    errors = bytearray()
    async for message in messages:
        match message:
            case Data(channel, content) if channel == STDOUT:
                return content
            case Data(channel, content) if channel == STDERR and len(errors) < MAX_ERROR_BYTES:
                errors += content[:MAX_ERROR_BYTES]
    raise BadRequest(clean_text(errors.decode(errors="replace")).strip() or "there is nothing to download")


async def _archive(first: bytes, messages: AsyncIterator[Message]) -> AsyncIterator[bytes]:
    yield first
    async for message in messages:
        match message:
            case Data(channel, content) if channel == STDOUT:
                yield content
            case Exit(code) if code:
                raise BadGateway(f"the runner has failed with exit code {code}")
            case Exit():
                return
    raise BadGateway("the runner has ended the archive too early")


def _parse_offset(text: str) -> int:
    if not text:
        return 0
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_OFFSET))
    if not is_number or int(text) > MAX_OFFSET:
        raise BadRequest("offset: must be the number of bytes of the log to skip")
    return int(text)
