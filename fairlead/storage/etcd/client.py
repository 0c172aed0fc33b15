"""Connections to etcd: one member at a time, the next one when it fails. Called by the rest of this package.

`call` asks once; whoever asks something that must not happen twice decides itself what a Lost answer means. `ask` goes
on, from member to member, until its time is over, and then says Unavailable. `watch` is a stream until it breaks.

Watches have connections of their own, so that no large answer to somebody else holds them up. All requests demand that
the member knows a leader: one that was cut off from the others refuses at once, and its watches end.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import grpc

from fairlead.storage.contract import Unavailable
from fairlead.storage.etcd.address import Address, Gone, LoggedOut, Lost, judge
from fairlead.storage.etcd.messages import Notice, login, token

RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
COMPACT = "/etcdserverpb.KV/Compact"
WATCH = "/etcdserverpb.Watch/Watch"
LEASE = "/etcdserverpb.Lease/LeaseGrant"
LOGIN = "/etcdserverpb.Auth/Authenticate"
DEFRAGMENT = "/etcdserverpb.Maintenance/Defragment"

CALL_SECONDS = 3.0
"""For one answer of one member. Electing a new leader takes etcd one to two seconds."""
FIRST_CALL_SECONDS = 0.75
"""For the first attempt at what may be asked twice: etcd drops what was on its way to a leader that died, silently."""
ASK_SECONDS = 10.0
"""For all attempts together."""
PAUSE_SECONDS = 0.05
LONGEST_PAUSE = 1.0
DRAIN_SECONDS = 0.02

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # etcd hangs up on clients that ask more often than every five seconds whether it is still there.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Nor may they ask while they want nothing; it hangs up on a connection that has been idle for half a minute.
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]

_Unary = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
_Stream = grpc.aio.StreamStreamCall[bytes, bytes]


_T = TypeVar("_T")


class _Place:
    """Where a watch is: at which member, and in which wait."""

    __slots__ = ("_waiting", "member")

    def __init__(self, member: int) -> None:
        self.member = member
        self._waiting: asyncio.Timeout | None = None

    async def wait_for(self, answer: Coroutine[Any, Any, _T]) -> _T:
        """Raises TimeoutError once it is given up."""
        async with asyncio.timeout(None) as self._waiting:
            try:
                return await answer
            finally:
                self._waiting = None

    def give_up(self) -> None:
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())


class Client:
    def __init__(self, address: Address) -> None:
        """Unavailable where the files for TLS cannot be read; connecting is left to the first request."""
        self.address = address
        self._credentials = _credentials(address)
        self._channels: dict[tuple[str, bool], grpc.aio.Channel] = {}
        self._at = 0
        self._token = ""
        self._login = asyncio.Lock()
        self._streams: dict[_Stream, _Place] = {}
        """The watches that are open."""

    async def call(self, method: str, request: bytes, seconds: float = CALL_SECONDS) -> bytes:
        """One answer of the member whose turn it is. Raises what `judge` says."""
        for _ in range(2):
            member, used = self._at, await self._logged_in()
            try:
                return await self._call(member, method, request, used, seconds)
            except LoggedOut:
                self._forget(used)
            except Lost:
                self.leave(member)
                raise
        raise Lost(f"{self.address} does not accept the login that it has just given out")

    async def ask(self, method: str, request: bytes, seconds: float = ASK_SECONDS) -> bytes:
        """An answer to what may be asked twice."""
        now = asyncio.get_running_loop().time
        end, pause, patience = now() + seconds, PAUSE_SECONDS, FIRST_CALL_SECONDS
        while True:
            try:
                return await self.call(method, request, min(patience, end - now()))
            except Lost as lost:
                if now() + pause >= end:
                    raise Unavailable(str(lost)) from lost
            await asyncio.sleep(pause)
            pause, patience = min(2 * pause, LONGEST_PAUSE), min(2 * patience, CALL_SECONDS)

    async def ask_each(self, method: str, request: bytes, seconds: float) -> None:
        """The same question to every member that the address names."""
        for member in range(len(self.address.endpoints)):
            try:
                await self._call(member, method, request, await self._logged_in(), seconds)
            except (Lost, LoggedOut) as error:
                raise Unavailable(f"{self.address.endpoints[member]}: {error}") from error

    async def watch(self, request: bytes) -> AsyncGenerator[Notice]:
        """What the watch says, for ever; ends with Gone, which says up to where, or Lost."""
        member, used = self._at, await self._logged_in()
        channel = self._channel(member, watching=True)
        stream: _Stream = channel.stream_stream(WATCH)(metadata=_metadata(used), wait_for_ready=False)
        self._streams[stream] = place = _Place(member)
        try:
            await place.wait_for(stream.write(request))
            while True:
                encoded = await place.wait_for(stream.read())
                if not isinstance(encoded, bytes):
                    raise Lost(f"{self.address.endpoints[member]} has ended the watch")
                yield self._noticed(Notice.parse(encoded), used)
        except grpc.aio.AioRpcError as error:
            self.leave(member)
            raise self._watch_failure(error, used) from error
        except TimeoutError:
            raise Lost(f"{self.address.endpoints[member]} was given up") from None
        except asyncio.CancelledError:
            # Of this task, or of the stream alone, by `leave`; or of both at once, and then the task must end.
            task = asyncio.current_task()
            if stream in self._streams or (task is not None and task.cancelling()):
                raise
            raise Lost(f"{self.address.endpoints[member]} was given up") from None
        finally:
            self._streams.pop(stream, None)
            stream.cancel()

    def leave(self, member: int) -> None:
        """This member does not answer: the next one's turn, for watches as well."""
        if member == self._at:
            self._at = (member + 1) % len(self.address.endpoints)
        self._end_streams(member)

    def renew_watches(self) -> None:
        """Something that should have been heard was not."""
        self.leave(self._at)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels = {}
        # gRPC's own thread still tells this loop of the calls that were cancelled, and complains if the loop is gone.
        await asyncio.sleep(DRAIN_SECONDS)

    def _end_streams(self, member: int) -> None:
        for stream in [stream for stream, place in self._streams.items() if place.member == member]:
            place = self._streams.pop(stream)
            stream.cancel()
            # gRPC does not wake who waits for a stream that is cancelled before its connection stands.
            place.give_up()

    def _noticed(self, notice: Notice, used: str) -> Notice:
        if notice.compacted:
            raise Gone(notice.compacted)
        if notice.canceled:
            # Also what a token that has run out looks like, with a reason that differs between versions.
            self._forget(used)
            raise Lost(f"{self.address} has ended the watch: {notice.reason or 'no reason given'}")
        return notice

    def _watch_failure(self, error: grpc.aio.AioRpcError, used: str) -> Exception:
        judged = judge(error, str(self.address))
        if isinstance(judged, LoggedOut):
            self._forget(used)
        return judged if isinstance(judged, Gone | Lost) else Lost(str(judged))

    async def _logged_in(self) -> str:
        if not self.address.user:
            return ""
        async with self._login:
            if not self._token:
                request = login(self.address.user, self.address.password)
                member = self._at
                try:
                    self._token = token(await self._call(member, LOGIN, request, "", CALL_SECONDS))
                except Lost:
                    self.leave(member)
                    raise
            return self._token

    def _forget(self, used: str) -> None:
        if used == self._token:
            self._token = ""

    async def _call(self, member: int, method: str, request: bytes, used: str, seconds: float) -> bytes:
        asked: _Unary = self._channel(member, watching=False).unary_unary(method)
        try:
            return await asked(request, timeout=seconds, metadata=_metadata(used))
        except grpc.aio.AioRpcError as error:
            raise judge(error, str(self.address)) from error

    def _channel(self, member: int, *, watching: bool) -> grpc.aio.Channel:
        endpoint = self.address.endpoints[member]
        channel = self._channels.get((endpoint, watching))
        if channel is None:
            if self._credentials is None:
                channel = grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
            else:
                channel = grpc.aio.secure_channel(endpoint, self._credentials, options=_OPTIONS)
            self._channels[endpoint, watching] = channel
        return channel


def _metadata(used: str) -> tuple[tuple[str, str], ...]:
    leader = ("hasleader", "true")
    return (leader, ("token", used)) if used else (leader,)


def _credentials(address: Address) -> grpc.ChannelCredentials | None:
    if not address.tls:
        return None
    return grpc.ssl_channel_credentials(_file(address.ca), _file(address.key), _file(address.cert))


def _file(path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}; the store's address names it for TLS with etcd") from error
