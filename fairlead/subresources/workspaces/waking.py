"""Wakes workspaces up: for an explicit `up`, and for the ssh session of a person.

An `up` wakes from every sleep. A session wakes only what fell asleep because it was not used, and only if it looks like
a person's: an editor that lost its session tries again and again, and must not keep an unused workspace awake.
What a user has stopped is not asleep, so no session starts it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import orjson

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.clock import Clock
from fairlead.core.errors import ApiError, Conflict
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.user import User
from fairlead.core.workspaces import KEEP_CONTAINER
from fairlead.domain.sleep_mode import (
    INACTIVITY_SLEEP,
    SCHEDULED_SLEEP,
    SCHEDULED_TYPE,
    SLEEP_TYPE,
    SLEEPING_SINCE,
    Changes,
    build_wake,
    change_annotations,
    encode_info,
    is_forced,
    sleep_type_of,
)
from fairlead.links.contract import Stream
from fairlead.links.frames import STDERR
from fairlead.links.requests import OpenRequest, ResponseHead
from fairlead.links.streams import Data, Exit, Message, ResetCode, StreamReset
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import SERVER_MANAGER, WriteOptions
from fairlead.server.api.actions import ActionRequest
from fairlead.subresources.workspaces.targets import WORKSPACES, RunnerRequests

QUIET_SECONDS = 300.0
"""A client that connects within this time after its session ended, or after its last attempt, tries by itself."""
MAX_KNOWN_CLIENTS = 10_000
MAX_LINE_BYTES = 16 * 1024
MAX_LINE_CHARS = 300
FIRST_LINE = b"waking the workspace up\n"


class ReconnectGuard:
    """Tells clients that reconnect by themselves from persons, by how soon they come back. In memory, so that another
    process of this server does not know: then a workspace wakes once too often."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: BoundedCache[tuple[str, str], float] = BoundedCache(MAX_KNOWN_CLIENTS)

    def note(self, uid: str, user: str) -> None:
        """A session of the user has ended, or an attempt was refused."""
        self._seen[uid, user] = self._clock.monotonic()

    def is_reconnect(self, uid: str, user: str) -> bool:
        seen = self._seen.get((uid, user))
        return seen is not None and self._clock.monotonic() - seen < QUIET_SECONDS


class Waking:
    def __init__(self, requests: RunnerRequests, registry: Registry, api_group: str) -> None:
        self._requests = requests
        self._clock = registry.clock
        self._workspaces = registry.resource(api_group, WORKSPACES)
        self._guard = ReconnectGuard(registry.clock)

    async def wake_for_up(self, request: ActionRequest) -> None:
        """To be called before an `up` is passed on. Raises ApiError, for example if a quota is exceeded."""
        workspace = await self._requests.get_workspace(request)
        if sleep_type_of(workspace):
            await self._wake(request, "Up")

    async def keep_stopped(self, request: ActionRequest) -> None:
        """To be called after a `stop` was passed on: what a user has stopped is not asleep any more."""
        awake: Changes = dict.fromkeys((SLEEP_TYPE, SLEEPING_SINCE, SCHEDULED_SLEEP))

        def edit(current: Object) -> Object:
            return current if is_forced(current) else change_annotations(current, awake)

        with suppress(ApiError):  # the workspace is stopped, which is what was requested
            if sleep_type_of(await self._requests.get_workspace(request)):
                await self._modify(request, edit)

    async def open_session(self, request: ActionRequest, wanted: OpenRequest) -> Stream:
        """The stream of an ssh session. Of a workspace that has to wake up first, it begins with the progress of that,
        on stderr. Raises ApiError."""
        workspace = await self._requests.get_workspace(request)
        if not sleep_type_of(workspace):
            return await self._requests.open(request, wanted)
        uid, user = metadata(workspace)["uid"], request.user.name
        if why := find_obstacle(workspace, wanted.options, self._guard.is_reconnect(uid, user)):
            self._guard.note(uid, user)
            raise Conflict(f'workspace "{request.name}" is asleep: {why}; wake it with `fairlead workspace up`')
        await self._wake(request, "Ssh")
        # A session does not ask for a changed template: it goes on with the container that it knows.
        up = OpenRequest("up", debug=wanted.debug, options={KEEP_CONTAINER: True})
        waking = await self._requests.open(request, up)
        return WakingStream(waking, lambda: self._requests.open(request, wanted))

    async def note_session_end(self, request: ActionRequest) -> None:
        with suppress(ApiError):
            workspace = await self._requests.get_workspace(request)
            self._guard.note(metadata(workspace)["uid"], request.user.name)

    async def _wake(self, request: ActionRequest, reason: str) -> None:
        user: User = request.user
        info = encode_info(reason, f"woken up by {user.name}", user.name)
        changes = build_wake(int(self._clock.now().timestamp()), info)
        await self._modify(request, lambda current: change_annotations(current, changes))

    async def _modify(self, request: ActionRequest, edit: Callable[[Object], Object]) -> None:
        """As the user, so that quotas apply; that the user may use the workspace was checked."""
        await self._workspaces.modify(request.namespace, request.name, edit, WriteOptions(request.user, SERVER_MANAGER))


def find_obstacle(workspace: Object, options: dict[str, Any], is_reconnect: bool) -> str:
    """Why a session does not wake the workspace; empty if it does. The option `wake` of the client says whether a
    person is there; without it, that is guessed."""
    sleep_type = sleep_type_of(workspace)
    if sleep_type == SCHEDULED_TYPE:
        return "it ran for as long as it may at a time"
    if sleep_type != INACTIVITY_SLEEP:
        return "a user has requested that"
    if any(get_path(workspace, f"{each}.preventWakeUpOnConnection") for each in ("spec", "status.instance")):
        return "it does not wake up on connections (preventWakeUpOnConnection)"
    wake = options.get("wake")
    if wake is False:
        return "the client does not want to wake it"
    if wake is not True and is_reconnect:
        return "this looks like a client that reconnects by itself"
    return ""


class WakingStream:
    """Implements `Stream`: the log of an `up` as lines on stderr, and then an ssh session. What the client sends waits
    for that."""

    def __init__(self, waking: Stream, open_session: Callable[[], Awaitable[Stream]]) -> None:
        self._waking = waking
        self._open_session = open_session
        self._session: Stream | None = None
        self._settled = asyncio.Event()
        self._is_first = True
        self._line = b""

    @property
    def details(self) -> dict[str, Any]:
        return {}

    async def accept(self, details: dict[str, Any]) -> None:
        return None

    async def receive(self) -> Message | None:
        if self._is_first:
            self._is_first = False
            return Data(STDERR, FIRST_LINE)
        while self._session is None:
            message = await self._waking.receive()
            if isinstance(message, Data):
                if lines := self._format_lines(message.content):
                    return Data(STDERR, lines)
            elif isinstance(message, Exit) and message.code == 0:
                await self._start_session()
            elif isinstance(message, Exit):
                self._settled.set()
                return message
            elif message is None:
                self._settled.set()
                raise StreamReset(ResetCode.INTERNAL, "the workspace did not wake up")
        return await self._session.receive()

    async def _start_session(self) -> None:
        try:
            self._session = await self._open_session()
        except ApiError as error:
            raise StreamReset(ResetCode.INTERNAL, error.message) from None
        finally:
            self._settled.set()

    def _format_lines(self, content: bytes) -> bytes:
        """The messages of the complete lines. The log comes from an untrusted repository, and goes to a terminal."""
        *lines, self._line = (self._line + content).split(b"\n")
        self._line = self._line[:MAX_LINE_BYTES]
        return b"".join(f"{text}\n".encode() for line in lines if (text := _read_message(line)))

    async def send(self, channel: int, data: bytes) -> None:
        await (await self._wait_session()).send(channel, data)

    async def send_head(self, head: ResponseHead) -> None:
        await (await self._wait_session()).send_head(head)

    async def send_eof(self, channel: int) -> None:
        await (await self._wait_session()).send_eof(channel)

    async def send_exit(self, code: int) -> None:
        await (await self._wait_session()).send_exit(code)

    async def reset(self, reason: str) -> None:
        """The workspace still comes up."""
        self._settled.set()
        await self._waking.reset(reason)
        if self._session is not None:
            await self._session.reset(reason)

    def abandon(self, reason: str) -> None:
        self._settled.set()
        self._waking.abandon(reason)
        if self._session is not None:
            self._session.abandon(reason)

    async def _wait_session(self) -> Stream:
        await self._settled.wait()
        if self._session is None:
            raise StreamReset(ResetCode.CANCELLED, "the workspace did not wake up")
        return self._session


def _read_message(line: bytes) -> str:
    """The message of a line of a log, without control characters; empty if it has none."""
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return ""
    message = found.get("message") if isinstance(found, dict) else None
    if not isinstance(message, str):
        return ""
    return "".join(each for each in message if each.isprintable())[:MAX_LINE_CHARS]
