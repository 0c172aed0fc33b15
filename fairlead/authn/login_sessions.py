"""The access keys that signing in makes, and that go when one signs out or changes the password.

They are access keys like others, of the type Login and with an end. `server/auth/login.py` makes and ends them,
`authn/password_store.py` ends them all.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import orjson

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, name_of
from fairlead.domain.access_key_usage import LOGIN, MOST_LOGINS, key_holdings
from fairlead.domain.key_lifetime import end_of
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.storage_errors import storage_errors
from fairlead.registry.write_options import Deleting, by_the_server

AGENT_LENGTH = 64

__all__ = ["LOGIN", "MOST_LOGINS", "LoginKeys", "NewKey"]


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key just made. The value is shown once, to whoever signed in, and never in a log."""

    name: str
    value: str = field(repr=False)


class LoginKeys:
    """Makes and ends logins, as the server itself. Who may is asked before."""

    def __init__(self, registry: Registry, api_group: str, ttl: Callable[[], int]) -> None:
        """`ttl` tells how many seconds a new login lasts, 0 for no end."""
        self._keys = registry.resource(api_group, ACCESS_KEYS)
        self._clock = registry.clock
        self._view = registry.view
        self._held = key_holdings(registry.view, api_group)
        self.ttl = ttl

    async def create(self, user: str, agent: str) -> NewKey:
        """A new login of a user. `agent` is what its client calls itself, so that people recognise it in a list."""
        spec: Object = {"displayName": _title(agent), "user": user, "type": LOGIN}
        if ttl := self.ttl():
            spec["ttl"] = ttl
        kind = self._keys.kind
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"generateName": f"login-{user}-"},
            "spec": spec,
        }
        created: Object = orjson.loads(await self._keys.create(body, "", by_the_server()))
        return NewKey(name_of(created), created["spec"]["key"])

    def ends(self, key: str) -> bool:
        """Whether a key ends by itself some day, or has ended."""
        entry = self._keys.peek("", key)
        return entry is None or end_of(decode(entry), self._clock.now()) is not None

    async def end(self, key: str) -> bool:
        """Deletes a key if it is a login; says whether it was."""
        entry = self._keys.peek("", key)
        if entry is None or entry.fields.get("spec.type") != LOGIN:
            return False
        await self._delete(key)
        return True

    async def end_all(self, user: str, *, but: str = "", newest: int = 0) -> int:
        """Deletes a user's logins except the one named `but` and the `newest` of the others; says how many."""
        with storage_errors():
            await self._view.fresh()
        ages = sorted((age, name) for name, age in self._logins_of(user) if name != but)
        too_many = ages[: len(ages) - newest] if len(ages) > newest else []
        for _, name in too_many:
            await self._delete(name)
        return len(too_many)

    def _logins_of(self, user: str) -> Iterator[tuple[str, str]]:
        """The names of a user's logins, and since when they are there."""
        for key, held in self._held.of(("user", user)).items():
            if held.sort == LOGIN:
                yield key[3], held.created

    async def _delete(self, key: str) -> None:
        try:
            await self._keys.delete("", key, Deleting(), by_the_server())
        except NotFound:  # somebody was faster
            return


def _title(agent: str) -> str:
    shown = "".join(each for each in agent[:AGENT_LENGTH] if each.isprintable()).strip()
    return f"Login with {shown}" if shown else LOGIN
