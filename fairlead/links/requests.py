"""What one end asks of the other when it opens a stream, and how the other end refuses."""

from typing import Any

import msgspec

CONFLICT, TOO_MANY, INTERNAL, UNAVAILABLE, TIMED_OUT = 409, 429, 500, 503, 504
"""Codes of a refusal that this package sends itself. They are HTTP status codes, as are those of a runner."""


class OpenRequest(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The request that opens a stream: what to do with which workspace.

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


class Refused(Exception):
    """The other end does not accept a stream. `code` is an HTTP status code from 400 to 599."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
