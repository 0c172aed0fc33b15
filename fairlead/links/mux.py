"""The streams of one link, as a state machine without I/O. `connection.py` runs it.

    receive(message)    handles a frame of the other end; never waits
    next_frame()        the next frame to send; None if there is nothing to send now
    tick(now)           to be called every second: keepalive and deadlines
    open, accept, refuse, send, send_eof, send_exit, reset, read    for the users of streams

A stream ends when both ends have sent their last frame: an EXIT, or a RESET. An end that receives the last frame of the
other one confirms it with a RESET. Until then the stream is known, and what still arrives on it is discarded and
counted. So every other frame on an unknown stream is an error of the other end, and a flood of them is noticed.

Errors of one stream reset that stream. FrameError and LinkDead end the link.
"""

from collections import deque
from typing import Any

from fairlead.links import frames
from fairlead.links.contract import DRAINING
from fairlead.links.frames import FrameError, FrameType, Hello
from fairlead.links.limits import MAX_WINDOW, MIN_CREDIT, FrameBudget, LinkLimits
from fairlead.links.requests import NOT_SUPPORTED, TOO_MANY, UNAVAILABLE, OpenRequest, Refused, ResponseHead
from fairlead.links.streams import Data, Eof, Exit, Message, ResetCode, StreamReset, StreamState


class SendQueue:
    """The order in which streams send: first those that had nothing to send; then users take turns, one frame each, and
    so do the streams of each user.

    So a keystroke or a line of output does not wait behind bulk transfers, and a user with many of them slows another
    one down as little as with one. A stream keeps its place in the round after its last frame. Otherwise a stream with
    many small frames would always be served first.
    """

    def __init__(self) -> None:
        self._fresh: deque[StreamState] = deque()
        self._users: deque[str] = deque()
        """Users with streams in turn, the next one first."""
        self._in_turn: dict[str, deque[StreamState]] = {}

    def add(self, stream: StreamState, frame: bytes, cost: int = 0) -> None:
        stream.outgoing.append((frame, cost))
        stream.queued_cost += cost
        if not stream.is_listed:
            stream.is_listed = True
            self._fresh.append(stream)

    def pop(self) -> tuple[StreamState, bytes] | None:
        while self._fresh or self._users:
            stream = self._fresh.popleft() if self._fresh else self._pop_in_turn()
            if not stream.outgoing:
                stream.is_listed = False
                continue
            frame, cost = stream.outgoing.popleft()
            stream.queued_cost -= cost
            self._append_in_turn(stream)
            return stream, frame
        return None

    def _pop_in_turn(self) -> StreamState:
        user = self._users.popleft()
        streams = self._in_turn[user]
        stream = streams.popleft()
        if streams:
            self._users.append(user)
        else:
            del self._in_turn[user]
        return stream

    def _append_in_turn(self, stream: StreamState) -> None:
        user = stream.request.user
        if user not in self._in_turn:
            self._in_turn[user] = deque()
            self._users.append(user)
        self._in_turn[user].append(stream)


class LinkDead(Exception):
    """The other end does not respond."""


class GoneAway(Exception):
    """The other end ends the link, with a code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Mux:
    """One end of a link. `is_dialer` is whether this end has opened the connection."""

    def __init__(self, boot_id: str, limits: LinkLimits, now: float, *, is_dialer: bool) -> None:
        self.limits = limits
        self.peer_hello: Hello | None = None
        self.peer_goaway: GoneAway | None = None
        self.streams: dict[int, StreamState] = {}
        self.changed: dict[int, StreamState] = {}
        """Streams with something new for their user. The driver empties it."""
        self.opened: list[StreamState] = []
        """Streams that the other end has opened. The driver empties it."""
        self._is_dialer = is_dialer
        self._next_number = 1 if is_dialer else 2
        self._last_peer_number = 0
        self._total_window = 0
        self._control: deque[bytes] = deque()
        self._credits: dict[int, int] = {}
        self._pong: bytes | None = None
        self._send_queue = SendQueue()
        self._budget = FrameBudget(limits.idle_frames_per_second, limits.idle_frames_burst)
        self._now = self._started_at = self._received_at = self._pinged_at = now
        self.is_going_away = self.is_draining = False
        self._add_control(frames.encode_hello(Hello(max(1, frames.VERSION - 1), frames.VERSION, boot_id)))

    @property
    def version(self) -> int:
        """The highest version that both ends speak; that of this end until the other one has said hello."""
        return min(frames.VERSION, self.peer_hello.max_version) if self.peer_hello is not None else frames.VERSION

    @property
    def takes_streams(self) -> bool:
        """Whether this end may open streams."""
        return self.peer_goaway is None and not self.is_going_away and not self.is_draining

    # --- for the driver ----------------------------------------------------------------------------------------------

    def receive(self, message: bytes, now: float) -> None:
        """Handles a frame. Raises FrameError if the link has to be closed."""
        self._now = self._received_at = now
        kind, number, payload = frames.decode_frame(message)
        if (self.peer_hello is None) != (kind is FrameType.HELLO):
            raise FrameError("the first frame, and no other, must be HELLO")
        if kind in frames.LINK_FRAMES:
            self._receive_link_frame(kind, payload)
        elif kind is FrameType.OPEN:
            self._receive_open(number, payload)
        else:
            self._receive_stream_frame(kind, number, payload)

    def next_frame(self) -> bytes | None:
        if self._control:
            return self._control.popleft()
        if self._pong is not None:
            pong, self._pong = self._pong, None
            return frames.encode_ping(FrameType.PONG, pong)
        if self._credits:
            number = next(iter(self._credits))
            return frames.encode_credit(number, self._credits.pop(number))
        item = self._send_queue.pop()
        if item is None:
            return None
        stream, frame = item
        if stream.has_exited and not stream.outgoing:
            self._end_sending(stream)
        self.changed[stream.number] = stream  # there is room for more
        return frame

    def tick(self, now: float) -> None:
        """Raises LinkDead if the other end is dead, and FrameError if it violates a deadline of the protocol."""
        self._now, limits = now, self.limits
        if self.peer_hello is None and now - self._started_at >= limits.hello_seconds:
            raise LinkDead(f"no HELLO within {limits.hello_seconds:g} seconds")
        if now - self._received_at >= limits.dead_seconds:
            raise LinkDead(f"nothing was received for {limits.dead_seconds:g} seconds")
        if now - self._pinged_at >= limits.ping_seconds:
            self._ping(now)
        self._check_owed_replies(now)
        for stream in list(self.streams.values()):
            self._check_deadlines(stream)

    def forgive(self, seconds: float) -> None:
        """This process was busy, or stopped, for so long: what has arrived meanwhile was not read yet."""
        self._received_at += seconds

    def drain(self, reason: str) -> None:
        """Tells the other end that the link ends with its streams. New ones are refused."""
        if not self.is_draining and not self.is_going_away:
            self.is_draining = True
            self._add_control(frames.encode_reason(FrameType.GOAWAY, frames.LINK, DRAINING, reason))

    def go_away(self, code: int, reason: str) -> None:
        """Tells the other end that the link ends. New streams are refused."""
        if not self.is_going_away:
            self.is_going_away = True
            self._add_control(frames.encode_reason(FrameType.GOAWAY, frames.LINK, code, reason))

    def fail(self, reason: str) -> None:
        """Ends all streams, because the link has ended."""
        for stream in list(self.streams.values()):
            self._forget(stream, StreamReset(ResetCode.LINK_LOST, reason))

    # --- for the users of streams ------------------------------------------------------------------------------------

    def open(self, request: OpenRequest) -> StreamState:
        """Raises Refused if there are too many streams, or the link ends, and FrameError if the request is too
        large."""
        if not self.takes_streams:
            raise Refused(UNAVAILABLE, "the connection is about to end; try again")
        if request.http is not None and self.version < frames.HTTP_VERSION:
            raise Refused(NOT_SUPPORTED, "the other end speaks an older version of the protocol; update it")
        if self._count_streams(is_local=True) >= self.limits.max_streams or self._next_number > frames.MAX_STREAM:
            raise Refused(TOO_MANY, f"{self.limits.max_streams} streams are open, which is the limit")
        frame = frames.encode_open(self._next_number, request, self.version)
        stream = StreamState(self._next_number, request, is_local=True)
        self._next_number += 2
        self._add_stream(stream)
        self._add_control(frame)
        return stream

    def accept(self, stream: StreamState, details: dict[str, Any]) -> None:
        if not stream.is_local and not stream.is_accepted and not stream.has_ended:
            frame = frames.encode_accept(stream.number, details)
            stream.is_accepted, stream.accept_details = True, details
            self._add_control(frame)

    def send_head(self, stream: StreamState, head: ResponseHead) -> None:
        """The head of the response to an HTTP request. Raises FrameError if it is too large. Has no effect if the
        stream has ended."""
        if stream.has_ended or stream.has_exited:
            return
        if stream.is_local or stream.request.http is None or stream.has_head:
            raise ValueError(f"stream {stream.number}: no HEAD is expected")
        frame = frames.encode_head(stream.number, head)
        stream.has_head = True
        self._send_queue.add(stream, frame)

    def refuse(self, stream: StreamState, code: int, message: str) -> None:
        """Refuses a stream that was not accepted yet."""
        if not stream.has_ended:
            self._add_control(frames.encode_refuse(stream.number, code, message))
            self._forget(stream, Refused(code, message))

    def room(self, stream: StreamState) -> int:
        """How many bytes may be sent now; 0 if none."""
        credit = stream.send_credit
        if credit < frames.MIN_DATA_COST:
            if stream.starved_since is None:
                stream.starved_since = self._now
            return 0
        free = self.limits.max_queued_bytes - stream.queued_cost
        if stream.queued_cost and free < frames.MAX_DATA_BYTES:
            return 0  # small pieces of room would make small frames, and these small pieces of room again
        return min(credit, max(free, frames.MIN_DATA_COST), frames.MAX_DATA_BYTES)

    def send(self, stream: StreamState, channel: int, content: bytes) -> None:
        """Sends at most `room` bytes, and at least one."""
        cost = frames.data_cost(len(content))
        if not content or cost > max(self.room(stream), frames.MIN_DATA_COST) or cost > stream.send_credit:
            raise ValueError(f"stream {stream.number} has no room for {len(content)} bytes")
        self._check_open_for_sending(stream, channel)
        stream.send_credit -= cost
        self._send_queue.add(stream, frames.encode_data(stream.number, channel, content), cost)

    def send_eof(self, stream: StreamState, channel: int) -> None:
        """Ends one channel in this direction. Has no effect if it has ended."""
        if channel not in stream.eof_sent and not stream.has_ended and not stream.has_exited:
            self._check_open_for_sending(stream, channel)
            stream.eof_sent.add(channel)
            self._send_queue.add(stream, frames.encode_eof(stream.number, channel))

    def send_exit(self, stream: StreamState, code: int) -> None:
        """The last frame, after everything that was sent before. Has no effect if the stream has ended."""
        if not stream.has_ended and not stream.has_exited:
            self._check_open_for_sending(stream, None)
            stream.has_exited = True
            self._send_queue.add(stream, frames.encode_exit(stream.number, code))

    def reset(self, stream: StreamState, code: ResetCode, reason: str) -> None:
        """Ends the stream at once. Discards what was not sent or not read. Has no effect if the stream has ended."""
        if not stream.has_sent_final and stream.number in self.streams:
            self._add_control(frames.encode_reason(FrameType.RESET, stream.number, code, reason))
            stream.received.clear()
            stream.end = stream.end or StreamReset(code, reason)
            self._end_sending(stream)
            self.changed[stream.number] = stream

    def read(self, stream: StreamState) -> Message | None:
        """The next message of a stream, which gives credit to the other end; None if there is none now."""
        if not stream.received:
            return None
        message = stream.received.popleft()
        if isinstance(message, Data):
            stream.consumed += frames.data_cost(len(message.content))
            if stream.consumed >= stream.window // 2 and not stream.has_received_final and not stream.has_sent_final:
                self._grant_credit(stream)
        return message

    # --- receiving ---------------------------------------------------------------------------------------------------

    def _receive_link_frame(self, kind: FrameType, payload: bytes) -> None:
        if kind is FrameType.HELLO:
            hello = frames.decode_hello(payload)
            if hello.min_version > frames.VERSION or hello.max_version < max(1, frames.VERSION - 1):
                spoken = f"{hello.min_version} to {hello.max_version}"
                raise FrameError(f"the other end speaks the versions {spoken} of the protocol; update one of both")
            self.peer_hello = hello
            return
        self._spend_idle_frame()
        if kind is FrameType.GOAWAY:
            self.peer_goaway = GoneAway(*frames.decode_reason(payload))
        else:
            content = frames.check_ping(payload)
            if kind is FrameType.PING:
                self._pong = content

    def _receive_open(self, number: int, payload: bytes) -> None:
        self._spend_idle_frame()
        if number % 2 == self._is_dialer or number <= self._last_peer_number:
            raise FrameError(f"OPEN with the number {number}, which is used or belongs to this end")
        self._last_peer_number = number
        stream = StreamState(number, frames.decode_open(payload), is_local=False)
        if self.is_going_away or self.is_draining:
            self._add_control(frames.encode_refuse(number, UNAVAILABLE, "the connection is about to end; try again"))
        elif self._count_streams(is_local=False) >= self.limits.max_streams:
            message = f"{self.limits.max_streams} streams are open, which is the limit"
            self._add_control(frames.encode_refuse(number, TOO_MANY, message))
        else:
            self._add_stream(stream)
            self.opened.append(stream)

    def _receive_stream_frame(self, kind: FrameType, number: int, payload: bytes) -> None:
        stream = self.streams.get(number)
        if kind not in (FrameType.DATA, FrameType.CREDIT):
            self._spend_idle_frame()
        if stream is None:
            is_ours = number % 2 == self._is_dialer
            if kind is FrameType.RESET and number < (self._next_number if is_ours else self._last_peer_number + 1):
                return  # it was sent before our REFUSE arrived
            raise FrameError(f"{kind.name} for stream {number}, which is not open")
        match kind:
            case FrameType.ACCEPT:
                self._receive_accept(stream, payload)
            case FrameType.REFUSE:
                self._receive_refuse(stream, payload)
            case FrameType.HEAD:
                self._receive_head(stream, payload)
            case FrameType.DATA:
                self._receive_data(stream, payload)
            case FrameType.CREDIT:
                self._receive_credit(stream, frames.decode_credit(payload))
            case FrameType.EOF:
                self._receive_eof(stream, frames.decode_eof(payload))
            case FrameType.EXIT:
                self._receive_exit(stream, frames.decode_exit(payload))
            case _:
                self._receive_reset(stream, *frames.decode_reason(payload))
        self.changed[number] = stream

    def _receive_accept(self, stream: StreamState, payload: bytes) -> None:
        if not stream.is_local or stream.is_accepted:
            raise FrameError(f"ACCEPT for stream {stream.number}, which this end did not open or which is accepted")
        stream.is_accepted, stream.accept_details = True, frames.decode_accept(payload)

    def _receive_refuse(self, stream: StreamState, payload: bytes) -> None:
        if not stream.is_local or stream.is_accepted:
            raise FrameError(f"REFUSE for stream {stream.number}, which this end did not open or which is accepted")
        refusal = frames.decode_refuse(payload)
        self._forget(stream, Refused(refusal.code, refusal.message))

    def _receive_head(self, stream: StreamState, payload: bytes) -> None:
        self._check_received_in_order(stream, "HEAD")
        if not stream.is_local or stream.request.http is None or stream.has_head:
            raise FrameError(
                f"HEAD for stream {stream.number}, which has one already or is no HTTP request of this end"
            )
        head = frames.decode_head(payload)
        stream.has_head = True
        if not stream.has_sent_final:
            stream.received.append(head)

    def _receive_data(self, stream: StreamState, payload: bytes) -> None:
        channel, content = frames.decode_data(payload)
        self._check_received_in_order(stream, "DATA")
        cost = frames.data_cost(len(content))
        if cost > stream.receive_credit:
            if stream.has_sent_final:
                raise FrameError(f"stream {stream.number} sends more than its credit after it was reset")
            self.reset(stream, ResetCode.OVER_CREDIT, "more DATA than there was credit for")
            return
        stream.receive_credit -= cost
        if stream.has_sent_final or stream.has_exited:
            return  # this end does not read any more
        if stream.is_local and stream.request.http is not None and not stream.has_head:
            self.reset(stream, ResetCode.PROTOCOL, "DATA before HEAD")
            return
        if channel in stream.eof_received:
            self.reset(stream, ResetCode.PROTOCOL, f"DATA after the EOF of channel {channel}")
            return
        stream.received.append(Data(channel, content))

    def _receive_credit(self, stream: StreamState, credit: int) -> None:
        self._check_received_in_order(stream, "CREDIT")
        if credit < MIN_CREDIT:
            self._spend_idle_frame()
        stream.send_credit += credit
        stream.starved_since = None
        if stream.send_credit > MAX_WINDOW:
            if stream.has_sent_final:
                raise FrameError(f"stream {stream.number} gets more credit than {MAX_WINDOW} bytes after it was reset")
            self.reset(stream, ResetCode.PROTOCOL, f"credit for more than {MAX_WINDOW} bytes")

    def _receive_eof(self, stream: StreamState, channel: int) -> None:
        self._check_received_in_order(stream, "EOF")
        if channel not in stream.eof_received and not stream.has_sent_final:
            stream.eof_received.add(channel)
            stream.received.append(Eof(channel))

    def _receive_exit(self, stream: StreamState, code: int) -> None:
        self._check_received_in_order(stream, "EXIT")
        stream.has_received_final = True
        if not stream.has_sent_final:
            stream.received.append(Exit(code))
        self._confirm_end(stream)

    def _receive_reset(self, stream: StreamState, code: int, reason: str) -> None:
        stream.has_received_final = True
        if not stream.has_sent_final or (code != ResetCode.DONE and stream.end is None):
            stream.received.clear()
            stream.end = StreamReset(code, reason)
        self._confirm_end(stream)

    def _check_received_in_order(self, stream: StreamState, name: str) -> None:
        """Before ACCEPT, only RESET is allowed; after the last frame, nothing."""
        if not stream.is_accepted or stream.has_received_final:
            raise FrameError(f"{name} for stream {stream.number} before ACCEPT or after its end")

    # --- sending -----------------------------------------------------------------------------------------------------

    def _confirm_end(self, stream: StreamState) -> None:
        """Sends the last frame of this end, if it was not sent, and forgets the stream."""
        if not stream.has_sent_final:
            self._add_control(frames.encode_reason(FrameType.RESET, stream.number, ResetCode.DONE, ""))
            self._end_sending(stream)
        self._remove(stream)

    def _end_sending(self, stream: StreamState) -> None:
        stream.has_sent_final, stream.final_sent_at = True, self._now
        stream.drop_outgoing()
        self._credits.pop(stream.number, None)

    def _grant_credit(self, stream: StreamState) -> None:
        """Gives credit for what was read. The window grows while its user reads faster than the data arrives."""
        credit, stream.consumed = stream.consumed, 0
        growth = min(stream.window, MAX_WINDOW - stream.window)
        if not stream.received and growth and self._total_window + growth <= self.limits.total_window:
            stream.window += growth
            self._total_window += growth
            credit += growth
        stream.receive_credit += credit
        self._credits[stream.number] = self._credits.get(stream.number, 0) + credit

    def _check_open_for_sending(self, stream: StreamState, channel: int | None) -> None:
        if stream.end is not None:
            raise stream.end
        if stream.has_received_final:
            raise StreamReset(ResetCode.DONE, "the other end has ended the stream")
        if stream.has_exited or channel in stream.eof_sent or not stream.is_accepted:
            raise ValueError(f"stream {stream.number}: cannot send after EOF or EXIT, or before it is accepted")

    def _ping(self, now: float) -> None:
        self._pinged_at = now
        self._add_control(frames.encode_ping(FrameType.PING, int(now * 1000).to_bytes(frames.PING_BYTES, "big")))

    def _check_owed_replies(self, now: float) -> None:
        """A request that waits for a dead link finds that out sooner than an idle link does."""
        limits, silence = self.limits, now - self._received_at
        if not limits.waiting_dead_seconds or silence < limits.waiting_ping_seconds:
            return
        if not any(stream.is_waiting for stream in self.streams.values()):
            return
        if silence >= limits.waiting_dead_seconds and self._pinged_at >= self._received_at:
            raise LinkDead(f"nothing was received for {silence:.1f} seconds, with requests under way")
        if now - self._pinged_at >= 1.0:
            self._ping(now)

    def _check_deadlines(self, stream: StreamState) -> None:
        limits = self.limits
        if stream.has_sent_final and self._now - stream.final_sent_at >= limits.reset_seconds:
            raise FrameError(f"the end of stream {stream.number} was not confirmed in {limits.reset_seconds:g} seconds")
        if stream.starved_since is not None and self._now - stream.starved_since >= limits.stall_seconds:
            reason = f"the other end has read nothing for {limits.stall_seconds:g} seconds"
            self.reset(stream, ResetCode.STALLED, reason)

    def _add_control(self, frame: bytes) -> None:
        self._control.append(frame)

    def _spend_idle_frame(self) -> None:
        if len(self._control) > self.limits.max_control_frames:
            raise FrameError("the other end does not read replies")
        if not self._budget.spend(self._now):
            raise FrameError(f"more than {self.limits.idle_frames_per_second} frames a second without content")

    # --- the table of streams ----------------------------------------------------------------------------------------

    def _count_streams(self, *, is_local: bool) -> int:
        return sum(stream.is_local is is_local for stream in self.streams.values())

    def _add_stream(self, stream: StreamState) -> None:
        self.streams[stream.number] = stream
        self._total_window += stream.window

    def _remove(self, stream: StreamState) -> None:
        if self.streams.pop(stream.number, None) is not None:
            self._total_window -= stream.window

    def _forget(self, stream: StreamState, end: Refused | StreamReset) -> None:
        """Ends a stream without a last frame."""
        stream.received.clear()
        stream.end = stream.end or end
        stream.has_received_final = True
        self._end_sending(stream)
        self._remove(stream)
        self.changed[stream.number] = stream
