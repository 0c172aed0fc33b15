"""Connects to virtual clusters through the cluster that they run in: port-forward to the pod behind their Service.

A kubeconfig that a chart writes names a loopback address, or one inside the cluster. That host is never resolved or
dialled. Instead, `TunnelDialer` gives the caller one end of a socket pair, and copies between the other end and a
stream of a port-forward. TLS is inside, from end to end: the pod has to prove the name that the kubeconfig has, and
what is in between does not see the credential.

Many streams share a forward. What arrives for a stream whose reader is slow is stored, up to a limit, so that it does
not hold up the others. Beyond the limit the forward pauses. If that lasts, the other streams are ended: watches start
again, and idle connections are opened anew.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fairlead.core.waiting import start_task
from fairlead.upstream.dial import Dialer
from fairlead.upstream.errors import ClusterLimitExceeded, HandshakeRejected, TunnelError, UpstreamError
from fairlead.upstream.port_forward import Forward, ForwardStream
from fairlead.upstream.tunnel_pods import (
    PERMANENT_REASONS,
    TUNNEL_NOT_SUPPORTED,
    NotInCluster,
    PodFinder,
    PodTarget,
    TunnelRoute,
    forbidden_error,
)
from fairlead.upstream.websocket import UpstreamWebSocket

COPY_BYTES = 64 * 1024
FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 0.8
PATIENCE_SECONDS = 2.5
"""How long a missing pod is waited for. Below `connect_seconds`, so that the caller gets the reason."""
STALLED_SECONDS = 1.0
"""A forward with data that is unread for longer gets no new streams."""
PAUSED_SECONDS = 2.0
"""A forward that one stream has paused for longer is left to that stream."""
OUTSIDE_SECONDS = 60.0
"""How long an address that is not inside the cluster is dialled without looking again."""
IDLE_SECONDS = 5.0
"""How long a forward without streams stays open."""
_BAD_REQUEST, _FORBIDDEN = 400, 403


STREAMS_PER_FORWARD = 16
MAX_SHARED_FORWARDS, MAX_EXCLUSIVE_FORWARDS = 16, 64
"""Of one virtual cluster in one process."""
MAX_UNREAD_BYTES = 64 * 2**20
"""Maximum of data of one virtual cluster that its readers have not read."""
MAX_PROCESS_UNREAD_BYTES = 256 * 2**20
"""The same of all virtual clusters."""
MIN_UNREAD_BYTES = 256 * 1024
"""What a stream may store also if others have reached the maximum, so that it does not wait for slower ones."""


class UnreadBytes:
    """How much is stored for the streams of a virtual cluster; and in `whole`, for those of all."""

    def __init__(self, whole: "UnreadBytes | None" = None) -> None:
        self.size = 0
        self._whole = whole

    def add(self, size: int) -> None:
        self.size += size
        if self._whole is not None:
            self._whole.size += size

    @property
    def is_over(self) -> bool:
        is_whole_over = self._whole is not None and self._whole.size > MAX_PROCESS_UNREAD_BYTES
        return is_whole_over or self.size > MAX_UNREAD_BYTES


class SocketSink:
    """Copies what arrives for a stream into a socket, and stores what the socket does not take. `on_paused` is called
    when it has held up its forward for a while."""

    def __init__(self, sock: socket.socket, unread: UnreadBytes, on_paused: Callable[["SocketSink"], None]) -> None:
        self._socket = sock
        self._unread = unread
        self._on_paused = on_paused
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[memoryview] = deque()
        self._size = 0
        self._has_room = asyncio.Event()
        self._is_ending = False
        self._is_closed = False
        self.unread_since = 0.0
        """When it began to store data; 0 if the socket has taken everything."""

    async def feed(self, data: bytes, /) -> None:
        if self._is_closed or self._is_ending:
            return
        view = memoryview(data)
        if not self._chunks:
            view = view[self._send(view) :]
        if not view or self._is_closed:
            return
        if not self._chunks:
            self.unread_since = self._loop.time()
            self._loop.add_writer(self._socket, self._on_writable)
        self._chunks.append(view)
        self._add(len(view))
        if self._is_full:
            await self._wait_for_room()

    @property
    def _is_full(self) -> bool:
        return self._size > MIN_UNREAD_BYTES and self._unread.is_over

    async def _wait_for_room(self) -> None:
        timer = self._loop.call_later(PAUSED_SECONDS, self._on_paused, self)
        while self._is_full:
            self._has_room.clear()
            await self._has_room.wait()
        timer.cancel()

    async def end(self) -> None:
        """Closes the socket when it has taken everything."""
        self._is_ending = True
        if not self._chunks:
            self.close()

    def close(self) -> None:
        """Closes the socket now."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._chunks:
            self._loop.remove_writer(self._socket)
            self._chunks.clear()
            self._add(-self._size)
        with suppress(OSError):  # wakes a task that reads from it
            self._socket.shutdown(socket.SHUT_RDWR)
        self._has_room.set()

    def _add(self, size: int) -> None:
        self._size += size
        self._unread.add(size)

    def _send(self, view: memoryview) -> int:
        try:
            return self._socket.send(view)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:  # the reader is gone
            self.close()
            return 0

    def _on_writable(self) -> None:
        while self._chunks:
            view = self._chunks[0]
            sent = self._send(view)
            if self._is_closed:
                return
            self._add(-sent)
            if sent < len(view):
                self._chunks[0] = view[sent:]
                break
            self._chunks.popleft()
        if not self._chunks:
            self._loop.remove_writer(self._socket)
            self.unread_since = 0.0
            if self._is_ending:
                self.close()
        if not self._is_full:
            self._has_room.set()


class _PooledForward:
    """A forward with the streams that the dialer has opened on it."""

    def __init__(self, forward: Forward, target: PodTarget) -> None:
        self.forward = forward
        self.target = target
        self.sinks: dict[ForwardStream, SocketSink] = {}
        self.reserved = 0
        """Streams that are being opened."""
        self.idle_since = 0.0
        self.is_retired = False
        """Whether it gets no new streams."""

    @property
    def stream_count(self) -> int:
        return len(self.sinks) + self.reserved

    def oldest_unread(self) -> float:
        """Since when data is unread; 0 if none is."""
        return min((each.unread_since for each in self.sinks.values() if each.unread_since), default=0.0)


OpenWebSocket = Callable[[PodTarget], Awaitable[UpstreamWebSocket]]
"""Opens the WebSocket of a port-forward to a pod. Raises UpstreamError."""


class TunnelDialer:
    """The `Dialer` of one virtual cluster. `fallback` dials a private address that is not inside the cluster, as the
    address policy allows."""

    def __init__(
        self,
        route: TunnelRoute,
        finder: PodFinder,
        open_websocket: OpenWebSocket,
        fallback: Dialer,
        unread: UnreadBytes,
    ) -> None:
        self._route = route
        self._finder = finder
        self._open_websocket = open_websocket
        self._fallback = fallback
        self._unread = unread
        self._opening = asyncio.Lock()
        self._shared: list[_PooledForward] = []
        self._exclusive: list[_PooledForward] = []
        self._exclusive_openings = 0
        """How many of these are being opened: they count already."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._outside_until = 0.0
        """Until when the address is known to be outside of the cluster."""

    @property
    def is_tunnel(self) -> bool:
        return not self._outside_until

    @property
    def in_use(self) -> int:
        """Number of open streams."""
        return sum(each.stream_count for each in (*self._shared, *self._exclusive))

    @property
    def forward_count(self) -> int:
        return len(self._shared) + len(self._exclusive)

    @property
    def target(self) -> PodTarget | None:
        """The pod that it leads to, if that is known."""
        return self._finder.current

    async def __call__(self, is_exclusive: bool) -> socket.socket:
        loop = asyncio.get_running_loop()
        if loop.time() < self._outside_until:
            return await self._fallback(is_exclusive)
        self._outside_until = 0.0
        give_up_at = loop.time() + PATIENCE_SECONDS
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                return await self._connect(is_exclusive)
            except NotInCluster:
                self._outside_until = loop.time() + OUTSIDE_SECONDS
                return await self._fallback(is_exclusive)
            except TunnelError as error:
                if error.reason in PERMANENT_REASONS or loop.time() + delay > give_up_at:
                    raise
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_RETRY_SECONDS)

    def reject(self) -> None:
        if self._finder.current is not None:
            self._forget(self._finder.current)

    async def close(self) -> None:
        """Closes all forwards."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for pooled in (*self._shared, *self._exclusive):
            start_task(self._tasks, self._close_forward(pooled))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self, is_exclusive: bool) -> socket.socket:
        """Returns a socket whose other end is copied to a new stream."""
        pooled = await (self._open_exclusive() if is_exclusive else self._take_shared())
        inner, outer = socket.socketpair()
        try:
            inner.setblocking(False)
            outer.setblocking(False)
            sink = SocketSink(outer, self._unread, lambda sink: self._leave_to(pooled, sink))
            stream = await pooled.forward.open(pooled.target.port, sink)
            pooled.sinks[stream] = sink
        except BaseException:
            inner.close()
            outer.close()
            raise
        finally:
            pooled.reserved -= 1
            self._on_change(pooled)
        start_task(self._tasks, self._copy(pooled, stream, outer))
        return inner

    async def _take_shared(self) -> _PooledForward:
        """A forward with room for a stream, which is reserved. Those that wait for it open one together."""
        async with self._opening:
            target = await self._finder.find()
            now = asyncio.get_running_loop().time()
            for pooled in self._shared:
                unread_since = pooled.oldest_unread()
                is_stalled = unread_since and now - unread_since > STALLED_SECONDS
                has_room = pooled.stream_count < STREAMS_PER_FORWARD
                if has_room and not is_stalled and not pooled.is_retired and pooled.target.uid == target.uid:
                    pooled.reserved += 1
                    return pooled
            if len(self._shared) >= MAX_SHARED_FORWARDS:
                raise ClusterLimitExceeded("too many connections to this virtual cluster; try again later")
            return await self._open_forward(target, self._shared)

    async def _open_exclusive(self) -> _PooledForward:
        if len(self._exclusive) + self._exclusive_openings >= MAX_EXCLUSIVE_FORWARDS:
            raise ClusterLimitExceeded(
                "too many streams of this virtual cluster are open; close some, or try again later"
            )
        self._exclusive_openings += 1
        try:
            return await self._open_forward(await self._finder.find(), self._exclusive)
        finally:
            self._exclusive_openings -= 1

    async def _open_forward(self, target: PodTarget, pool: list[_PooledForward]) -> _PooledForward:
        """Opens a forward with one reserved stream. Raises UpstreamError."""
        try:
            websocket = await self._open_websocket(target)
        except HandshakeRejected as error:
            self._finder.forget(target.uid)
            raise self._translate(error) from error
        except TunnelError:
            raise
        except UpstreamError as error:
            message = f'cluster "{self._route.cluster}", in which it runs: {error.message}'
            raise TunnelError(error.reason, message) from error
        if not websocket.subprotocol:
            websocket.abort()
            raise self._not_supported()
        if self._is_closed:
            websocket.abort()
            raise TunnelError("Unreachable", "the connections to this virtual cluster are closed")
        pooled = _PooledForward(Forward(websocket, lambda forward: self._on_change(pooled)), target)
        pooled.reserved = 1
        pool.append(pooled)
        return pooled

    def _translate(self, error: HandshakeRejected) -> TunnelError:
        if error.status == _FORBIDDEN:
            return forbidden_error(self._route.cluster)
        if error.status == _BAD_REQUEST:
            return self._not_supported()
        message = f'cluster "{self._route.cluster}" does not forward ports to its pod (HTTP status {error.status})'
        return TunnelError("WaitingForPod", f"{message}; it is looked up again")

    def _not_supported(self) -> TunnelError:
        message = (
            f'cluster "{self._route.cluster}" does not forward ports by WebSocket, which needs Kubernetes 1.31, and '
            "the kubeconfig of this virtual cluster names no address outside of it"
        )
        return TunnelError(TUNNEL_NOT_SUPPORTED, message)

    async def _copy(self, pooled: _PooledForward, stream: ForwardStream, outer: socket.socket) -> None:
        """Copies from the socket to the stream until either ends. TLS marks its own end, so the end of the socket gives
        the whole connection up."""
        loop = asyncio.get_running_loop()
        try:
            while data := await loop.sock_recv(outer, COPY_BYTES):
                await stream.write(data)
        except OSError:
            pass
        finally:
            pooled.sinks.pop(stream).close()
            outer.close()
            await stream.reset()
            self._on_change(pooled)

    def _on_change(self, pooled: _PooledForward) -> None:
        """A stream or the forward has ended, or the node has reported an error."""
        forward = pooled.forward
        if (forward.has_failed or forward.has_ended) and not pooled.is_retired:
            self._forget(pooled.target)
            pooled.is_retired = True
        if pooled.stream_count:
            return
        if forward.has_ended or pooled.is_retired or pooled in self._exclusive:
            start_task(self._tasks, self._close_forward(pooled))
        else:
            pooled.idle_since = asyncio.get_running_loop().time()
            self._schedule_check()

    def _forget(self, target: PodTarget) -> None:
        """The pod may be gone: open streams go on, and new ones look for it again."""
        self._finder.forget(target.uid)
        for pooled in (*self._shared, *self._exclusive):
            if pooled.target.uid == target.uid:
                pooled.is_retired = True
                if not pooled.stream_count:
                    start_task(self._tasks, self._close_forward(pooled))

    def _leave_to(self, pooled: _PooledForward, slow: SocketSink) -> None:
        """Ends all streams of a forward but the slow one that holds them up: they connect anew."""
        pooled.is_retired = True
        for sink in pooled.sinks.values():
            if sink is not slow:
                sink.close()

    async def _close_forward(self, pooled: _PooledForward) -> None:
        for pool in (self._shared, self._exclusive):
            if pooled in pool:
                pool.remove(pooled)
        for sink in pooled.sinks.values():
            sink.close()
        await pooled.forward.close()

    def _schedule_check(self) -> None:
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._check)

    def _check(self) -> None:
        """Closes shared forwards that have had no streams for a while."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for pooled in list(self._shared):
            if not pooled.stream_count and now - pooled.idle_since >= IDLE_SECONDS:
                start_task(self._tasks, self._close_forward(pooled))
        if any(not each.stream_count for each in self._shared):
            self._schedule_check()
