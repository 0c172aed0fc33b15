"""Everything that can go wrong between a program and its server, as one sentence with advice.

`client.py` raises these; the commands print them and nothing more.

ClientError
├── ApiProblem            the server answered, and the answer is no: its code, reason, message and causes
├── DeadlinePassed        a watch has lasted as long as it was meant to
└── Unreachable           no answer: refused, unknown host, timeout, broken connection
    └── Untrusted         a TLS certificate that cannot be trusted
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fairlead.core import json
from fairlead.core.body_errors import Malformed

ADVICE = {
    "AlreadyExists": "choose another name",
    "NotFound": "check the name",
    "ServiceUnavailable": "try again in a moment",
    "TooManyRequests": "try again in a moment",
    "Unauthorized": "log in again with `fairlead login`",
}
CANNOT = "`fairlead whoami` shows with whose rights you ask"
GIVEN = "with `fairlead login --ca-file` or FAIRLEAD_CA_FILE (the server's own is tls/ca.crt in its data folder)"

# OpenSSL's verify codes: the certificate, or one above it, is signed by nobody that we know.
_UNKNOWN_AUTHORITY = {2, 18, 19, 20, 21}
_OUT_OF_DATE = {9: "is not valid yet", 10: "has expired"}
_WRONG_NAME = {62, 64}


class ClientError(Exception):
    """The text is for the person who asked."""


class DeadlinePassed(ClientError):
    """Whoever watches knows what for, and says so."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing wrong with one field of what was sent."""

    field: str
    reason: str
    message: str


class ApiProblem(ClientError):
    """A `Status` with a code of 400 or more. `str()` is its message, with advice where the client has some to give."""

    def __init__(self, code: int, reason: str, message: str, causes: tuple[Cause, ...] = ()) -> None:
        advice = ADVICE.get(reason, "")
        # Other refusals say by themselves what to change; "User X cannot" leaves one wondering about X.
        if reason == "Forbidden" and " cannot " in message:
            advice = CANNOT
        super().__init__(f"{message}; {advice}" if advice else message)
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = causes

    @staticmethod
    def of(code: int, body: bytes, url: str) -> ApiProblem:
        """What an answer says. One that is no `Status` came from a proxy on the way, or from another sort of server."""
        try:
            status = json.decode(body)
        except Malformed:
            status = None
        if not isinstance(status, dict) or not isinstance(message := status.get("message"), str):
            return ApiProblem(code, "", f"{url} answered {code} without saying why; is a Fairlead server behind it?")
        details = status.get("details")
        causes = details.get("causes") if isinstance(details, dict) else None
        return ApiProblem(code, str(status.get("reason", "")), message, tuple(_causes(causes)))


def _causes(listed: Any) -> Iterator[Cause]:
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            yield Cause(str(each.get("field", "")), str(each.get("reason", "")), str(each.get("message", "")))


class Unreachable(ClientError):
    """No answer came."""


class Untrusted(Unreachable):
    """The other side's certificate does not convince. `unknown_authority` is the case that a CA file mends."""

    def __init__(self, text: str, unknown_authority: bool = False) -> None:
        super().__init__(text)
        self.unknown_authority = unknown_authority


def unreachable(url: str, error: Exception, own_authority: bool) -> Unreachable:
    """The sentence for a connection that failed. `own_authority` is whether we were told whom to trust."""
    for each in _chain(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return _untrusted(url, each, own_authority)
        if isinstance(each, ssl.SSLError):
            reason = (each.reason or "TLS failed").replace("_", " ").lower()
            return Untrusted(f"{url}: no TLS connection ({reason}); is this the address of a Fairlead server?")
        if isinstance(each, ConnectionRefusedError):
            return Unreachable(f"{url}: connection refused; is the server running, and is this its address?")
        if isinstance(each, socket.gaierror):
            return Unreachable(f"{url}: no such host; check the address")
        if isinstance(each, TimeoutError):
            return Unreachable(f"{url}: no answer in time; check the address and the network, then try again")
    detail = str(error) or type(error).__name__
    return Unreachable(f"{url}: the connection broke ({detail}); see that the server is running, then try again")


def _untrusted(url: str, error: ssl.SSLCertVerificationError, own_authority: bool) -> Untrusted:
    code = error.verify_code
    if code in _OUT_OF_DATE:
        return Untrusted(
            f"{url}: the server's certificate {_OUT_OF_DATE[code]}; check the clocks, or restart the server to renew it"
        )
    if code in _WRONG_NAME:
        return Untrusted(
            f"{url}: the server's certificate is made out to another name; use a name that it has, "
            "or start the server with --tls-names"
        )
    if code in _UNKNOWN_AUTHORITY and own_authority:
        return Untrusted(
            f"{url}: the server's certificate is not from the authority that you trust; give the right one {GIVEN}",
            unknown_authority=True,
        )
    if code in _UNKNOWN_AUTHORITY:
        return Untrusted(
            f"{url}: the server's certificate is from an authority that this machine does not know; give it {GIVEN}",
            unknown_authority=True,
        )
    return Untrusted(
        f"{url}: the server's certificate was refused ({error.verify_message}); the server needs another one"
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it came from: the HTTP library wraps the one that tells."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
