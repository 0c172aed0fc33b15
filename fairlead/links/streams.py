"""The state of one stream in a `Mux`: what has been received and not read, what waits to be sent, and its credit."""

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from fairlead.links.limits import INITIAL_WINDOW
from fairlead.links.requests import OpenRequest, Refused, ResponseHead


class ResetCode(IntEnum):
    DONE = 0
    """The reply to an EXIT or RESET."""
    CANCELLED = 1
    OVER_CREDIT = 2
    STALLED = 3
    PROTOCOL = 4
    INTERNAL = 5
    LINK_LOST = 6
    """Never sent: the link has ended, and all its streams with it."""


@dataclass(frozen=True, slots=True)
class Data:
    channel: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Eof:
    channel: int


@dataclass(frozen=True, slots=True)
class Exit:
    code: int


Message = ResponseHead | Data | Eof | Exit


class StreamReset(Exception):
    """The stream has ended without an exit code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class StreamState:
    """One stream. Only `Mux` and `SendQueue` change it."""

    __slots__ = (
        "accept_details",
        "consumed",
        "end",
        "eof_received",
        "eof_sent",
        "final_sent_at",
        "has_exited",
        "has_head",
        "has_received_final",
        "has_sent_final",
        "is_accepted",
        "is_listed",
        "is_local",
        "number",
        "outgoing",
        "queued_cost",
        "receive_credit",
        "received",
        "request",
        "send_credit",
        "starved_since",
        "window",
    )

    def __init__(self, number: int, request: OpenRequest, *, is_local: bool) -> None:
        self.number = number
        self.request = request
        self.is_local = is_local
        self.is_accepted = False
        self.accept_details: dict[str, Any] = {}
        self.has_head = False
        """Whether the head of an HTTP response was sent or received."""
        self.received: deque[Message] = deque()
        self.receive_credit = self.window = INITIAL_WINDOW
        self.consumed = 0
        """Cost of what was read since the last CREDIT."""
        self.eof_received: set[int] = set()
        self.outgoing: deque[tuple[bytes, int]] = deque()
        """Encoded frames and their cost."""
        self.queued_cost = 0
        self.send_credit = INITIAL_WINDOW
        self.eof_sent: set[int] = set()
        self.starved_since: float | None = None
        """Since when this end wants to send and has no credit."""
        self.is_listed = False
        """Whether the stream is in the `SendQueue`."""
        self.has_exited = False
        """Whether an EXIT was queued. Nothing can be sent after it."""
        self.has_sent_final = self.has_received_final = False
        self.final_sent_at = 0.0
        self.end: Refused | StreamReset | None = None
        """Why the stream has ended, unless by an EXIT."""

    @property
    def is_waiting(self) -> bool:
        """Whether the other end owes a reply to this one: to the OPEN, or to the HTTP request."""
        is_answered = self.is_accepted and (self.request.http is None or self.has_head)
        return self.is_local and not is_answered and not self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether this end can neither send nor receive any more. What was received before may still be read."""
        return self.end is not None or self.has_received_final

    def drop_outgoing(self) -> None:
        self.outgoing.clear()
        self.queued_cost = 0
