"""Requests to the fake cluster and its responses: the types that `server.py` and the behaviours share."""

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
    """The number of the connection. Requests with the same number came over one connection."""
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

    def header_values(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each == name]


@dataclass(frozen=True, slots=True)
class CannedResponse:
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self, method: str) -> bytes:
        """The bytes of the response. To HEAD, it has the length of the body without the body."""
        lines = [f"HTTP/1.1 {self.status} Status", f"content-type: {self.content_type}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += [f"content-length: {len(self.body)}", "", ""]
        return "\r\n".join(lines).encode() + (b"" if method == "HEAD" else self.body)


def build_json_response(value: Any, status: int = 200) -> CannedResponse:
    return CannedResponse(status, json.dumps(value).encode())


def build_status_response(code: int, reason: str, message: str) -> CannedResponse:
    """A failure as a Kubernetes Status."""
    return build_json_response(
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


Responder = Callable[[RecordedRequest], CannedResponse | None]
"""Returns None for requests that it does not handle."""

Behaviour = Callable[[RecordedRequest, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]
"""Writes a response and returns whether the connection can be reused."""
