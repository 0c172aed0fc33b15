"""Authenticates access keys: bearer tokens of a user, a team, a service account or another subject.

A key is 256 random bits after a prefix that secret scanners recognize. The store has only a keyed digest (HMAC with the
pepper), so a stolen database is not enough to sign in. Keys and principals are read through informers, so a change
takes effect with the next request. Only changed keys are indexed again, and the user of a key is resolved when the key
is used: keys are written often, to record their last use.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from fairlead.authn.credentials import INVALID, MAX_HEADER, bearer_token
from fairlead.authn.principals import TEAMS, USERS, People
from fairlead.core.call import Call
from fairlead.core.clock import Clock, parsed
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object, dig, metadata
from fairlead.core.scope import Scope
from fairlead.core.user import EVERYBODY, User
from fairlead.domain.key_lifetime import end_of, slides, ttl_of
from fairlead.kinds.access.access_key import MAX_OVERLAP
from fairlead.kinds.core.service_account import account_uid, is_account_key
from fairlead.registry.informer import Following

KEY_PREFIX = "fairlead_"
KEY_BYTES = 32
DIGEST_SCHEME = "hmac-sha256"
BLOCK = 64
"""Block size of SHA-256 in bytes."""
ACCESS_KEYS = "ownedaccesskeys"

ACCEPTED = 4_096
"""Maximum number of cached tokens."""

__all__ = ["ACCESS_KEYS", "KEY_PREFIX", "TEAMS", "USERS", "AccessKeys", "Pepper", "new_key"]


@dataclass(frozen=True, slots=True)
class Use:
    """The last use of a key, by both clocks."""

    moment: datetime
    monotonic: float


@dataclass(frozen=True, slots=True)
class End:
    """An expiry, by two clocks: it is reached when either the wall clock or the monotonic clock says so.

    The monotonic clock counts from when the key was first seen. So setting the wall clock back neither extends a
    lifetime nor revives an expired key.
    """

    moment: datetime
    monotonic: float

    @staticmethod
    def at(moment: datetime, clock: Clock, longest: float) -> "End":
        """`max_seconds` caps what is left, in case the wall clock was set back after `wall_time` was computed."""
        left = (moment - clock.now()).total_seconds()
        return End(moment, clock.monotonic() + min(left, longest))

    def after(self, use: Use, seconds: int) -> "End":
        """The later one of this expiry and `seconds` after a use."""
        moment = use.moment + timedelta(seconds=seconds)
        return End(max(self.moment, moment), max(self.monotonic, use.monotonic + seconds))

    def is_over(self, clock: Clock) -> bool:
        return clock.now() >= self.moment or clock.monotonic() >= self.monotonic


@dataclass(slots=True)
class Credential:
    """An access key in the authenticator's index. `user` is cached for `generation`."""

    key: Object
    current: str
    previous: tuple[tuple[str, End], ...]
    end: End | None
    expired: bool
    off: bool
    """Disabled or being deleted."""
    user: User | None = None
    generation: object = None

    @staticmethod
    def of(key: Object, clock: Clock, before: "Credential | None") -> "Credential":
        """`before` is the previous index entry of that name, if there is one."""
        if before is not None and metadata(before.key).get("uid") != metadata(key).get("uid"):
            before = None
        moment = end_of(key)
        end = End.at(moment, clock, ttl_of(key)) if moment is not None else None
        expired = bool(dig(key, "status.expired"))
        if before is not None and before.end is not None and before.end.moment == moment:
            end, expired = before.end, expired or before.expired
        off = bool(dig(key, "spec.disabled")) or "deletionTimestamp" in metadata(key)
        return Credential(key, dig(key, "spec.key") or "", tuple(_previous(key, clock)), end, expired, off)

    @property
    def is_timeless(self) -> bool:
        """Whether the key stays valid until the object changes, independent of time."""
        return self.end is None and not self.previous

    def digests(self) -> Iterator[str]:
        """All digests of the key, current and previous, active or not."""
        if self.current:
            yield self.current
        yield from (digest for digest, _ in self.previous if digest != self.current)

    def fits(self, digest: str, clock: Clock) -> bool:
        """Whether the digest is that of the current value, or of a previous one that has not expired."""
        found = bool(self.current) and hmac.compare_digest(self.current, digest)
        for earlier, end in self.previous:
            found |= hmac.compare_digest(earlier, digest) and not end.is_over(clock)
        return found

    def in_force(self, clock: Clock, last_use: Callable[[str], Use | None]) -> bool:
        """Whether the key is neither disabled, nor being deleted, nor expired. An expired key stays expired."""
        if self.expired or self.off:
            return False
        end = self.end
        if end is None:
            return True
        use = last_use(metadata(self.key).get("name", "")) if slides(self.key) else None
        if use is not None:
            end = end.after(use, ttl_of(self.key))
        self.expired = end.is_over(clock)
        return not self.expired


def _previous(key: Object, clock: Clock) -> Iterator[tuple[str, End]]:
    for each in dig(key, "status.previous") or ():
        until = parsed(each.get("until"))
        if until is not None:
            yield each.get("key") or "", End.at(until, clock, MAX_OVERLAP)


def new_key() -> str:
    """Generates a random key."""
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


@dataclass(frozen=True)
class Pepper:
    """The HMAC secret for digests; it is stored outside of the database."""

    secret: bytes

    def digest(self, key: str) -> str:
        """The stored form of a key. The middle part identifies the pepper, so that it can be rotated."""
        inner, outer = self._begun
        message = inner.copy()
        message.update(key.encode())
        digest = outer.copy()
        digest.update(message.digest())
        return self._scheme + digest.hexdigest()

    @cached_property
    def _begun(self) -> tuple["hashlib._Hash", "hashlib._Hash"]:
        """The HMAC (RFC 2104) states after hashing the secret: most of the work, and the same for every key."""
        secret = self.secret if len(self.secret) <= BLOCK else hashlib.sha256(self.secret).digest()
        inner, outer = (bytes(each ^ pad for each in secret.ljust(BLOCK, b"\0")) for pad in (0x36, 0x5C))
        return hashlib.sha256(inner), hashlib.sha256(outer)

    @cached_property
    def _scheme(self) -> str:
        return f"{DIGEST_SCHEME}:{hashlib.sha256(self.secret).hexdigest()[:8]}:"


class AccessKeys:
    """Authenticates `Authorization: Bearer <key>`. `last_use` returns uses that are not stored yet."""

    def __init__(
        self, keys: Following, people: People, pepper: Pepper, clock: Clock, last_use: Callable[[str], Use | None]
    ) -> None:
        self._keys = keys
        self._people = people
        self._pepper = pepper
        self._clock = clock
        self._last_use = last_use
        self._by_name: dict[str, Credential] = {}
        self._by_digest: dict[str, dict[str, Credential]] = {}
        # Cache of tokens that were authenticated since the last change. Its keys are keyed hashes with a secret of
        # this process, so that the timing of a lookup reveals nothing about a token.
        self._accepted: dict[bytes, User] = {}
        secret = secrets.token_bytes(KEY_BYTES)
        self._token_mark = hashlib.blake2b(key=secret, digest_size=KEY_BYTES, person=b"token")
        self._header_mark = hashlib.blake2b(key=secret, digest_size=KEY_BYTES, person=b"header")
        self._accepted_in: object = None
        self._accepted_at = -1
        # Makes the check of an unknown key take as long as that of a known one.
        self._nobody = Credential.of({"spec": {"key": pepper.digest(new_key())}}, clock, None)

    def __call__(self, call: Call) -> User | None:
        headers = call.headers.get_all("authorization")
        mark = _marked(self._header_mark, headers[0]) if len(headers) == 1 and len(headers[0]) <= MAX_HEADER else b""
        user = self._still_accepted().get(mark)
        if user is not None:
            return user
        token = bearer_token(call)
        return None if token is None else self._looked_up(token, mark)

    def of_token(self, token: str) -> User:
        """The user of a token. Raises Unauthorized if the key is unknown or no longer active."""
        mark = _marked(self._token_mark, token)
        user = self._still_accepted().get(mark)
        return user if user is not None else self._looked_up(token, mark)

    def _still_accepted(self) -> dict[bytes, User]:
        """The cache of authenticated tokens, cleared if a key or a principal has changed."""
        now = self._keys.as_of
        if now != self._accepted_at:
            generation = self._keys.refresh(), self._people.generation()
            if generation != self._accepted_in:
                self._accepted.clear()
                self._accepted_in = generation
            self._accepted_at = now
        return self._accepted

    def _looked_up(self, token: str, mark: bytes) -> User:
        digest = self._pepper.digest(token)
        self._take_in_changes()
        credential = self._holding(digest)
        fits = credential.fits(digest, self._clock)
        user = self._user(credential)
        if not fits or user is None:
            raise Unauthorized(INVALID)
        if credential.is_timeless:
            if len(self._accepted) >= ACCEPTED:
                self._accepted.clear()
            self._accepted[mark] = user
        return user

    def identity(self, key: str) -> User | None:
        """The user of the key with that object name; None if there is no such key, or it is not active."""
        self._take_in_changes()
        credential = self._by_name.get(key)
        return None if credential is None else self._user(credential)

    def _take_in_changes(self) -> None:
        for place in self._keys.changes():
            name = place[1]
            before = self._by_name.pop(name, None)
            for digest in before.digests() if before is not None else ():
                self._by_digest[digest].pop(name, None)
                if not self._by_digest[digest]:
                    del self._by_digest[digest]
            key = self._keys.objects.get(place)
            if key is None:
                continue
            credential = self._by_name[name] = Credential.of(key, self._clock, before)
            for digest in credential.digests():
                self._by_digest.setdefault(digest, {})[name] = credential

    def _holding(self, digest: str) -> Credential:
        """The key with this digest. Two keys can have the same value only after a race; then the older one counts."""
        found = self._by_digest.get(digest)
        if not found:
            return self._nobody
        return next(iter(found.values())) if len(found) == 1 else min(found.values(), key=_age)

    def _user(self, credential: Credential) -> User | None:
        """The user of an active key, resolved again when a principal has changed."""
        generation = self._people.generation()
        if credential.generation != generation:
            credential.user, credential.generation = self._identified(credential.key), generation
        in_force = credential.in_force(self._clock, self._last_use)
        return credential.user if in_force else None

    def _identified(self, key: Object) -> User | None:
        owner = self._owner(key)
        if owner is None:
            return None
        # A key must not add groups to a service account, above all not an admin group.
        added = () if is_account_key(key) else dig(key, "spec.groups") or ()
        groups = dict.fromkeys((*owner.groups, *added))
        scope = Scope.of(dig(key, "spec.scope"))
        return replace(owner, groups=tuple(groups), key=metadata(key).get("name", ""), scope=scope)

    def _owner(self, key: Object) -> User | None:
        user, team, subject = (dig(key, f"spec.{field}") for field in ("user", "team", "subject"))
        if user:
            found = self._people.living("User", user)
            return self._people.as_user(found) if found is not None and _belongs(key, found, "User") else None
        if team:
            found = self._people.living("Team", team)
            return self._people.as_team(found) if found is not None and _belongs(key, found, "Team") else None
        if is_account_key(key):
            return self._people.service_account(subject, account_uid(key))
        return User(subject, EVERYBODY) if subject else None


def _marked(begun: "hashlib.blake2b", text: str) -> bytes:
    mark = begun.copy()
    mark.update(text.encode())
    return mark.digest()


def _age(credential: Credential) -> tuple[str, str]:
    meta = metadata(credential.key)
    return meta.get("creationTimestamp") or "", meta.get("name", "")


def _belongs(key: Object, owner: Object, kind: str) -> bool:
    """Whether the key was issued for this owner, and not for an earlier one with the same name.

    A key without an owner reference, from an earlier version or orphaned, must be younger than its owner.
    """
    meta, name = metadata(owner), metadata(owner)["name"]
    references = metadata(key).get("ownerReferences") or ()
    named = [each.get("uid") for each in references if (each.get("kind"), each.get("name")) == (kind, name)]
    if named:
        return named == [meta.get("uid")]
    return (meta.get("creationTimestamp") or "") <= (metadata(key).get("creationTimestamp") or "")
