"""Errors of the client. Their text is one sentence for the user, with advice; the CLI prints just that.

ClientError
├── ApiStatusError          an error response: code, reason, message and causes of the Status
├── DeadlineExceeded        the time limit of a watch has passed
└── Unreachable             no response: connection refused, unknown host, timeout, broken connection
    └── CertificateError    TLS failed, usually because the certificate is not trusted
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
UNAUTHORIZED_CODE = 401
UNKNOWN_KEY = "invalid bearer token"
"""What a server says about a key that it does not know."""
UNKNOWN_KEY_CAUSES = "it was revoked or replaced, or is of a former installation of the server"
FORBIDDEN_ADVICE = "`fairlead whoami` shows your user and groups"
CA_FILE_ADVICE = (
    "with `fairlead login --ca-file` or FAIRLEAD_CA_FILE (the server's own CA is tls/ca.crt in its data directory)"
)

# OpenSSL verify codes for an unknown CA.
_UNKNOWN_AUTHORITY = {2, 18, 19, 20, 21}
_OUT_OF_DATE = {9: "is not valid yet", 10: "has expired"}
_WRONG_NAME = {62, 64}


class ClientError(Exception):
    """An error with a text for the user."""


class DeadlineExceeded(ClientError):
    """The time limit has passed. The caller knows what it waited for, and adds that to the message."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause of a Status: a problem with one field of the request."""

    field: str
    reason: str
    message: str


class ApiStatusError(ClientError):
    """A Status with a code of 400 or more. `str()` is its message, with advice for some reasons."""

    def __init__(self, code: int, reason: str, message: str, causes: tuple[Cause, ...] = ()) -> None:
        advice = ADVICE.get(reason, "")
        # Other Forbidden messages say what to change. "User X cannot" may surprise a user who is not aware of being X.
        if reason == "Forbidden" and " cannot " in message:
            advice = FORBIDDEN_ADVICE
        super().__init__(f"{message}; {advice}" if advice else message)
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = causes

    @staticmethod
    def parse(code: int, body: bytes, url: str) -> ApiStatusError:
        """Parses an error response. A body that is not a Status comes from a proxy, or from another kind of server."""
        try:
            status = json.decode(body)
        except Malformed:
            status = None
        if not isinstance(status, dict) or not isinstance(message := status.get("message"), str):
            if code == UNAUTHORIZED_CODE:  # discovery answers as plain text, which kubectl shows
                return ApiStatusError(code, "Unauthorized", UNKNOWN_KEY)
            return ApiStatusError(
                code, "", f"{url} responded with status {code} and no message; is it a Fairlead server?"
            )
        details = status.get("details")
        causes = details.get("causes") if isinstance(details, dict) else None
        return ApiStatusError(code, str(status.get("reason", "")), message, tuple(_parse_causes(causes)))


def _parse_causes(listed: Any) -> Iterator[Cause]:
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            yield Cause(str(each.get("field", "")), str(each.get("reason", "")), str(each.get("message", "")))


class Unreachable(ClientError):
    """No response was received."""


class CertificateError(Unreachable):
    """TLS failed. `unknown_authority`: the certificate's CA is unknown, which a CA file fixes."""

    def __init__(self, text: str, unknown_authority: bool = False) -> None:
        super().__init__(text)
        self.unknown_authority = unknown_authority


def connection_error(url: str, error: Exception, has_custom_ca: bool) -> Unreachable:
    """The error for a failed connection. `has_custom_ca`: whether a CA was configured."""
    for each in _cause_chain(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return _certificate_error(url, each, has_custom_ca)
        if isinstance(each, ssl.SSLError):
            reason = (each.reason or "TLS failed").replace("_", " ").lower()
            return CertificateError(f"{url}: TLS handshake failed ({reason}); is this the URL of a Fairlead server?")
        if isinstance(each, ConnectionRefusedError):
            return Unreachable(f"{url}: connection refused; check the URL, and that the server is running")
        if isinstance(each, socket.gaierror):
            return Unreachable(f"{url}: no such host; check the URL")
        if isinstance(each, TimeoutError):
            return Unreachable(f"{url}: timed out; check the URL and the network, then try again")
    detail = str(error) or type(error).__name__
    return Unreachable(f"{url}: connection failed ({detail}); check that the server is running, then try again")


def _certificate_error(url: str, error: ssl.SSLCertVerificationError, has_custom_ca: bool) -> CertificateError:
    code = error.verify_code
    if code in _OUT_OF_DATE:
        return CertificateError(
            f"{url}: the server's certificate {_OUT_OF_DATE[code]}; check the clocks, or restart the server to renew it"
        )
    if code in _WRONG_NAME:
        return CertificateError(
            f"{url}: the server's certificate is for another host name; use a host name of the certificate, "
            "or start the server with --tls-names"
        )
    if code in _UNKNOWN_AUTHORITY and has_custom_ca:
        return CertificateError(
            f"{url}: the server's certificate is not signed by the configured CA: the server was installed anew, has "
            f"another certificate, or is another server; if you trust it, log in again {CA_FILE_ADVICE}",
            unknown_authority=True,
        )
    if code in _UNKNOWN_AUTHORITY:
        return CertificateError(
            f"{url}: the server's certificate is signed by an unknown CA; specify the CA {CA_FILE_ADVICE}",
            unknown_authority=True,
        )
    return CertificateError(
        f"{url}: the server's certificate is invalid ({error.verify_message}); the server needs another one"
    )


def _cause_chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes: httpx wraps the original exception."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
