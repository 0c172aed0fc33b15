"""What the far side was asked, and what it is to answer: the words that `server.py` and its behaviours share."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request as it came over the wire: header names in lower case, every occurrence of them."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    connection: int
    """The how-manieth connection it came by: two of the same one were sent over one."""
    head: bytes = field(default=b"", repr=False)

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}

    def header(self, name: str) -> str:
        """The values of a header, joined; an empty string when there is none."""
        return ", ".join(value for each, value in self.headers if each == name)

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each == name]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    def wire(self, method: str) -> bytes:
        """All of it as bytes. An answer to HEAD says how long the body would be."""
        lines = [f"HTTP/1.1 {self.status} Answer", f"content-type: {self.content_type}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += [f"content-length: {len(self.body)}", "", ""]
        return "\r\n".join(lines).encode() + (b"" if method == "HEAD" else self.body)


def as_json(value: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value).encode())


def status_object(code: int, reason: str, message: str) -> Answer:
    """A failure as Kubernetes says it."""
    return as_json(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        },
        code,
    )


Answering = Callable[[RecordedRequest], Answer | None]
"""None: not mine."""

Behaviour = Callable[[RecordedRequest, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]
"""Writes whatever it likes; whether the connection may be used again."""
