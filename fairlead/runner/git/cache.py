"""The protocol of `git credential-cache`, which `git` in a workspace speaks: it needs no program of the runner there.

The client sends an action and what it knows of a credential, one `name=value` per line, and reads what is known beside
that. It may be any program of the workspace, and it may pass on the URL of a hostile repository. Old versions of git
wrote a line break in a URL into their request, and so asked for the credentials of one host to send them to another
one. So a request that says anything twice, or has other control characters, gets nothing.
"""

import re
from dataclasses import dataclass

MAX_REQUEST_BYTES = 16 * 1024
MAX_LINES = 64
GET = "get"
DEFAULT_USER = "git"
"""What hosts expect with a token that has no user."""
_HOST = re.compile(rb"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")
_LIST = b"[]"
"""Ends the names of fields that may occur several times, such as `wwwauth[]`. None of them matters here."""


class InvalidRequest(Exception):
    """What is wrong with it, for the log of the runner."""


@dataclass(frozen=True, slots=True)
class CredentialRequest:
    """A wish of git. The user and the path are empty if git does not know or say them."""

    action: str
    protocol: str
    host: str
    path: str = ""
    user: str = ""


def parse_request(content: bytes) -> CredentialRequest:
    """Raises InvalidRequest."""
    if len(content) > MAX_REQUEST_BYTES:
        raise InvalidRequest(f"it has more than {MAX_REQUEST_BYTES} bytes")
    fields = _read_fields(content)
    if b"url" in fields:
        raise InvalidRequest("it has a URL in place of a host")
    host = fields.get(b"host", b"")
    if not _HOST.fullmatch(host):
        raise InvalidRequest("it has no valid host")
    return CredentialRequest(
        action=_read_text(fields, b"action"),
        protocol=_read_text(fields, b"protocol"),
        host=host.decode(),
        path=_read_text(fields, b"path"),
        user=_read_text(fields, b"username"),
    )


def format_response(request: CredentialRequest, user: str, password: str) -> bytes:
    """Empty if these credentials are not for the user that git asks for, or cannot be sent."""
    known = user or request.user or DEFAULT_USER
    if request.user and request.user != known:
        return b""
    if not password or any(character in text for text in (known, password) for character in "\n\r\0"):
        return b""
    return f"username={known}\npassword={password}\n".encode()


def _read_fields(content: bytes) -> dict[bytes, bytes]:
    lines = content.split(b"\n", MAX_LINES)
    if len(lines) > MAX_LINES:
        raise InvalidRequest(f"it has more than {MAX_LINES} lines")
    fields: dict[bytes, bytes] = {}
    for line in lines:
        if not line:
            break
        name, separator, value = line.partition(b"=")
        if not separator or (name in fields and not name.endswith(_LIST)):
            raise InvalidRequest("a line is no field, or a second one of the same name")
        fields[name] = value
    return fields


def _read_text(fields: dict[bytes, bytes], name: bytes) -> str:
    text = fields.get(name, b"").decode(errors="replace")
    if not text.isprintable() or "\ufffd" in text:
        raise InvalidRequest(f"the field {name.decode()} has characters that cannot be printed")
    return text
