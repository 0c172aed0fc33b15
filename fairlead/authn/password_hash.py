"""Passwords as the store keeps them: salted Argon2id hashes, which cost whoever steals the database memory and time.

`authn/password_store.py` keeps them with their users. The hash is a text in the PHC form that
other software reads too; it carries its own salt and cost, so that the cost can be raised while old hashes go on
working until their users sign in the next time.

A hash takes tens of milliseconds and MiB, which is its point and makes it a way to wear the server down. So only a few
are reckoned at once, in threads, a few more wait, and everybody else is told to come again.
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

from fairlead.core.concurrency import ACCOUNT, HASHING, Account
from fairlead.core.errors import Details, Problem, TooManyRequests

MIN_LENGTH = 12
"""Characters. Length is what makes a password hard to guess; rules about digits and signs only make it hard to keep."""
MAX_BYTES = 1024
AT_ONCE = 2
"""Hashes reckoned at the same time: as many as leave the rest of the server its processors and memory."""
WAITING = 32
"""Hashes that may wait for their turn. They are a few seconds of work, and nobody should wait longer."""
SALT_BYTES = 16
HASH_BYTES = 32

_PHC = re.compile(
    r"\$argon2id\$v=19\$m=([0-9]{1,7}),t=([0-9]{1,2}),p=([0-9]{1,2})\$[A-Za-z0-9+/]{11,64}\$[A-Za-z0-9+/]{16,128}"
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one hash takes: KiB of memory, passes over it, and how many parts of it can be worked on side by side."""

    memory: int
    passes: int
    lanes: int = 1


COST = Cost(memory=32 * 1024, passes=3)
MOST = Cost(memory=1024 * 1024, passes=16, lanes=16)
"""A stored hash that asks for more than this is not worked on: it would take the server down with it."""


def problem(password: str) -> Problem | None:
    """Why a password cannot be set, in words that do not quote it."""
    material = _material(password)
    if material is None:
        return Problem("password", "FieldValueTooLong", f"Too long: may not be more than {MAX_BYTES} bytes of UTF-8")
    if len(material.decode()) < MIN_LENGTH:
        return Problem("password", "FieldValueInvalid", f"Invalid value: must have at least {MIN_LENGTH} characters")
    return None


class Passwords:
    """Makes hashes and checks passwords against them."""

    def __init__(self, cost: Cost = COST, at_once: int = AT_ONCE, waiting: int = WAITING) -> None:
        self._cost = cost
        self._free = asyncio.Semaphore(at_once)
        self._places = at_once + waiting
        self._taken = 0
        self._taken_by: Counter[Account | None] = Counter()
        self._nobodys = _nobodys_hash(cost)

    async def hash(self, password: str) -> str:
        """What to store for a password that has no `problem`."""
        material = _material(password)
        if material is None:
            raise ValueError("the password is too long to be hashed")
        return await self._reckon(lambda: _hash(material, self._cost))

    async def verify(self, password: str, stored: str | None) -> bool:
        """Whether this is the password that was stored. Where none is, finding that out takes as long."""
        material = _material(password)
        if material is None or stored is None or not _acceptable(stored):
            await self._reckon(lambda: _fits(material or b"", self._nobodys))
            return False
        return await self._reckon(lambda: _fits(material, stored))

    def is_outdated(self, stored: str) -> bool:
        """Whether a hash was made at another cost than today's, and had better be made anew."""
        return _cost_of(stored) != self._cost

    async def _reckon(self, work: Callable[[], T]) -> T:
        account = ACCOUNT.get()
        self._take_place(account)
        try:
            await self._free.acquire()
        except asyncio.CancelledError:
            self._leave_place(account)
            raise
        # A thread cannot be called off. Its place is free when it is done, whether or not somebody still waits for it.
        reckoning = asyncio.ensure_future(HASHING.run(0, work))
        reckoning.add_done_callback(partial(self._leave, account))
        return await asyncio.shield(reckoning)

    def _take_place(self, account: Account | None) -> None:
        """Nobody takes more places than he leaves free: one address does not keep all others from signing in."""
        free, own = self._places - self._taken, self._taken_by[account] if account is not None else 0
        if free <= 0:
            raise TooManyRequests("too many people are signing in at this moment; try again", Details(retry_after=1))
        if own >= free:
            message = "too many passwords from you are being checked at this moment; try again, one at a time"
            raise TooManyRequests(message, Details(retry_after=1))
        self._taken += 1
        self._taken_by[account] += 1

    def _leave_place(self, account: Account | None) -> None:
        self._taken -= 1
        self._taken_by[account] -= 1
        if not self._taken_by[account]:
            del self._taken_by[account]

    def _leave(self, account: Account | None, _: object) -> None:
        self._leave_place(account)
        self._free.release()


def _material(password: str) -> bytes | None:
    """The bytes that are hashed; None if there are too many, or no such text exists.

    Composed, because keyboards differ in whether an umlaut is one character or two.
    """
    if len(password) > MAX_BYTES:  # before any work is put into it
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


def _fits(material: bytes, stored: str) -> bool:
    """Compared in constant time by the library."""
    try:
        Argon2id.verify_phc_encoded(material, stored)
    except (InvalidKey, ValueError):  # the latter for costs that Argon2 does not know, such as too little memory
        return False
    return True


def _cost_of(stored: str) -> Cost | None:
    found = _PHC.fullmatch(stored)
    return Cost(*map(int, found.groups())) if found else None


def _acceptable(stored: str) -> bool:
    cost = _cost_of(stored)
    return cost is not None and cost.memory <= MOST.memory and cost.passes <= MOST.passes and cost.lanes <= MOST.lanes


def _nobodys_hash(cost: Cost) -> str:
    """A hash that no password has, and that takes as long to check as any other."""
    salt, digest = (b64encode(os.urandom(size)).decode().rstrip("=") for size in (SALT_BYTES, HASH_BYTES))
    return f"$argon2id$v=19$m={cost.memory},t={cost.passes},p={cost.lanes}${salt}${digest}"
