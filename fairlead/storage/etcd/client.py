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

from fairlead.core.backoff import Backoff, BackoffPolicy
from fairlead.storage.contract import StoreUnavailable
from fairlead.storage.etcd.address import AuthExpired, EtcdAddress, RevisionCompacted, UnknownOutcome, classify_error
from fairlead.storage.etcd.messages import WatchResponse, auth_request, parse_token

RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
COMPACT = "/etcdserverpb.KV/Compact"
WATCH = "/etcdserverpb.Watch/Watch"
LEASE = "/etcdserverpb.Lease/LeaseGrant"
LOGIN = "/etcdserverpb.Auth/Authenticate"
DEFRAGMENT = "/etcdserverpb.Maintenance/Defragment"

CALL_TIMEOUT = 3.0
"""For one response of one member. A leader election in etcd takes one to two seconds."""
FIRST_CALL_TIMEOUT = 0.75
"""For the first attempt of an idempotent request: etcd silently drops requests in flight to a leader that dies."""
RETRY_TIMEOUT = 10.0
"""For all attempts together."""
RETRY = BackoffPolicy(first_seconds=0.05, max_seconds=1.0)
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


class _OpenWatch:
    """An open watch: its member, and its current wait."""

    __slots__ = ("_wait", "member")

    def __init__(self, member: int) -> None:
        self.member = member
        self._wait: asyncio.Timeout | None = None

    async def wait_for(self, answer: Coroutine[Any, Any, _T]) -> _T:
        """Await something. Raises TimeoutError after `abort`."""
        async with asyncio.timeout(None) as self._wait:
            try:
                return await answer
            finally:
                self._wait = None

    def abort(self) -> None:
        if self._wait is not None:
            self._wait.reschedule(asyncio.get_running_loop().time())


class EtcdClient:
    def __init__(self, address: EtcdAddress) -> None:
        """Raises StoreUnavailable if the TLS files cannot be read. Connects on the first request."""
        self.address = address
        self._credentials = _load_credentials(address)
        self._channels: dict[tuple[str, bool], grpc.aio.Channel] = {}
        self._current_member = 0
        self._token = ""
        self._login_lock = asyncio.Lock()
        self._watches: dict[_Stream, _OpenWatch] = {}
        """The open watches."""

    async def call(self, method: str, request: bytes, seconds: float = CALL_TIMEOUT) -> bytes:
        """Send a request to the current member. Raises the errors of `classify_error`."""
        for _ in range(2):
            member, used = self._current_member, await self._auth_token()
            try:
                return await self._call(member, method, request, used, seconds)
            except AuthExpired:
                self._discard_token(used)
            except UnknownOutcome:
                self.fail_over(member)
                raise
        raise UnknownOutcome(f"{self.address} rejects the token that it has just issued")

    async def call_idempotent(self, method: str, request: bytes, seconds: float = RETRY_TIMEOUT) -> bytes:
        """Send an idempotent request, with retries."""
        now = asyncio.get_running_loop().time
        end = now() + seconds
        patience = FIRST_CALL_TIMEOUT
        backoff = Backoff(RETRY)
        while True:
            try:
                return await self.call(method, request, min(patience, end - now()))
            except UnknownOutcome as lost:
                pause = backoff.next_delay()
                if now() + pause >= end:
                    raise StoreUnavailable(str(lost)) from lost
            await asyncio.sleep(pause)
            patience = min(2 * patience, CALL_TIMEOUT)

    async def call_each_member(self, method: str, request: bytes, seconds: float) -> None:
        """Send the same request to every member in the URL."""
        for member in range(len(self.address.endpoints)):
            try:
                await self._call(member, method, request, await self._auth_token(), seconds)
            except (UnknownOutcome, AuthExpired) as error:
                raise StoreUnavailable(f"{self.address.endpoints[member]}: {error}") from error

    async def watch(self, request: bytes) -> AsyncGenerator[WatchResponse]:
        """The responses of a watch, forever. Raises RevisionCompacted, with the compacted revision, or
        UnknownOutcome."""
        member, used = self._current_member, await self._auth_token()
        channel = self._channel(member, watching=True)
        stream: _Stream = channel.stream_stream(WATCH)(metadata=_metadata(used), wait_for_ready=False)
        self._watches[stream] = open_watch = _OpenWatch(member)
        try:
            await open_watch.wait_for(stream.write(request))
            while True:
                encoded = await open_watch.wait_for(stream.read())
                if not isinstance(encoded, bytes):
                    raise UnknownOutcome(f"{self.address.endpoints[member]} has ended the watch")
                yield self._check_response(WatchResponse.parse(encoded), used)
        except grpc.aio.AioRpcError as error:
            self.fail_over(member)
            raise self._watch_error(error, used) from error
        except TimeoutError:
            raise UnknownOutcome(f"the connection to {self.address.endpoints[member]} was given up") from None
        except asyncio.CancelledError:
            # Either this task was cancelled, or `fail_over` cancelled the stream, or both; then the task must end.
            task = asyncio.current_task()
            if stream in self._watches or (task is not None and task.cancelling()):
                raise
            raise UnknownOutcome(f"the connection to {self.address.endpoints[member]} was given up") from None
        finally:
            self._watches.pop(stream, None)
            stream.cancel()

    def fail_over(self, member: int) -> None:
        """Switch to the next member, and end the watches of this one."""
        if member == self._current_member:
            self._current_member = (member + 1) % len(self.address.endpoints)
        self._cancel_watches(member)

    def restart_watches(self) -> None:
        """Restart the watches at another member, because an expected event did not arrive."""
        self.fail_over(self._current_member)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels = {}
        # gRPC's own thread still reports the cancelled calls to this loop, and logs errors if the loop is closed.
        await asyncio.sleep(DRAIN_SECONDS)

    def _cancel_watches(self, member: int) -> None:
        for stream in [stream for stream, open_watch in self._watches.items() if open_watch.member == member]:
            open_watch = self._watches.pop(stream)
            stream.cancel()
            # gRPC does not wake readers of a stream that is cancelled before it is connected.
            open_watch.abort()

    def _check_response(self, response: WatchResponse, auth_token: str) -> WatchResponse:
        if response.compact_revision:
            raise RevisionCompacted(response.compact_revision)
        if response.canceled:
            # This also happens with an expired token, with a reason that depends on the version.
            self._discard_token(auth_token)
            raise UnknownOutcome(f"{self.address} has ended the watch: {response.reason or 'no reason given'}")
        return response

    def _watch_error(self, error: grpc.aio.AioRpcError, auth_token: str) -> Exception:
        judged = classify_error(error, str(self.address))
        if isinstance(judged, AuthExpired):
            self._discard_token(auth_token)
        return judged if isinstance(judged, RevisionCompacted | UnknownOutcome) else UnknownOutcome(str(judged))

    async def _auth_token(self) -> str:
        if not self.address.user:
            return ""
        async with self._login_lock:
            if not self._token:
                request = auth_request(self.address.user, self.address.password)
                member = self._current_member
                try:
                    self._token = parse_token(await self._call(member, LOGIN, request, "", CALL_TIMEOUT))
                except UnknownOutcome:
                    self.fail_over(member)
                    raise
            return self._token

    def _discard_token(self, auth_token: str) -> None:
        if auth_token == self._token:
            self._token = ""

    async def _call(self, member: int, method: str, request: bytes, auth_token: str, seconds: float) -> bytes:
        method_call: _Unary = self._channel(member, watching=False).unary_unary(method)
        try:
            return await method_call(request, timeout=seconds, metadata=_metadata(auth_token))
        except grpc.aio.AioRpcError as error:
            raise classify_error(error, str(self.address)) from error

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


def _metadata(auth_token: str) -> tuple[tuple[str, str], ...]:
    leader = ("hasleader", "true")
    return (leader, ("token", auth_token)) if auth_token else (leader,)


def _load_credentials(address: EtcdAddress) -> grpc.ChannelCredentials | None:
    if not address.tls:
        return None
    return grpc.ssl_channel_credentials(_read_file(address.ca), _read_file(address.key), _read_file(address.cert))


def _read_file(path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror}; the store URL uses this file for TLS with etcd") from error
