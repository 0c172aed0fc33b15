"""Passwords: hashes with salted Argon2id, in Secrets in the system namespace.

`signin/login.py` verifies passwords here and `signin/profile.py` sets them. The Secret is named after its user and has
an owner reference to it, so it is garbage collected with the user; `spec.passwordRef` of the user refers to it. A
`passwordRef` to any other Secret is ignored: otherwise permission to edit users would be enough to point one at a
forged hash. So is a Secret of another type, which the server did not create.

Hashes are in the PHC string format, with their own salt and cost: the cost can be raised while old hashes stay valid
until their users sign in again. A hash takes tens of milliseconds and MiB by design, which could be used for denial of
service. So only a few are computed concurrently, in threads, a few more wait, and further requests get 429.
"""

import asyncio
import os
import re
import unicodedata
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import structlog
from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from fairlead.authn.principals import USERS
from fairlead.core.concurrency import CURRENT_ACCOUNT, HASHING_POOL, Account
from fairlead.core.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Details,
    Forbidden,
    Invalid,
    Problem,
    TooManyRequests,
)
from fairlead.core.objects import Object, deep_copy, get_path, metadata, name_of
from fairlead.core.user import User
from fairlead.kinds.access.access_key import owner_reference
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.kinds.core.server_objects import PASSWORD_SECRET_TYPE
from fairlead.registry.codec import decode
from fairlead.registry.informer import Derived, Informer
from fairlead.registry.registry import Registry
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.registry.write_options import server_write_options
from fairlead.signin.login_sessions import LoginSessions

MIN_LENGTH = 12
"""Characters. There are no rules about digits and symbols: length is what makes a password hard to guess."""
MAX_BYTES = 1024
MAX_CONCURRENT_HASHES = 2
"""Concurrent hashes: few enough to leave CPU and memory for the rest of the server."""
MAX_WAITING_HASHES = 32
"""Maximum number of waiting hashes: a few seconds of work."""
SALT_BYTES = 16
HASH_BYTES = 32

_PHC = re.compile(
    r"\$argon2id\$v=19\$m=([0-9]{1,7}),t=([0-9]{1,2}),p=([0-9]{1,2})\$[A-Za-z0-9+/]{11,64}\$[A-Za-z0-9+/]{16,128}"
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cost:
    """The Argon2 parameters of a hash: memory in KiB, passes, and parallel lanes."""

    memory: int
    passes: int
    lanes: int = 1


DEFAULT_COST = Cost(memory=32 * 1024, passes=3)
MAX_COST = Cost(memory=1024 * 1024, passes=16, lanes=16)
"""A stored hash with a higher cost is not verified: it could exhaust the server's memory."""


def password_problem(password: str) -> Problem | None:
    """Why a password is not acceptable. The message must not contain the password."""
    material = _normalize(password)
    if material is None:
        return Problem("password", "FieldValueTooLong", f"Too long: may not be more than {MAX_BYTES} bytes of UTF-8")
    if len(material.decode()) < MIN_LENGTH:
        return Problem("password", "FieldValueInvalid", f"Invalid value: must have at least {MIN_LENGTH} characters")
    return None


class PasswordHasher:
    """Hashes passwords and verifies them, with limited concurrency."""

    def __init__(
        self,
        cost: Cost = DEFAULT_COST,
        max_concurrent: int = MAX_CONCURRENT_HASHES,
        max_waiting: int = MAX_WAITING_HASHES,
    ) -> None:
        self._cost = cost
        self._semaphore = asyncio.Semaphore(max_concurrent)
        self._slots = max_concurrent + max_waiting
        self._slots_used = 0
        self._slots_used_by: Counter[Account | None] = Counter()
        self._dummy = _dummy_hash(cost)

    async def hash(self, password: str) -> str:
        """The hash of a password that has no `password_problem`."""
        material = _normalize(password)
        if material is None:
            raise ValueError("the password is too long to be hashed")
        return await self._run_hash(lambda: _hash(material, self._cost))

    async def verify(self, password: str, stored: str | None) -> bool:
        """Whether the password matches the stored hash. Takes as long without a hash, to hide which users exist."""
        material = _normalize(password)
        if material is None or stored is None or not _is_acceptable(stored):
            await self._run_hash(lambda: _matches(material or b"", self._dummy))
            return False
        return await self._run_hash(lambda: _matches(material, stored))

    def is_outdated(self, stored: str) -> bool:
        """Whether a hash has another cost than the current one and should be replaced."""
        return _parse_cost(stored) != self._cost

    async def _run_hash(self, work: Callable[[], T]) -> T:
        account = CURRENT_ACCOUNT.get()
        self._acquire_slot(account)
        try:
            await self._semaphore.acquire()
        except asyncio.CancelledError:
            self._release_slot(account)
            raise
        # A thread cannot be cancelled. Its slot is released when it is done, even if the request was cancelled.
        reckoning = asyncio.ensure_future(HASHING_POOL.run(0, work))
        reckoning.add_done_callback(partial(self._on_done, account))
        return await asyncio.shield(reckoning)

    def _acquire_slot(self, account: Account | None) -> None:
        """Takes a slot. An account may use at most as many slots as remain free, so that one client address cannot
        block all other logins."""
        free, own = self._slots - self._slots_used, self._slots_used_by[account] if account is not None else 0
        if free <= 0:
            raise TooManyRequests("too many users are signing in at the moment; try again", Details(retry_after=1))
        if own >= free:
            message = "too many of your login attempts are being processed at the moment; try again, one at a time"
            raise TooManyRequests(message, Details(retry_after=1))
        self._slots_used += 1
        self._slots_used_by[account] += 1

    def _release_slot(self, account: Account | None) -> None:
        self._slots_used -= 1
        self._slots_used_by[account] -= 1
        if not self._slots_used_by[account]:
            del self._slots_used_by[account]

    def _on_done(self, account: Account | None, _: object) -> None:
        self._release_slot(account)
        self._semaphore.release()


def _normalize(password: str) -> bytes | None:
    """The bytes to hash, in Unicode NFC; None if there are too many, or the text cannot be encoded.

    Normalized, because input methods differ in whether an umlaut is one code point or two.
    """
    if len(password) > MAX_BYTES:  # before spending time on it
        return None
    try:
        material = unicodedata.normalize("NFC", password).encode()
    except UnicodeEncodeError:
        return None
    return material if len(material) <= MAX_BYTES else None


def _hash(material: bytes, cost: Cost) -> str:
    salt = os.urandom(SALT_BYTES)
    argon = Argon2id(salt=salt, length=HASH_BYTES, iterations=cost.passes, lanes=cost.lanes, memory_cost=cost.memory)
    return argon.derive_phc_encoded(material)


def _matches(material: bytes, stored: str) -> bool:
    """Verifies a hash. The library compares in constant time."""
    try:
        Argon2id.verify_phc_encoded(material, stored)
    except (InvalidKey, ValueError):  # ValueError: parameters that Argon2 rejects, such as too little memory
        return False
    return True


def _parse_cost(stored: str) -> Cost | None:
    found = _PHC.fullmatch(stored)
    return Cost(*map(int, found.groups())) if found else None


def _is_acceptable(stored: str) -> bool:
    cost = _parse_cost(stored)
    return (
        cost is not None
        and cost.memory <= MAX_COST.memory
        and cost.passes <= MAX_COST.passes
        and cost.lanes <= MAX_COST.lanes
    )


def _dummy_hash(cost: Cost) -> str:
    """A random hash that matches no password and takes as long to verify as any other."""
    salt, digest = (b64encode(os.urandom(size)).decode().rstrip("=") for size in (SALT_BYTES, HASH_BYTES))
    return f"$argon2id$v=19$m={cost.memory},t={cost.passes},p={cost.lanes}${salt}${digest}"


PASSWORD_FIELD = "password"

log = structlog.get_logger(__name__)


class PasswordStore:
    """Verifies and sets passwords, as the server itself. Callers authorize the request first."""

    def __init__(self, registry: Registry, api_group: str, hasher: PasswordHasher, logins: LoginSessions) -> None:
        self._view = registry.view
        self._user_resource = registry.resource(api_group, USERS)
        self._secrets = registry.resource("", "secrets")
        self._hasher = hasher
        self._logins = logins
        users = Informer(registry.view, api_group, USERS)
        self._names_by_username = Derived(registry.view, (users.refresh,), partial(_unique_usernames, users))
        self._has_passwords = Derived(registry.view, (users.refresh,), partial(_has_passwords, users))

    async def find_by_username(self, username: str) -> Object | None:
        """The user with this username; None if there is none, or more than one."""
        with translate_storage_errors():
            await self._view.wait_current()
        name = self._names_by_username.get().get(username)
        return None if name is None else self._user(name)

    def is_used(self) -> bool:
        """Whether any user has a password. After the first start none has, and the console asks for a key instead."""
        return self._has_passwords.get()

    def would_outlive(self, key: str) -> bool:
        """Whether a password set with this key would be valid longer than the key."""
        return self._logins.expires(key)

    async def verify(self, user: Object | None, password: str) -> str | None:
        """Returns the stored hash if the password matches and the user is active, else None.

        Takes the same time in all cases, so that the response time reveals neither users nor their state.
        """
        stored = self._stored_hash(user) if user is not None and not get_path(user, "spec.issuer") else None
        fits = await self._hasher.verify(password, stored)
        blocked = user is None or bool(get_path(user, "spec.disabled")) or "deletionTimestamp" in metadata(user)
        return stored if fits and not blocked else None

    async def recheck(self, name: str, password: str, verified_hash: str) -> bool:
        """Whether a password that was verified earlier is still valid; closes the race with a password change."""
        with translate_storage_errors():
            await self._view.wait_current()
        user = self._user(name)
        if user is not None and self._stored_hash(user) == verified_hash:
            return True
        return await self.verify(user, password) is not None

    async def rehash_if_outdated(self, user: Object, password: str, verified_hash: str) -> None:
        """Replaces the stored hash if it has another cost than the current one."""
        if not self._hasher.is_outdated(verified_hash):
            return

        def edit(old: Object) -> Object:
            # A password that was set meanwhile must not be overwritten.
            same = _decode_text(get_path(old, f"data.{PASSWORD_FIELD}")) == verified_hash
            return _with_hash(deep_copy(old), user, encoded) if same else deep_copy(old)

        try:
            encoded = await self._hasher.hash(password)
            await self._secrets.modify(
                SYSTEM_NAMESPACE, _expected_ref(user)["secretName"], edit, server_write_options()
            )
        except ApiError as error:  # best effort: the login is valid, and the next one tries again
            log.info("a password hash was not updated", user=name_of(user), why=error.reason)

    def has_password(self, user: Object) -> bool:
        return self._stored_hash(user) is not None

    def lacks_password(self, name: str) -> bool:
        """Whether a user has no password, and is none of an identity provider, who never has one."""
        user = self._user(name)
        return user is not None and not get_path(user, "spec.issuer") and not self.has_password(user)

    def check_strength(self, name: str, password: str) -> None:
        """Raises Invalid if the password is not acceptable."""
        wrong = password_problem(password)
        if wrong is not None:
            raise Invalid.of(self._user_resource.kind.name, self._user_resource.kind.group, name, [wrong])

    def check_local(self, user: Object) -> None:
        """Raises Forbidden for a user of an identity provider: a password would be a way around the provider."""
        if get_path(user, "spec.issuer"):
            why = "the user signs in with an identity provider, and has no password"
            raise Forbidden.of(USERS, self._user_resource.kind.group, name_of(user), why)

    async def set_password(self, name: str, password: str, by: User) -> None:
        """Sets a user's password and revokes its logins, except the one `by` uses. Other access keys stay valid."""
        self.check_strength(name, password)
        user = decode(await self._user_resource.get("", name))
        self.check_local(user)
        await self._write_secret(user, await self._hasher.hash(password))
        await self._set_password_ref(user)
        ended = await self._logins.revoke_all(name, keep=by.key)
        log.info("a password was set", user=name, by=by.name, logins_ended=ended)

    def _user(self, name: str) -> Object | None:
        entry = self._user_resource.get_cached("", name)
        return None if entry is None else decode(entry)

    def _stored_hash(self, user: Object) -> str | None:
        reference = get_path(user, "spec.passwordRef")
        expected = _expected_ref(user)
        if not reference:
            return None
        if not _matches_ref(reference, expected):
            log.warning(
                "a passwordRef was ignored", user=name_of(user), only=f"{SYSTEM_NAMESPACE}/{expected['secretName']}"
            )
            return None
        entry = self._secrets.get_cached(SYSTEM_NAMESPACE, expected["secretName"])
        secret = decode(entry) if entry is not None else {}
        return _decode_text(get_path(secret, f"data.{PASSWORD_FIELD}")) if _belongs_to(secret, user) else None

    async def _write_secret(self, user: Object, password_hash: str) -> None:
        name = _expected_ref(user)["secretName"]
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": PASSWORD_SECRET_TYPE}
        try:
            await self._secrets.create(_with_hash(body, user, password_hash), SYSTEM_NAMESPACE, server_write_options())
        except AlreadyExists:

            def edit(old: Object) -> Object:
                if old.get("type") != PASSWORD_SECRET_TYPE:
                    why = f"it is in the place of the password of user {name_of(user)!r}; delete it, and try again"
                    raise Conflict.of("secrets", "", name, why)
                return _with_hash(deep_copy(old), user, password_hash)

            await self._secrets.modify(SYSTEM_NAMESPACE, name, edit, server_write_options())

    async def _set_password_ref(self, user: Object) -> None:
        expected = _expected_ref(user)
        if _matches_ref(get_path(user, "spec.passwordRef") or {}, expected):
            return

        def edit(old: Object) -> Object:
            new = deep_copy(old)
            new["spec"] = {**(new.get("spec") or {}), "passwordRef": expected}
            return new

        await self._user_resource.modify("", name_of(user), edit, server_write_options())


def _unique_usernames(users: Informer) -> dict[str, str]:
    """User object names by username. A username of two users is left out, rather than signing in the wrong one."""
    found: dict[str, str] = {}
    twice: set[str] = set()
    for (_, name), user in users.objects.items():
        username = get_path(user, "spec.username") or name
        if username in found:
            twice.add(username)
        found[username] = name
    return {username: name for username, name in found.items() if username not in twice}


def _has_passwords(users: Informer) -> bool:
    return any(get_path(user, "spec.passwordRef") for user in users.objects.values())


def _expected_ref(user: Object) -> Object:
    """The only `passwordRef` that is accepted for a user."""
    return {"secretName": f"{name_of(user)}-password", "secretNamespace": SYSTEM_NAMESPACE, "key": PASSWORD_FIELD}


def _with_hash(secret: Object, user: Object, password_hash: str) -> Object:
    """Sets the hash and the owner reference of a password Secret."""
    metadata(secret)["ownerReferences"] = [owner_reference(user)]
    secret["data"] = {PASSWORD_FIELD: b64encode(password_hash.encode()).decode()}
    return secret


def _matches_ref(reference: Object, expected: Object) -> bool:
    """Whether a `passwordRef` is the expected one. The key within the Secret may be omitted."""
    reference_with_key = {**reference, "key": reference.get("key") or PASSWORD_FIELD}
    return all(reference_with_key.get(name) == value for name, value in expected.items())


def _belongs_to(secret: Object, user: Object) -> bool:
    """Whether the server created the Secret, and not for an earlier user with the same name."""
    if secret.get("type") != PASSWORD_SECRET_TYPE:
        return False
    owners = metadata(secret).get("ownerReferences") or ()
    return not owners or any(owner.get("uid") == metadata(user)["uid"] for owner in owners)


def _decode_text(value: Any) -> str | None:
    try:
        return b64decode(value or "", validate=True).decode() or None
    except (NotBase64, UnicodeDecodeError):
        return None
