"""Login sessions: access keys of the type Login, with an expiry.

`signin/login.py` creates and revokes them; `signin/passwords.py` revokes all of them when the password changes.

A login by single sign-on has `spec.identity`. Logins of the command line name the login or access key with which they
were allowed in `spec.parent`, and logins of a browser with an access key name that key: they end with it. Signing out
of the browser is the exception: the login is then disabled, and the refresh of a single sign-on goes on, as long as
there are such keys. Everything else that ends a login calls `end_login`, which deletes it with these keys.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import orjson

from fairlead.authn.access_keys import ACCESS_KEYS, MAX_PARENTS, SERVER_ISSUED_TYPES
from fairlead.core.clock import parse_rfc3339
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, deep_copy, get_path, name_of
from fairlead.core.user import User
from fairlead.domain.key_lifetime import expires_at
from fairlead.kinds.access.access_key import (
    LOGIN_TYPE,
    SESSION_CLAIM,
    is_cli_login,
    is_sso_login,
    key_usage_index,
    login_session_index,
)
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.registry.write_options import server_write_options
from fairlead.storage.view.view import Entry

MAX_AGENT_LENGTH = 64


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new key. The value is returned once, in the login response, and never logged."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyLogin:
    """A login of a browser with an access key. `ttl` is its lifetime in seconds, 0 for no expiry."""

    key: IssuedKey
    ttl: int


@dataclass(frozen=True, slots=True)
class SsoLogin:
    """A new login by single sign-on. The name is chosen before, because the refresh token is encrypted for it.

    `identity` is `spec.identity` of the key, `ttl` its lifetime in seconds, 0 for no expiry.
    """

    name: str
    user: str
    identity: Object = field(repr=False)
    ttl: int
    user_agent: str = ""


class LoginSessions:
    """Creates and revokes logins as the server itself. Callers authorize the request first."""

    def __init__(self, registry: Registry, api_group: str, ttl: Callable[[], int]) -> None:
        """`ttl` returns the lifetime of a new login in seconds, 0 for no expiry."""
        self._keys = registry.resource(api_group, ACCESS_KEYS)
        self._clock = registry.clock
        self._view = registry.view
        self._owned_keys = key_usage_index(registry.view, api_group)
        self._sessions = login_session_index(registry.view, api_group)
        self.ttl = ttl

    async def create(self, user: str, user_agent: str) -> IssuedKey:
        """Creates a login of a user. `user_agent` is the client's User-Agent; it becomes part of the display name."""
        spec: Object = {"displayName": _display_name(user_agent), "user": user, "type": LOGIN_TYPE}
        return await self._create({"generateName": f"login-{user}-"}, spec, self.ttl())

    async def create_sso(self, login: SsoLogin) -> IssuedKey:
        """Creates a login by single sign-on. Raises AlreadyExists if there is a key of that name."""
        spec: Object = {
            "displayName": _display_name(login.user_agent),
            "user": login.user,
            "type": LOGIN_TYPE,
            "identity": login.identity,
        }
        return await self._create({"name": login.name}, spec, login.ttl)

    async def create_from_key(self, user: User, user_agent: str) -> KeyLogin:
        """Creates a login with the rights of the access key that the user has presented. It ends with that key."""
        key = self._find(user.key)
        ttl = self.allowed_ttl(user.key, self.ttl())
        rights = {field: key["spec"][field] for field in ("groups", "scope") if field in (key.get("spec") or {})}
        spec: Object = {
            "displayName": _display_name(user_agent),
            "user": user.name,
            "type": LOGIN_TYPE,
            "parent": user.key,
            **rights,
        }
        return KeyLogin(await self._create({"generateName": f"login-{user.name}-"}, spec, ttl), ttl)

    async def _create(self, meta: Object, spec: Object, ttl: int) -> IssuedKey:
        body = self._keys.kind.build(meta, spec={**spec, **({"ttl": ttl} if ttl else {})})
        created: Object = orjson.loads(await self._keys.create(body, "", server_write_options()))
        return IssuedKey(name_of(created), created["spec"]["key"])

    def _find(self, key: str) -> Object:
        """The key with that name; an empty object if there is none."""
        entry = self._keys.get_cached("", key) if key else None
        return decode(entry) if entry is not None else {}

    def is_login(self, key: str) -> bool:
        """Whether a key was issued by a login, of a browser or of the command line."""
        return get_path(self._find(key), "spec.type") in SERVER_ISSUED_TYPES

    def allowed_ttl(self, key: str, ttl: int) -> int:
        """The lifetime of a login that a key allows: `ttl` (0 for no expiry), and not longer than that of the key.

        While the former value of a rotated key is still accepted, not longer than that: it may be the one in use.
        """
        now = self._clock.now()
        found = self._find(key)
        former = get_path(found, "status.previous") or ()
        ends = [expires_at(found, now), *(parse_rfc3339(each["until"]) for each in former)]
        left = [max(1, int((end - now).total_seconds())) for end in ends if end is not None]
        return min([*([ttl] if ttl else []), *left], default=0)

    def expires(self, key: str) -> bool:
        """Whether a key has an expiry, or no longer exists. For the login of a browser with an access key, that key
        counts, which its user has presented."""
        found = self._find(key)
        parent = get_path(found, "spec.parent")
        if parent and get_path(found, "spec.type") == LOGIN_TYPE and not is_cli_login(found):
            found = self._find(parent)
        return not found or expires_at(found, self._clock.now()) is not None

    async def revoke(self, key: str) -> bool:
        """Ends a login, as when its user signs out of a browser; returns whether the key was one.

        It is only disabled while other keys depend on it.
        """
        entry = self._keys.get_cached("", key)
        if entry is None or entry.fields.get("spec.type") != LOGIN_TYPE:
            return False
        login = decode(entry)
        if self._dependent_keys(login):
            await self._disable(key)
        else:
            await self._delete(key)
        return True

    async def end_login(self, key: str) -> int:
        """Deletes a login, and then all keys that depend on it; returns how many keys.

        Authentication rejects a key whose parent is gone, so all of them stop working with the first deletion.
        """
        entry = self._keys.get_cached("", key)
        if entry is None:
            return 0
        dependents = self._dependent_keys(decode(entry))
        for name in (key, *dependents):
            await self._delete(name)
        return 1 + len(dependents)

    async def end_sso_logins(self, user: str, connector: str, session: str = "") -> int:
        """Ends the logins of a user by one connector, or only that of one session at the provider (`sid`)."""
        with translate_storage_errors():
            await self._view.wait_current()
        ended = 0
        for name, _ in list(self._logins_of(user)):
            entry = self._keys.get_cached("", name)
            login = decode(entry) if entry is not None else {}
            if get_path(login, "spec.identity.connector") != connector:
                continue
            if not session or session_of(login) == session:
                ended += await self.end_login(name)
        return ended

    def find_sso_login(self, key: str) -> Object | None:
        """The login by single sign-on with this name; None if the key is not one."""
        login = self._find(key)
        return login if is_sso_login(login) else None

    async def find_by_session(self, connector: str, session: str) -> list[Object]:
        """The logins of one session at a provider, after all writes that were acknowledged by any replica."""
        with translate_storage_errors():
            await self._view.wait_current()
        names = [key[3] for key in self._sessions.get((connector, session))]
        return [login for name in names if (login := self.find_sso_login(name)) is not None]

    async def revoke_all(self, user: str, *, keep: str = "", newest: int = 0) -> int:
        """Deletes a user's logins except the one named `keep` and the `newest` of the others; returns how many.

        The login with which `keep` was allowed stays, as `keep` ends with it; but unless others stay, too, its user is
        signed out of it. With `newest`, the logins with an access key that has a scope count for that key only:
        otherwise, such a key could be used to sign its user out everywhere.
        """
        with translate_storage_errors():
            await self._view.wait_current()
        parents = self._parents_of(keep)
        ages = sorted((age, name) for name, age in self._logins_of(user) if name not in (keep, *parents))
        if newest:
            own_key = self._scoped_key_of(keep)
            ages = [(age, name) for age, name in ages if self._scoped_key_of(name) == own_key]
        too_many = ages[: len(ages) - newest] if len(ages) > newest else []
        for _, name in too_many:
            await self.end_login(name)
        ended = [] if newest else parents
        for name in ended:
            await self._disable(name)
        return len(too_many) + len(ended)

    def _scoped_key_of(self, login: str) -> str:
        """The access key with a scope that a login was made with; empty for other logins."""
        found = self._find(login)
        return get_path(found, "spec.parent") or "" if get_path(found, "spec.scope") is not None else ""

    def _parents_of(self, key: str) -> list[str]:
        """The logins that a login depends on."""
        found: list[str] = []
        for _ in range(MAX_PARENTS):
            entry = self._keys.get_cached("", key) if key else None
            key = get_path(decode(entry), "spec.parent") or "" if entry is not None else ""
            parent = self._keys.get_cached("", key) if key else None
            if parent is None or parent.fields.get("spec.type") != LOGIN_TYPE or key in found:
                break
            found.append(key)
        return found

    def _logins_of(self, user: str) -> Iterator[tuple[str, str]]:
        """The names and creation times of a user's logins."""
        for key, held in self._owned_keys.get(("user", user)).items():
            if held.category == LOGIN_TYPE:
                yield key[3], held.created_at

    def _dependent_keys(self, login: Object) -> list[str]:
        """The keys that were issued in a login, and in those keys."""
        found: list[str] = []
        remaining = [name_of(login)]
        owned = [key[3] for key in self._owned_keys.get(("user", get_path(login, "spec.user") or ""))]
        entries = [entry for name in owned if (entry := self._keys.get_cached("", name)) is not None]
        while remaining:
            parent = remaining.pop()
            for name in _children(entries, parent):
                if name not in found and name != name_of(login):
                    found.append(name)
                    remaining.append(name)
        return found

    async def _disable(self, key: str) -> None:
        def edit(old: Object) -> Object:
            new = deep_copy(old)
            new["spec"]["disabled"] = True
            return new

        try:
            await self._keys.modify("", key, edit, server_write_options())
        except NotFound:  # already deleted
            return

    async def _delete(self, key: str) -> None:
        await self._keys.delete_if_exists("", key)


def session_of(login: Object) -> str:
    """The id of the session at the provider (`sid`), if the provider has sent one."""
    return str((get_path(login, "spec.identity.extraClaims") or {}).get(SESSION_CLAIM) or "")


def _children(entries: list[Entry], parent: str) -> list[str]:
    text = orjson.dumps(parent)
    candidates = (entry for entry in entries if text in entry.body)
    return [entry.key[3] for entry in candidates if get_path(decode(entry), "spec.parent") == parent]


def _display_name(user_agent: str) -> str:
    display_name = "".join(each for each in user_agent[:MAX_AGENT_LENGTH] if each.isprintable()).strip()
    return f"Login with {display_name}" if display_name else LOGIN_TYPE
