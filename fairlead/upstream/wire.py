"""The head of a request as bytes, with our credential for the cluster and without anything that is not its business.

`upstream.py` and `sockets.py` call this. What came from a client is checked here, whatever was
checked before: a line break in a header would be another request to the cluster, sent with our credential.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from fairlead.core.errors import BadRequest
from fairlead.upstream.access import Access

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
OURS = HOP_BY_HOP | {"authorization", "cookie", "host", "expect", "content-length"}
"""Never taken from the request: we say these ourselves, or not at all."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"/[!-~]*")
_DETOUR = re.compile(r"[^?]*/(?:\.|%2[Ee]){1,2}(?:[/?]|$)")
"""A `.` or `..` step in the path: the cluster would read another path than whoever has judged this one."""


class Wire:
    """Heads for one cluster. Its secret is inside, hence no text of it."""

    __slots__ = ("_after_target", "_lines", "_path")

    def __init__(self, access: Access) -> None:
        host = f"[{access.host}]" if ":" in access.host else access.host
        name = host if access.port == 443 else f"{host}:{access.port}"
        self._path = access.path
        authorization = f"authorization: Bearer {access.token}\r\n" if access.token else ""
        self._after_target = f" HTTP/1.1\r\nhost: {name}\r\n{authorization}"
        self._lines = 4 if access.token else 3

    def head(self, method: str, target: str, headers: Sequence[tuple[str, str]], framing: str) -> bytes:
        """`framing` are header lines of ours: where the body ends, or the handshake of a WebSocket."""
        if not _TARGET.fullmatch(target):
            raise _unfit("the path")
        if ("/." in target or "/%2" in target) and _DETOUR.match(target):
            raise BadRequest("the path has a `.` or `..` step; send the path that is meant, without detours")
        parts = [_method(method), self._path, target, self._after_target, framing]
        lines = self._lines + framing.count("\n")
        for name, value in headers:
            start = _line_start(name)
            if start:
                parts += (start, value, "\r\n")
                lines += 1
        parts.append("\r\n")
        return _checked("".join(parts), lines)


@lru_cache(1024)
def _line_start(name: str) -> str:
    """`name: `, or nothing for a header that does not go along."""
    if not _TOKEN.fullmatch(name):
        raise _unfit("a header's name")
    return "" if name.lower() in OURS else f"{name}: "


@lru_cache(64)
def _method(method: str) -> str:
    if not _TOKEN.fullmatch(method):
        raise _unfit("the method")
    return f"{method} "


def _checked(text: str, lines: int) -> bytes:
    """Text that has the line breaks that we put there, and no others. Values are one byte per character, as in HTTP."""
    if text.count("\n") != lines or text.count("\r") != lines or "\0" in text:
        raise _unfit("a header")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise _unfit("a header") from None


def _unfit(what: str) -> BadRequest:
    return BadRequest(f"{what} has characters that HTTP does not allow there; remove or encode them")
