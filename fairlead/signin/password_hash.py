"""Hashes and verifies passwords with salted Argon2id.

`signin/password_store.py` stores the hashes. They are in the PHC string format, with their own salt and cost: the cost
can be raised while old hashes stay valid until their users sign in again.

A hash takes tens of milliseconds and MiB by design, which could be used for denial of service. So only a few are
computed concurrently, in threads, a few more wait, and further requests get 429.
"""

import asyncio
import os
import re
import unicodedata
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from fairlead.core.concurrency import CURRENT_ACCOUNT, HASHING_POOL, Account
from fairlead.core.errors import Details, Problem, TooManyRequests

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
