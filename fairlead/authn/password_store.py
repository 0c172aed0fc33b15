"""Stores password hashes in Secrets in the system namespace, referenced by `spec.passwordRef` of the user.

`server/auth/login.py` verifies passwords here and `subresources/profile.py` sets them. The Secret is named after its
user and has an owner reference to it, so it is garbage collected with the user. A `passwordRef` to any other Secret is
ignored: otherwise permission to edit users would be enough to point one at a forged hash.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Any

import structlog

from fairlead.authn.login_sessions import LoginKeys
from fairlead.authn.password_hash import Passwords, problem
from fairlead.authn.principals import USERS
from fairlead.core.errors import AlreadyExists, ApiError, Invalid
from fairlead.core.objects import Object, copied, dig, metadata, name_of
from fairlead.core.user import User
from fairlead.kinds.access.access_key import owner_reference
from fairlead.registry.codec import decode
from fairlead.registry.informer import Following
from fairlead.registry.registry import Registry
from fairlead.registry.storage_errors import storage_errors
from fairlead.registry.write_options import by_the_server

NAMESPACE = "service-system"
KEY = "password"
TYPE = "service.sh/password"
"""Secret type for the server's own use: the data is in no response."""

log = structlog.get_logger(__name__)


class PasswordStore:
    """Verifies and sets passwords, as the server itself. Callers authorize the request first."""

    def __init__(self, registry: Registry, api_group: str, passwords: Passwords, logins: LoginKeys) -> None:
        self._view = registry.view
        self._people = registry.resource(api_group, USERS)
        self._secrets = registry.resource("", "secrets")
        self._passwords = passwords
        self._logins = logins
        self._users = Following(registry.view, api_group, USERS)
        self._names: dict[str, str] = {}
        self._generation = -1

    async def user_called(self, username: str) -> Object | None:
        """The user with this username; None if there is none, or more than one."""
        with storage_errors():
            await self._view.fresh()
        generation = self._users.refresh()
        if generation != self._generation:
            self._names = _unique_names(self._users)
            self._generation = generation
        name = self._names.get(username)
        return None if name is None else self._user(name)

    def would_outlive(self, key: str) -> bool:
        """Whether a password set with this key would be valid longer than the key."""
        return self._logins.ends(key)

    async def verified(self, user: Object | None, password: str) -> str | None:
        """Returns the stored hash if the password matches and the user is active, else None.

        Takes the same time in all cases, so that the response time reveals neither users nor their state.
        """
        stored = self._stored(user) if user is not None else None
        fits = await self._passwords.verify(password, stored)
        blocked = user is None or bool(dig(user, "spec.disabled")) or "deletionTimestamp" in metadata(user)
        return stored if fits and not blocked else None

    async def still_fits(self, name: str, password: str, verified: str) -> bool:
        """Whether a password that was verified earlier is still valid; closes the race with a password change."""
        with storage_errors():
            await self._view.fresh()
        user = self._user(name)
        if user is not None and self._stored(user) == verified:
            return True
        return await self.verified(user, password) is not None

    async def renew(self, user: Object, password: str, verified: str) -> None:
        """Replaces the stored hash if it has another cost than the current one."""
        if not self._passwords.is_outdated(verified):
            return

        def edit(old: Object) -> Object:
            # A password that was set meanwhile must not be overwritten.
            same = _text(dig(old, f"data.{KEY}")) == verified
            return _holding(copied(old), user, encoded) if same else copied(old)

        try:
            encoded = await self._passwords.hash(password)
            await self._secrets.modify(NAMESPACE, _place(user)["secretName"], edit, by_the_server())
        except ApiError as error:  # best effort: the login is valid, and the next one tries again
            log.info("a password hash was not updated", user=name_of(user), why=error.reason)

    def has_password(self, user: Object) -> bool:
        return self._stored(user) is not None

    def refuse_weak(self, name: str, password: str) -> None:
        """Raises Invalid if the password is not acceptable."""
        wrong = problem(password)
        if wrong is not None:
            raise Invalid.of(self._people.kind.name, self._people.kind.group, name, [wrong])

    async def set(self, name: str, password: str, by: User) -> None:
        """Sets a user's password and revokes its logins, except the one `by` uses. Other access keys stay valid."""
        self.refuse_weak(name, password)
        user = decode(await self._people.get("", name))
        await self._keep(user, await self._passwords.hash(password))
        await self._refer(user)
        ended = await self._logins.end_all(name, but=by.key)
        log.info("a password was set", user=name, by=by.name, logins_ended=ended)

    def _user(self, name: str) -> Object | None:
        entry = self._people.peek("", name)
        return None if entry is None else decode(entry)

    def _stored(self, user: Object) -> str | None:
        reference, place = dig(user, "spec.passwordRef"), _place(user)
        if not reference:
            return None
        if not _is(reference, place):
            log.warning("a passwordRef was ignored", user=name_of(user), only=f"{NAMESPACE}/{place['secretName']}")
            return None
        entry = self._secrets.peek(NAMESPACE, place["secretName"])
        secret = decode(entry) if entry is not None else {}
        return _text(dig(secret, f"data.{KEY}")) if _belongs(secret, user) else None

    async def _keep(self, user: Object, encoded: str) -> None:
        name = _place(user)["secretName"]
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": TYPE}
        try:
            await self._secrets.create(_holding(body, user, encoded), NAMESPACE, by_the_server())
        except AlreadyExists:
            await self._secrets.modify(
                NAMESPACE, name, lambda old: _holding(copied(old), user, encoded), by_the_server()
            )

    async def _refer(self, user: Object) -> None:
        place = _place(user)
        if _is(dig(user, "spec.passwordRef") or {}, place):
            return

        def edit(old: Object) -> Object:
            new = copied(old)
            new["spec"] = {**(new.get("spec") or {}), "passwordRef": place}
            return new

        await self._people.modify("", name_of(user), edit, by_the_server())


def _unique_names(users: Following) -> dict[str, str]:
    """User object names by username. A username of two users is left out, rather than signing in the wrong one."""
    found: dict[str, str] = {}
    twice: set[str] = set()
    for (_, name), user in users.objects.items():
        username = dig(user, "spec.username") or name
        if username in found:
            twice.add(username)
        found[username] = name
    return {username: name for username, name in found.items() if username not in twice}


def _place(user: Object) -> Object:
    """The only `passwordRef` that is accepted for a user."""
    return {"secretName": f"{name_of(user)}-password", "secretNamespace": NAMESPACE, "key": KEY}


def _holding(secret: Object, user: Object, encoded: str) -> Object:
    """Sets the hash and the owner reference of a password Secret."""
    metadata(secret)["ownerReferences"] = [owner_reference(user)]
    secret["data"] = {KEY: b64encode(encoded.encode()).decode()}
    return secret


def _is(reference: Object, place: Object) -> bool:
    """Whether a `passwordRef` is the expected one. The key within the Secret may be omitted."""
    given = {**reference, "key": reference.get("key") or KEY}
    return all(given.get(name) == value for name, value in place.items())


def _belongs(secret: Object, user: Object) -> bool:
    """Whether the Secret is not that of an earlier user with the same name."""
    owners = metadata(secret).get("ownerReferences") or ()
    return not owners or any(owner.get("uid") == metadata(user)["uid"] for owner in owners)


def _text(value: Any) -> str | None:
    try:
        return b64decode(value or "", validate=True).decode() or None
    except (NotBase64, UnicodeDecodeError):
        return None
