"""Sign-ons that have begun and not ended, in an encrypted cookie of the browser that began them.

The store has nothing of them, so unauthenticated clients cannot fill it. The cookie ties the response of the provider
to the browser (login CSRF). It has `SameSite=Lax`: the response comes from another site. A browser can have a few of
them at once, one for each tab.
"""

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fairlead.authn.sign_on_policy import SignOnReason
from fairlead.core.objects import Object
from fairlead.signin.sso.encryption import SignOnEncryption, Undecryptable
from fairlead.signin.sso.reasons import SignOnRefused

COOKIE = "__Host-service_sign_on"
MAX_COOKIE_BYTES = 16 * 1024
MAX_VALUE_BYTES = 4_000
"""Browsers silently drop cookies of more than 4,096 bytes with their name. One sign-on fits, whatever its path."""
LIFETIME_SECONDS = 600
MAX_PENDING = 3
"""Sign-ons at the same time in one browser. A further one replaces the oldest."""
_RANDOM_BYTES = 32
_PURPOSE = "pending-sign-ons"


@dataclass(frozen=True, slots=True)
class PendingSignOn:
    connector: str
    return_path: str
    expires: int
    """Seconds since the epoch."""
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)

    @staticmethod
    def begin(connector: str, return_path: str, now: datetime) -> "PendingSignOn":
        values = (secrets.token_urlsafe(_RANDOM_BYTES) for _ in range(3))
        return PendingSignOn(connector, return_path, int(now.timestamp()) + LIFETIME_SECONDS, *values)


class PendingSignOns:
    """Reads and writes the cookie."""

    def __init__(self, encryption: SignOnEncryption) -> None:
        self._encryption = encryption

    async def read(self, cookie_headers: Sequence[str]) -> list[PendingSignOn]:
        """The sign-ons in the cookie. An unreadable one has none: it may be of another installation."""
        value = _cookie_value(cookie_headers)
        if not value:
            return []
        try:
            content = await self._encryption.decrypt(value, _PURPOSE)
            return [_parse(each) for each in content["pending"]]
        except (Undecryptable, KeyError, TypeError):
            return []

    async def write(self, pending: Sequence[PendingSignOn]) -> str:
        """The Set-Cookie value; clears the cookie if there is nothing to keep."""
        for count in range(min(len(pending), MAX_PENDING), 0, -1):
            retained = [_encode(each) for each in pending[-count:]]
            value = await self._encryption.encrypt({"pending": retained}, _PURPOSE)
            if len(value) <= MAX_VALUE_BYTES or count == 1:
                return f"{COOKIE}={value}; Path=/; Max-Age={LIFETIME_SECONDS}; HttpOnly; Secure; SameSite=Lax"
        return f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax"


def take(
    pending: Sequence[PendingSignOn], connector: str, state: str, now: datetime
) -> tuple[PendingSignOn, list[PendingSignOn]]:
    """The sign-on with this state, and the others. Raises SignOnRefused if there is none for this connector."""
    if not pending:
        raise SignOnRefused(SignOnReason.STATE_MISSING)
    found = [each for each in pending if hmac.compare_digest(each.state.encode(), state.encode("utf-8", "replace"))]
    if not found or found[0].connector != connector:
        raise SignOnRefused(SignOnReason.STATE_MISMATCH)
    if found[0].expires <= now.timestamp():
        raise SignOnRefused(SignOnReason.STATE_EXPIRED)
    return found[0], [each for each in pending if each is not found[0]]


def is_fresh(pending: PendingSignOn, now: datetime) -> bool:
    return pending.expires > now.timestamp()


def _cookie_value(headers: Sequence[str]) -> str:
    """The value of the cookie. Two cookies of this name are none: one of them was not set by this server."""
    if sum(map(len, headers)) > MAX_COOKIE_BYTES:
        return ""
    pairs = [pair.strip(" \t").partition("=") for header in headers for pair in header.split(";")]
    values = [value for name, _, value in pairs if name == COOKIE]
    return values[0] if len(values) == 1 else ""


def _encode(pending: PendingSignOn) -> Object:
    fields = ("connector", "return_path", "expires", "state", "nonce", "verifier")
    return {name: getattr(pending, name) for name in fields}


def _parse(value: Object) -> PendingSignOn:
    return PendingSignOn(**value)
