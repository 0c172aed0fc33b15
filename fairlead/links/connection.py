"""Runs a `Mux` on a transport: one task reads, one writes, one checks the deadlines. Both ends use it.

    link = Link(transport, on_open, boot_id=boot_id, is_dialer=True)
    end = await link.run()                     # until the connection ends
    stream = await link.open(OpenRequest("status", uid=uid))

`on_open` serves the streams that the other end opens. It is cancelled when its stream is reset or the link ends: what
has to outlive the stream, such as a task of a runner, must run elsewhere. A stream that it leaves without an exit code
is reset. It raises `Refused` to refuse the stream; the first use of the stream accepts it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog

from fairlead.core.call import RECHECK_SECONDS
from fairlead.core.errors import ApiError
from fairlead.core.waiting import Signal, end_tasks, start_task
from fairlead.links.contract import (
    CLOSED,
    DEAD,
    DRAINING,
    GOING_AWAY,
    PROTOCOL_ERROR,
    LinkEnd,
    MessageTransport,
    OpenHandler,
    Stream,
)
from fairlead.links.frames import FrameError, Hello
from fairlead.links.limits import LinkLimits
from fairlead.links.mux import LinkDead, Mux
from fairlead.links.requests import INTERNAL, LOST, TIMED_OUT, UNAVAILABLE, OpenRequest, Refused, ResponseHead
from fairlead.links.streams import Message, ResetCode, StreamReset, StreamState

TICK_SECONDS = 1.0
MAX_LATE_SECONDS = 1.0
"""A check of the deadlines that comes later than this says that this process was busy, not the other end."""
FRAMES_PER_YIELD = 32
"""Frames that are received before other tasks run, if the transport has them already."""
CLOSE_SECONDS = 2.0
"""How long the last frames and the close of the transport may take."""

log = structlog.get_logger(__name__)


async def refuse_streams(request: OpenRequest, stream: Stream) -> None:
    """The `on_open` of an end that only opens streams itself."""
    raise Refused(INTERNAL, "this end of the connection serves no streams")


class LinkStream:
    """A `Stream` of a `Link`."""

    def __init__(self, link: "Link", state: StreamState) -> None:
        self._link = link
        self._state = state
        self._readable = Signal()
        self._writable = Signal()
        self._send_lock = asyncio.Lock()
        self.handler: asyncio.Task[None] | None = None
        self._end_callbacks: list[Callable[[], None]] = []

    @property
    def details(self) -> dict[str, Any]:
        return self._state.accept_details

    async def accept(self, details: dict[str, Any]) -> None:
        self._link.mux.accept(self._state, details)
        self._link.wake_writer()

    async def receive(self) -> Message | None:
        await self.accept({})
        state, mux = self._state, self._link.mux
        while True:
            message = mux.read(state)
            if message is not None:
                self._link.wake_writer()  # there may be credit to send
                return message
            if state.end is not None:
                raise state.end
            if state.has_received_final or state.has_exited:
                return None
            await self._readable.wait()

    async def send_head(self, head: ResponseHead) -> None:
        """Raises FrameError if the head is too large."""
        await self.accept({})
        self._link.mux.send_head(self._state, head)
        self._link.wake_writer()

    async def send(self, channel: int, data: bytes) -> None:
        await self.accept({})
        state, mux, rest = self._state, self._link.mux, memoryview(data)
        async with self._send_lock:
            while rest:
                if state.has_ended:
                    raise state.end or StreamReset(ResetCode.DONE, "the other end has ended the stream")
                room = mux.room(state)
                if not room:
                    await self._writable.wait()
                    continue
                mux.send(state, channel, bytes(rest[:room]))
                rest = rest[room:]
                self._link.wake_writer()

    async def send_eof(self, channel: int) -> None:
        await self.accept({})
        self._link.mux.send_eof(self._state, channel)
        self._link.wake_writer()

    async def send_exit(self, code: int) -> None:
        await self.accept({})
        self._link.mux.send_exit(self._state, code)
        self._link.wake_writer()

    async def reset(self, reason: str) -> None:
        self.abandon(reason)

    def abandon(self, reason: str) -> None:
        self.abort(ResetCode.CANCELLED, reason)

    def abort(self, code: ResetCode, reason: str) -> None:
        self._link.mux.reset(self._state, code, reason)
        self._link.dispatch()

    def wake(self) -> None:
        """Something has changed: called by the link."""
        self._readable.wake()
        self._writable.wake()
        if self._state.end is not None and self.handler is not None:
            self.handler.cancel()

    def on_ended(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once, when both ends have ended the stream."""
        if self._state.number in self._link.mux.streams:
            self._end_callbacks.append(callback)
        else:
            callback()

    def mark_ended(self) -> None:
        """Called by the link."""
        callbacks, self._end_callbacks = self._end_callbacks, []
        for callback in callbacks:
            callback()

    async def wait_accepted(self, seconds: float) -> None:
        """Raises Refused."""
        state = self._state
        try:
            async with asyncio.timeout(seconds):
                while not state.is_accepted and state.end is None:
                    await self._readable.wait()
        except TimeoutError:
            self.abort(ResetCode.CANCELLED, "not accepted in time")
            raise Refused(TIMED_OUT, f"the other end did not respond within {seconds:g} seconds") from None
        except asyncio.CancelledError:
            self.abort(ResetCode.CANCELLED, "cancelled")
            raise
        if isinstance(state.end, Refused):
            raise state.end
        if state.end is not None and not state.is_accepted:
            # Its ACCEPT may have been lost with the link.
            code = LOST if state.end.code == ResetCode.LINK_LOST else UNAVAILABLE
            raise Refused(code, f"the stream has ended: {state.end.reason}")

    async def serve(self, on_open: OpenHandler) -> None:
        """Runs the handler of a stream that the other end has opened."""
        state, mux = self._state, self._link.mux
        code, reason = ResetCode.INTERNAL, "the stream was left without an exit code"
        try:
            await on_open(state.request, self)
        except Refused as refusal:
            if not state.is_accepted:
                mux.refuse(state, refusal.code, refusal.message)
            reason = refusal.message
        except StreamReset:
            pass
        except asyncio.CancelledError:
            code, reason = ResetCode.CANCELLED, "cancelled"
        except Exception as error:  # a failure of one stream must not end the others
            log.exception("a stream has failed", action=state.request.action, error=type(error).__name__)
            reason = "internal error"
        if not state.has_exited:
            mux.reset(state, code, reason)
        self._link.dispatch()


class Link:
    """One connection. `peer_boot_id` is known once `wait_ready` has returned."""

    def __init__(
        self,
        transport: MessageTransport,
        on_open: OpenHandler = refuse_streams,
        *,
        boot_id: str,
        is_dialer: bool,
        limits: LinkLimits | None = None,
    ) -> None:
        self._transport = transport
        self._on_open = on_open
        self._loop = asyncio.get_running_loop()
        self.mux = Mux(boot_id, limits or LinkLimits(), self._loop.time(), is_dialer=is_dialer)
        self._streams: dict[int, LinkStream] = {}
        self._handlers: set[asyncio.Task[None]] = set()
        self._writer_signal = Signal()
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._closing = LinkEnd(GOING_AWAY, "closed by this end")
        """How the link ends after the frames that wait to be sent, once the mux goes away."""
        self.end: LinkEnd | None = None

    @property
    def peer_boot_id(self) -> str:
        hello: Hello | None = self.mux.peer_hello
        return hello.boot_id if hello is not None else ""

    @property
    def stream_count(self) -> int:
        return len(self.mux.streams)

    @property
    def takes_streams(self) -> bool:
        """Whether streams may be opened: the link has neither ended, nor is it about to."""
        return self.end is None and self.mux.takes_streams

    async def open(self, request: OpenRequest) -> LinkStream:
        """Opens a stream, and waits until it is accepted. Raises Refused."""
        if self.end is not None:
            raise Refused(UNAVAILABLE, f"the connection has ended: {self.end.reason}")
        try:
            state = self.mux.open(request)
        except FrameError:
            raise Refused(413, "the options of the request are too large") from None
        stream = self._streams[state.number] = LinkStream(self, state)
        self.wake_writer()
        await stream.wait_accepted(self.mux.limits.open_seconds)
        return stream

    async def wait_ready(self) -> bool:
        """Waits until the other end has said hello. Returns False if the link has ended before."""
        await self._ready.wait()
        return self.end is None

    async def run(self) -> LinkEnd:
        """Serves the link until it ends. Then all its streams are reset."""
        tasks = [asyncio.create_task(each) for each in (self._read(), self._write(), self._check_deadlines())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._finish(next(iter(done)).result())
        finally:
            await end_tasks(*tasks)
            self._finish(LinkEnd(GOING_AWAY, "the process stops"))
            await self._close_transport()
            await self._end_handlers()
        assert self.end is not None
        return self.end

    async def close(self, code: int, reason: str) -> None:
        """Tells the other end that the link ends, and ends it."""
        await self._go_away(LinkEnd(code, reason))
        self._finish(LinkEnd(code, reason))
        await self._close_transport()

    def close_soon(self, code: int, reason: str) -> None:
        """Like `close`, without waiting for it."""
        self._closing = LinkEnd(code, reason)
        self.mux.go_away(code, reason)
        self.wake_writer()

    def drain(self, reason: str, seconds: float) -> None:
        """Ends the link when its streams have ended, or after so many seconds. Until then, new ones are refused."""
        self._closing = LinkEnd(DRAINING, reason)
        self.mux.drain(reason)
        self.wake_writer()
        self._loop.call_later(seconds, self.close_soon, DRAINING, reason)

    def wake_writer(self) -> None:
        self._writer_signal.wake()

    def dispatch(self) -> None:
        """Passes on what the mux has for the users of streams."""
        mux = self.mux
        changed, mux.changed = mux.changed, {}
        opened, mux.opened = mux.opened, []
        for state in opened:
            stream = self._streams[state.number] = LinkStream(self, state)
            stream.handler = start_task(self._handlers, stream.serve(self._on_open))
        for number in changed:
            known = self._streams.get(number)
            if known is not None:
                known.wake()
                if number not in mux.streams:
                    del self._streams[number]
                    known.mark_ended()
        self.wake_writer()

    # --- the tasks of the link ---------------------------------------------------------------------------------------

    async def _read(self) -> LinkEnd:
        count = 0
        while True:
            message = await self._transport.receive()
            if message is None:
                gone = self.mux.peer_goaway
                return LinkEnd(gone.code, gone.reason) if gone else LinkEnd(CLOSED, "the connection was closed")
            try:
                self.mux.receive(message, self._loop.time())
            except FrameError as error:
                return await self._reject(str(error))
            if self.mux.peer_hello is not None:
                self._ready.set()
            self.dispatch()
            count += 1
            if count % FRAMES_PER_YIELD == 0:
                await asyncio.sleep(0)

    async def _write(self) -> LinkEnd:
        seconds = self.mux.limits.dead_seconds
        while True:
            frame = self.mux.next_frame()
            if frame is None:
                if self.mux.is_going_away or (self.mux.is_draining and not self.mux.streams):
                    return self._closing
                await self._writer_signal.wait()
                continue
            if self.mux.changed:
                self.dispatch()
            try:
                async with asyncio.timeout(seconds):
                    await self._transport.send(frame)
            except TimeoutError:
                return LinkEnd(DEAD, f"a message could not be sent for {seconds:g} seconds")

    async def _check_deadlines(self) -> LinkEnd:
        checked_at = self._loop.time()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self._loop.time()
            late = now - checked_at - TICK_SECONDS
            checked_at = now
            if late > MAX_LATE_SECONDS:
                self.mux.forgive(late)
            try:
                self.mux.tick(now)
            except LinkDead as error:
                return LinkEnd(DEAD, str(error))
            except FrameError as error:
                return await self._reject(str(error))
            self.dispatch()

    async def _reject(self, reason: str) -> LinkEnd:
        """Tells the other end what it did wrong."""
        log.warning("a connection violates the protocol", reason=reason)
        end = LinkEnd(PROTOCOL_ERROR, reason)
        await self._go_away(end)
        return end

    async def _go_away(self, end: LinkEnd) -> None:
        self.close_soon(end.code, end.reason)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._ended.wait()

    def _finish(self, end: LinkEnd) -> None:
        if self.end is None:
            self.end = end
            self.mux.fail(end.reason)
            self.dispatch()
            self._ready.set()
            self._ended.set()

    async def _close_transport(self) -> None:
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._transport.close()

    async def _end_handlers(self) -> None:
        handlers = list(self._handlers)
        for handler in handlers:
            handler.cancel()
        if handlers:
            await asyncio.wait(handlers, timeout=CLOSE_SECONDS)


async def watch_access(link: Link, running: "asyncio.Task[object]", recheck: Callable[[], None]) -> None:
    """Waits until the link, which `running` runs, has ended. Closes it when `recheck` raises ApiError."""
    while not running.done():
        await asyncio.wait((running,), timeout=RECHECK_SECONDS)
        try:
            recheck()
        except ApiError as error:
            await link.close(GOING_AWAY, error.message)
            return
