"""What one end asks of the other when it opens a stream, and how the other end refuses."""

from enum import IntEnum
from typing import Any

import msgspec

CONFLICT, TOO_MANY, INTERNAL, NOT_SUPPORTED, UNAVAILABLE, TIMED_OUT = 409, 429, 500, 501, 503, 504
"""Codes of a refusal that this package sends itself. They are HTTP status codes, as are those of a runner."""
LOST = 502
"""The connection has ended before the reply to an OPEN: the other end may have begun, so it must not be sent again."""


HTTP = "http"
"""The action of a stream with an HTTP request: to the API server of the cluster whose agent has opened the link."""
HeaderPairs = tuple[tuple[str, str], ...]


class RequestHead(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The head of an HTTP request. `target` is the raw path and query. The body is what arrives on channel 0.

    With `upgrade`, the bytes that follow a response with status 101 are those of the other protocol, both ways.
    """

    method: str
    target: str
    headers: HeaderPairs = ()
    has_body: bool = False
    upgrade: bool = False


class ResponseHead(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The head of the response. The body is what arrives on channel 1, and the exit code 0 says that it is complete."""

    status: int
    headers: HeaderPairs = ()


class HttpExit(IntEnum):
    """Exit codes of HTTP streams: whether the response is complete, or what is wrong with the API server."""

    COMPLETE = 0
    UNREACHABLE = 1
    TIMED_OUT = 2
    NOT_TRUSTED = 3
    INVALID = 4
    BUSY = 5


class OpenRequest(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The request that opens a stream: what to do with which workspace, or an HTTP request for a cluster.

    `user` is who asked for it, for the audit log of the runner. `options` are those of the client. `resource_version`
    is that of the workspace when the server read it.
    """

    action: str
    runner: str = ""
    uid: str = ""
    namespace: str = ""
    name: str = ""
    user: str = ""
    options: dict[str, Any] = {}
    task_id: str = ""
    detach: bool = False
    """Start the task, send its ID, and end the stream; without it, the stream lasts as long as the task."""
    debug: bool = False
    resource_version: str = ""
    ssh_authorities: tuple[str, ...] = ()
    """For `ssh`: the public keys whose certificates are accepted. The server sets it, never the client."""
    cluster: str = ""
    """For `http`: which cluster. Only processes of the server read it of each other; an agent has one cluster."""
    http: RequestHead | None = None

    @property
    def peer(self) -> str:
        """The name of the runner or cluster that the stream is for, by which its connection is found."""
        return f"cluster {self.cluster}" if self.cluster else self.runner


class Refused(Exception):
    """The other end does not accept a stream. `code` is an HTTP status code from 400 to 599.

    It has not begun what was asked for, unless the code is LOST or TIMED_OUT: then it is not known."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
