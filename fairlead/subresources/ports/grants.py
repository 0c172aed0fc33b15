"""What the server has allowed a browser: a ticket, and then the cookie of one port. Both are signed, and not stored.

A browser without the cookie is sent to the console, with the digest of a random value that stays in a cookie at the
host name of the port. The console asks for a ticket with this digest, as the user who is signed in there. So a ticket
works only in the browser that has asked for it, and once: the random value is deleted with its use.

Each names the access key of the login. A grant is worth nothing once the login has ended, or the user has lost access.
"""

import base64
import hashlib
import hmac
import re

import msgspec

TICKET_SECONDS = 60
SESSION_SECONDS = 12 * 3600
MAX_SIGNED_CHARS = 3072
NONCE = re.compile(r"[A-Za-z0-9_-]{43}")


class Grant(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`user_uid` and `uid` tell later users and workspaces of the same name apart. `challenge` is the digest of the
    random value in the browser, only in a ticket."""

    namespace: str
    workspace: str
    uid: str
    port: int
    key: str
    user: str
    user_uid: str
    expires: int
    challenge: str = ""


class GrantSigner:
    """Signs grants for one purpose, with a key that is derived from the secret of the server."""

    def __init__(self, secret: bytes, purpose: str) -> None:
        self._key = hmac.digest(secret, f"workspace port {purpose}".encode(), "sha256")
        self._decode = msgspec.json.Decoder(Grant).decode

    def sign(self, grant: Grant) -> str:
        content = _encode(msgspec.json.encode(grant))
        return f"{content}.{self._signature_of(content)}"

    def open(self, text: str, now: float) -> Grant | None:
        """The grant; None if it was not signed here, or is over."""
        content, _, signature = text.partition(".")
        if len(text) > MAX_SIGNED_CHARS or not text.isascii():
            return None
        if not hmac.compare_digest(self._signature_of(content), signature):
            return None
        grant = self._decode(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
        return grant if now < grant.expires else None

    def _signature_of(self, content: str) -> str:
        return _encode(hmac.digest(self._key, content.encode(), "sha256"))


class GrantSigners:
    """Those of tickets, and of port cookies."""

    def __init__(self, secret: bytes) -> None:
        self.tickets = GrantSigner(secret, "ticket")
        self.sessions = GrantSigner(secret, "session")


def digest_nonce(nonce: str) -> str:
    return _encode(hashlib.sha256(nonce.encode()).digest())


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
