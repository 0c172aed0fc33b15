"""Connections to etcd: one member at a time, with failover to the next.

`call` sends a request once; for requests that must not be repeated, the caller handles UnknownOutcome itself.
`call_idempotent` retries, across members, until its timeout, and then raises StoreUnavailable. `watch` is a stream
until it breaks.

Watches have their own connections, so that large responses do not delay them. All requests require that the member
has a leader, so a partitioned member rejects them immediately, and its watches end.
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
"""For one response of one member. A leader election in etcd takes one to two seconds."""
FIRST_CALL_SECONDS = 0.75
"""For the first attempt of an idempotent request: etcd silently drops requests in flight to a leader that dies."""
ASK_SECONDS = 10.0
"""For all attempts together."""
PAUSE_SECONDS = 0.05
LONGEST_PAUSE = 1.0
DRAIN_SECONDS = 0.02

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # etcd disconnects clients that send keepalive pings more often than every five seconds.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # It also disconnects clients that ping without active calls, and connections that were idle for half a minute.
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
    """An open watch: its member, and its current wait."""

    __slots__ = ("_waiting", "member")

    def __init__(self, member: int) -> None:
        self.member = member
        self._waiting: asyncio.Timeout | None = None

    async def wait_for(self, answer: Coroutine[Any, Any, _T]) -> _T:
        """Await something. Raises TimeoutError after `abort`."""
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
        """Raises StoreUnavailable if the TLS files cannot be read. Connects on the first request."""
        self.address = address
        self._credentials = _credentials(address)
        self._channels: dict[tuple[str, bool], grpc.aio.Channel] = {}
        self._at = 0
        self._token = ""
        self._login = asyncio.Lock()
        self._streams: dict[_Stream, _Place] = {}
        """The open watches."""

    async def call(self, method: str, request: bytes, seconds: float = CALL_SECONDS) -> bytes:
        """Send a request to the current member. Raises the errors of `classify_error`."""
        for _ in range(2):
            member, used = self._at, await self._logged_in()
            try:
                return await self._call(member, method, request, used, seconds)
            except LoggedOut:
                self._forget(used)
            except Lost:
                self.leave(member)
                raise
        raise Lost(f"{self.address} rejects the token that it has just issued")

    async def ask(self, method: str, request: bytes, seconds: float = ASK_SECONDS) -> bytes:
        """Send an idempotent request, with retries."""
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
        """Send the same request to every member in the URL."""
        for member in range(len(self.address.endpoints)):
            try:
                await self._call(member, method, request, await self._logged_in(), seconds)
            except (Lost, LoggedOut) as error:
                raise Unavailable(f"{self.address.endpoints[member]}: {error}") from error

    async def watch(self, request: bytes) -> AsyncGenerator[Notice]:
        """The responses of a watch, forever. Raises RevisionCompacted, with the compacted revision, or
        UnknownOutcome."""
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
            raise Lost(f"the connection to {self.address.endpoints[member]} was given up") from None
        except asyncio.CancelledError:
            # Either this task was cancelled, or `fail_over` cancelled the stream, or both; then the task must end.
            task = asyncio.current_task()
            if stream in self._streams or (task is not None and task.cancelling()):
                raise
            raise Lost(f"the connection to {self.address.endpoints[member]} was given up") from None
        finally:
            self._streams.pop(stream, None)
            stream.cancel()

    def leave(self, member: int) -> None:
        """Switch to the next member, and end the watches of this one."""
        if member == self._at:
            self._at = (member + 1) % len(self.address.endpoints)
        self._end_streams(member)

    def renew_watches(self) -> None:
        """Restart the watches at another member, because an expected event did not arrive."""
        self.leave(self._at)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels = {}
        # gRPC's own thread still reports the cancelled calls to this loop, and logs errors if the loop is closed.
        await asyncio.sleep(DRAIN_SECONDS)

    def _end_streams(self, member: int) -> None:
        for stream in [stream for stream, place in self._streams.items() if place.member == member]:
            place = self._streams.pop(stream)
            stream.cancel()
            # gRPC does not wake readers of a stream that is cancelled before it is connected.
            place.give_up()

    def _noticed(self, notice: Notice, used: str) -> Notice:
        if notice.compacted:
            raise Gone(notice.compacted)
        if notice.canceled:
            # This also happens with an expired token, with a reason that depends on the version.
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
        raise Unavailable(f"{path}: {error.strerror}; the store URL uses this file for TLS with etcd") from error
