"""Access keys: bearer tokens that stand for a user.

A key is 256 random bits behind a prefix that secret scanners can find. The store holds a keyed digest, never the key:
who steals the database cannot sign in with it. Keys and users are objects like all others, so this authenticator
follows them in the view, and a change takes effect with the next request.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from fairlead.core.call import Call
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object, dig
from fairlead.core.user import User
from fairlead.registry.following import Following

KEY_PREFIX = "fairlead_"
KEY_BYTES = 32
DIGEST_SCHEME = "hmac-sha256"
USERS, ACCESS_KEYS = "users", "ownedaccesskeys"
_INVALID = "invalid bearer token"


def new_key() -> str:
    """A fresh key."""
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


@dataclass(frozen=True)
class Pepper:
    """The secret that digests are made with; it lives outside the database."""

    secret: bytes

    def digest(self, key: str) -> str:
        """What the store keeps of a key. The part in the middle names the pepper, so that it can be rotated."""
        return f"{self._scheme}:{hmac.digest(self.secret, key.encode(), 'sha256').hex()}"

    @cached_property
    def _scheme(self) -> str:
        return f"{DIGEST_SCHEME}:{hashlib.sha256(self.secret).hexdigest()[:8]}"


class AccessKeys:
    """Authenticates `Authorization: Bearer <key>`. A digest is looked up whole, so timing tells nothing about it."""

    def __init__(self, keys: Following, users: Following, pepper: Pepper) -> None:
        self._keys = keys
        self._users = users
        self._pepper = pepper
        self._identities: dict[str, User] = {}
        self._generation = (-1, -1)

    def __call__(self, call: Call) -> User | None:
        headers = call.headers.get_all("authorization")
        if not headers:
            return None
        scheme, _, token = headers[0].partition(" ")
        token = token.strip()
        if len(headers) > 1 or scheme.lower() != "bearer" or not token:
            raise Unauthorized(_INVALID)
        user = self._current().get(self._pepper.digest(token))
        if user is None:
            raise Unauthorized(_INVALID)
        return user

    def _current(self) -> Mapping[str, User]:
        """Every valid key's digest and the user behind it, made anew when a key or a user has changed."""
        generation = (self._keys.refresh(), self._users.refresh())
        if generation != self._generation:
            users = {name: obj for (_, name), obj in self._users.objects.items()}
            pairs = (_identity(obj, users) for obj in self._keys.objects.values())
            self._identities = dict(pair for pair in pairs if pair is not None)
            self._generation = generation
        return self._identities


def _identity(key: Object, users: Mapping[str, Object]) -> tuple[str, User] | None:
    name, digest = dig(key, "spec.user"), dig(key, "spec.key")
    user = users.get(name or "")
    if user is None or not digest or dig(key, "spec.disabled") or dig(user, "spec.disabled"):
        return None
    own = tuple(dig(user, "spec.groups") or ())
    everybody = ("system:authenticated", "service:authenticated", f"service:user:{name}", "service:user:*")
    return digest, User(name, (*own, *everybody), dig(user, "metadata.uid"), dig(key, "metadata.name"))
