"""The sessions of single sign-on: logins whose access key has `spec.identity`.

The refresh token, and the ID token for a logout at the provider, are in `connectorData` of the key, encrypted for the
key's name.
"""

import secrets
from dataclasses import dataclass, field
from datetime import datetime

from fairlead.authn.sign_on_settings import Connector
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, get_path, name_of
from fairlead.kinds.access.access_key import SESSION_CLAIM
from fairlead.registry import limits
from fairlead.signin.login_sessions import SsoLogin
from fairlead.signin.sso.encryption import SignOnEncryption, Undecryptable
from fairlead.signin.sso.identity import Identity
from fairlead.signin.sso.provider_access import TokenSet

MAX_SESSION_ID_LENGTH = 255


@dataclass(frozen=True, slots=True)
class SessionTokens:
    """The tokens of a session. Without a refresh token, the session ends with the ID token."""

    refresh_token: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)


class SessionStore:
    """Builds the keys of sessions, and reads their tokens."""

    def __init__(self, encryption: SignOnEncryption) -> None:
        self._encryption = encryption

    async def build_login(
        self, user: Object, connector: Connector, identity: Identity, tokens: TokenSet, now: datetime, ttl: int
    ) -> SsoLogin:
        """A new login. `ttl` is the lifetime of logins in seconds, 0 for no expiry."""
        name = f"login-{name_of(user)}-{secrets.token_hex(6)}"
        data = await self.encrypt_tokens(name, SessionTokens(tokens.refresh_token, tokens.id_token))
        session = build_identity(connector, identity, tokens)
        is_refreshable = bool(tokens.refresh_token and data)
        if data:
            session["connectorData"] = data
        if is_refreshable:
            session["identityRefresh"] = timestamp(now)
        else:
            ttl = _ttl_of_token(tokens, now, ttl)
        return SsoLogin(name, name_of(user), session, ttl)

    async def encrypt_tokens(self, key: str, tokens: SessionTokens) -> str:
        """The tokens for `connectorData`. The ID token is left out if both are too large; empty if one is."""
        for sent in (tokens, SessionTokens(tokens.refresh_token)):
            values = {"refreshToken": sent.refresh_token, "idToken": sent.id_token}
            text = await self._encryption.encrypt(values, _purpose(key))
            if len(text) <= limits.CREDENTIAL:
                return text
        return ""

    async def read_tokens(self, login: Object) -> SessionTokens:
        """The tokens of a login. Raises Undecryptable."""
        data = get_path(login, "spec.identity.connectorData") or ""
        if not data:
            return SessionTokens()
        value = await self._encryption.decrypt(data, _purpose(name_of(login)))
        try:
            return SessionTokens(value["refreshToken"], value["idToken"])
        except (KeyError, TypeError):
            raise Undecryptable from None


def _purpose(key: str) -> str:
    return f"login:{key}"


def build_identity(connector: Connector, identity: Identity, tokens: TokenSet) -> Object:
    """`spec.identity` of a login, without the tokens. The groups are on the user."""
    fields: Object = {
        "connector": connector.id,
        "userId": identity.subject,
        "username": identity.username,
        "preferredUsername": identity.username,
        "email": identity.email,
        "emailVerified": identity.is_email_verified,
    }
    session = tokens.claims.get("sid") if tokens.claims is not None else None
    if isinstance(session, str) and 0 < len(session) <= MAX_SESSION_ID_LENGTH:
        fields["extraClaims"] = {SESSION_CLAIM: session}
    return {name: value for name, value in fields.items() if value != ""}


def _ttl_of_token(tokens: TokenSet, now: datetime, ttl: int) -> int:
    assert tokens.claims is not None  # a sign-on has an ID token
    left = max(1, int(tokens.claims.expires_at - now.timestamp()))
    return min(left, ttl) if ttl else left
