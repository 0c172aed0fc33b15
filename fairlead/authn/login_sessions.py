"""Login sessions: access keys of the type Login, with an expiry.

`server/auth/login.py` creates and revokes them; `authn/password_store.py` revokes all of them when the password
changes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import orjson

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, name_of
from fairlead.domain.key_lifetime import expires_at
from fairlead.kinds.access.access_key_usage import LOGIN_TYPE, MAX_LOGINS, key_usage_index
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.registry.write_options import DeleteOptions, server_write_options

MAX_AGENT_LENGTH = 64

__all__ = ["LOGIN_TYPE", "MAX_LOGINS", "IssuedKey", "LoginSessions"]


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new key. The value is returned once, in the login response, and never logged."""

    name: str
    value: str = field(repr=False)


class LoginSessions:
    """Creates and revokes logins as the server itself. Callers authorize the request first."""

    def __init__(self, registry: Registry, api_group: str, ttl: Callable[[], int]) -> None:
        """`ttl` returns the lifetime of a new login in seconds, 0 for no expiry."""
        self._keys = registry.resource(api_group, ACCESS_KEYS)
        self._clock = registry.clock
        self._view = registry.view
        self._owned_keys = key_usage_index(registry.view, api_group)
        self.ttl = ttl

    async def create(self, user: str, user_agent: str) -> IssuedKey:
        """Creates a login of a user. `user_agent` is the client's User-Agent; it becomes part of the display name."""
        spec: Object = {"displayName": _display_name(user_agent), "user": user, "type": LOGIN_TYPE}
        if ttl := self.ttl():
            spec["ttl"] = ttl
        kind = self._keys.kind
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"generateName": f"login-{user}-"},
            "spec": spec,
        }
        created: Object = orjson.loads(await self._keys.create(body, "", server_write_options()))
        return IssuedKey(name_of(created), created["spec"]["key"])

    def expires(self, key: str) -> bool:
        """Whether a key has an expiry, or no longer exists."""
        entry = self._keys.get_cached("", key)
        return entry is None or expires_at(decode(entry), self._clock.now()) is not None

    async def revoke(self, key: str) -> bool:
        """Deletes a key if it is a login; returns whether it was one."""
        entry = self._keys.get_cached("", key)
        if entry is None or entry.fields.get("spec.type") != LOGIN_TYPE:
            return False
        await self._delete(key)
        return True

    async def revoke_all(self, user: str, *, keep: str = "", newest: int = 0) -> int:
        """Deletes a user's logins except the one named `keep` and the `newest` of the others; returns how many."""
        with translate_storage_errors():
            await self._view.wait_current()
        ages = sorted((age, name) for name, age in self._logins_of(user) if name != keep)
        too_many = ages[: len(ages) - newest] if len(ages) > newest else []
        for _, name in too_many:
            await self._delete(name)
        return len(too_many)

    def _logins_of(self, user: str) -> Iterator[tuple[str, str]]:
        """The names and creation times of a user's logins."""
        for key, held in self._owned_keys.get(("user", user)).items():
            if held.category == LOGIN_TYPE:
                yield key[3], held.created_at

    async def _delete(self, key: str) -> None:
        try:
            await self._keys.delete("", key, DeleteOptions(), server_write_options())
        except NotFound:  # already deleted
            return


def _display_name(user_agent: str) -> str:
    display_name = "".join(each for each in user_agent[:MAX_AGENT_LENGTH] if each.isprintable()).strip()
    return f"Login with {display_name}" if display_name else LOGIN_TYPE
