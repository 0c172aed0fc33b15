"""The values that a login of the command line consists of: codes, refresh tokens, access keys and their digests.

Codes, refresh tokens and access keys are each derived from the one that it replaces, with the pepper. So the server can
repeat an answer that got lost without storing it. The tag of a refresh token proves that the server has issued it: an
old token is then recognized without storing it, and a client that invents one cannot end a login.

What is stored of a code or a refresh token has a prefix of its own, so no bearer token ever matches it. It includes the
parent and the lifetime of the login: a user who edits these in the object only makes the token useless.

All of this is computed, without the store; `cli_logins.py` has the logins.
"""

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fairlead.authn.access_keys import KEY_PREFIX, Pepper

SECRET_BYTES = 32
TAG_BYTES = 16
REFRESH_PREFIX = f"{KEY_PREFIX}rt_"
CODE_MARK, REFRESH_MARK = "cli-code:", "cli-refresh:"
"""Prefixes of the stored digests."""
USER_CODE_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""Consonants, so that codes spell no words, and without Y, which some keyboards swap with Z."""
USER_CODE_LENGTH = 8
MAX_TOKEN_LENGTH = 512

_SECRET = r"[A-Za-z0-9_-]{43}"
_NAME = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_CODE = re.compile(rf"({_NAME})\.({_SECRET})")
_REFRESH = re.compile(rf"{REFRESH_PREFIX}({_NAME})\.({_SECRET})\.([A-Za-z0-9_-]{{22}})")
_LOOPBACK_HOSTS = {"127.0.0.1": "127.0.0.1", "::1": "[::1]"}
_REDIRECT_PATH = re.compile(r"/[A-Za-z0-9/_-]{0,127}")
is_challenge = re.compile(r"[A-Za-z0-9_-]{43}").fullmatch
is_verifier = re.compile(r"[A-Za-z0-9._~-]{43,128}").fullmatch
is_state = re.compile(r"[A-Za-z0-9_-]{16,128}").fullmatch


@dataclass(frozen=True, slots=True)
class NamedSecret:
    """A secret, and the name of the object that it belongs to. `tag` is that of a refresh token."""

    name: str
    secret: str = field(repr=False)
    tag: str = field(default="", repr=False)

    @property
    def text(self) -> str:
        """A code, as the client gets it."""
        return f"{self.name}.{self.secret}"


@dataclass(frozen=True, slots=True)
class Binding:
    """What a login depends on: its parent, by name and identity (`cli_logins.py`), and its lifetime in seconds."""

    parent: str = ""
    parent_identity: str = ""
    ttl: int = 0

    @property
    def parts(self) -> tuple[str, str, str]:
        return self.parent, self.parent_identity, str(self.ttl)


def new_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def parse_code(text: str) -> NamedSecret | None:
    """The parts of an authorization code or device code; None if it has another form."""
    found = _CODE.fullmatch(text)
    return None if found is None else NamedSecret(found[1], found[2])


def parse_refresh_token(text: str) -> NamedSecret | None:
    found = _REFRESH.fullmatch(text)
    return None if found is None else NamedSecret(found[1], found[2], found[3])


def challenge_of(verifier: str) -> str:
    """The code challenge of PKCE, with the method S256."""
    return _encode(hashlib.sha256(verifier.encode("ascii")).digest())


def new_user_code() -> str:
    return "".join(secrets.choice(USER_CODE_LETTERS) for _ in range(USER_CODE_LENGTH))


def format_user_code(code: str) -> str:
    return f"{code[:4]}-{code[4:]}"


def parse_user_code(text: str) -> str | None:
    """A code as the user typed it; None if it cannot be one."""
    code = text.translate({ord(each): None for each in " -\t"}).upper() if len(text) <= 32 else ""
    fits = len(code) == USER_CODE_LENGTH and all(each in USER_CODE_LETTERS for each in code)
    return code if fits else None


def parse_loopback_uri(uri: str) -> str | None:
    """Host and port of a redirect URI on the loopback interface; None if it is anything else.

    The URI is parsed and put together again: what differs has parts that a browser may read in another way.
    """
    try:
        parts = urlsplit(uri)
        host, port = _LOOPBACK_HOSTS.get(parts.hostname or "", ""), parts.port
    except ValueError:
        return None
    if not host or not port or not _REDIRECT_PATH.fullmatch(parts.path):
        return None
    return f"{host}:{port}" if uri == f"http://{host}:{port}{parts.path}" else None


class TokenValues:
    """Derives values and their digests with the pepper."""

    def __init__(self, pepper: Pepper) -> None:
        self._pepper = pepper

    def next_secret(self, secret: str) -> str:
        """The secret of the refresh token that replaces a code or a refresh token."""
        return _encode(self._mac("next", secret))

    def access_key(self, secret: str) -> str:
        """The access key that is issued for a code or a refresh token."""
        return KEY_PREFIX + _encode(self._mac("key", secret))

    def key_digest(self, secret: str) -> str:
        """What is stored of that access key."""
        return self._pepper.digest(self.access_key(secret))

    def refresh_token(self, name: str, uid: str, secret: str) -> str:
        return f"{REFRESH_PREFIX}{name}.{secret}.{self._tag(uid, secret)}"

    def is_issued(self, token: NamedSecret, uid: str) -> bool:
        """Whether this server has issued the token for the login with that uid, now or earlier."""
        return hmac.compare_digest(token.tag, self._tag(uid, token.secret))

    def refresh_digest(self, secret: str, binding: Binding) -> str:
        return REFRESH_MARK + self._mac("refresh", secret, *binding.parts).hex()

    def code_digest(self, secret: str, challenge: str, redirect_uri: str, binding: Binding) -> str:
        return CODE_MARK + self._mac("code", secret, challenge, redirect_uri, *binding.parts).hex()

    def code_mark(self, secret: str) -> str:
        """What is stored of an authorization code alone, without what has to be presented with it."""
        return self._mac("code alone", secret).hex()

    def device_secret_digest(self, secret: str) -> str:
        """What is stored of a device code before a user has allowed the login."""
        return self._mac("device", secret).hex()

    def device_digest(self, secret_digest: str, binding: Binding) -> str:
        """What is stored of a device code in the login that a user has allowed."""
        return CODE_MARK + self._mac("device login", secret_digest, *binding.parts).hex()

    def device_name(self, user_code: str) -> str:
        """The name of the record of a user code. The code itself is not stored."""
        return self._mac("user code", user_code).hex()[:40]

    def _tag(self, uid: str, secret: str) -> str:
        return _encode(self._mac("tag", uid, secret)[:TAG_BYTES])

    def _mac(self, purpose: str, *parts: str) -> bytes:
        """Unambiguous: no part contains NUL. Neither does any bearer token, so no digest of a key is equal."""
        message = "\0".join(("fairlead cli", purpose, *parts)).encode()
        return hmac.digest(self._pepper.secret, message, "sha256")


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
