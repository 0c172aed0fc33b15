"""The streams that the server opens to a runner, as the actions of the runner use them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

STDIN, STDOUT, STDERR, CONTROL = range(4)
"""Channels. CONTROL has JSON lines: `{"columns": 80, "rows": 24}` or `{"signal": "INT"}`."""


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


class OpenRequest(Protocol):
    """What the server wants, and of which workspace. The server has checked the permissions of the user."""

    @property
    def action(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...
    @property
    def task_id(self) -> str: ...
    @property
    def detach(self) -> bool:
        """Start the task, send its ID, and end the stream."""
        ...


class Stream(Protocol):
    async def accept(self, details: dict[str, Any]) -> None: ...
    async def receive(self) -> Data | Eof | Exit | None: ...
    async def send(self, channel: int, data: bytes) -> None: ...
    async def send_eof(self, channel: int) -> None: ...
    async def send_exit(self, code: int) -> None: ...
    async def reset(self, reason: str) -> None: ...


class ActionRefused(Exception):
    """The stream is not accepted. `code` is an HTTP status code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
