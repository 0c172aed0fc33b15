"""Access keys: bearer tokens that stand for a user, a team, a service account or another subject.

A key is 256 random bits behind a prefix that secret scanners can find. The store holds a keyed digest, never the key:
who steals the database cannot sign in with it. Keys, users and teams are objects like all others, so this authenticator
follows them in the view, and a change takes effect with the next request. Only objects that have changed are looked at
again, and whose key it is is worked out when it is used: keys are written to all the time, to note their last use.
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

# DOC-MERGED authn/credential
# One access key as the authenticator keeps it: its digests, and whether it is still in force.
#
# A life ends by whichever of two clocks says so first: the wall clock, or the monotonic one that counts on from when the
# key was first seen. So a wall clock that is set back neither lengthens a life nor gives back one that has ended.


@dataclass(frozen=True, slots=True)
class Use:
    """When a key was used, by both clocks."""

    moment: datetime
    monotonic: float


@dataclass(frozen=True, slots=True)
class End:
    """When something ends, by both clocks."""

    moment: datetime
    monotonic: float

    @staticmethod
    def at(moment: datetime, clock: Clock, longest: float) -> "End":
        """`longest` bounds what is left: a date from before the clock was set back can seem far away."""
        left = (moment - clock.now()).total_seconds()
        return End(moment, clock.monotonic() + min(left, longest))

    def after(self, use: Use, seconds: int) -> "End":
        """The later of this, and so many seconds after a use."""
        moment = use.moment + timedelta(seconds=seconds)
        return End(max(self.moment, moment), max(self.monotonic, use.monotonic + seconds))

    def is_over(self, clock: Clock) -> bool:
        return clock.now() >= self.moment or clock.monotonic() >= self.monotonic


@dataclass(slots=True)
class Credential:
    """A key object and what has been found out about it. `user` is the identity as of `generation`."""

    key: Object
    current: str
    previous: tuple[tuple[str, End], ...]
    end: End | None
    expired: bool
    off: bool
    """Disabled, or about to be deleted."""
    user: User | None = None
    generation: object = None

    @staticmethod
    def of(key: Object, clock: Clock, before: "Credential | None") -> "Credential":
        """`before` is what was known of the object of that name until now."""
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
        """Whether only a change could end it: there is no clock that it goes by."""
        return self.end is None and not self.previous

    def digests(self) -> Iterator[str]:
        """All that the key can be recognised by, in force or not."""
        if self.current:
            yield self.current
        yield from (digest for digest, _ in self.previous if digest != self.current)

    def fits(self, digest: str, clock: Clock) -> bool:
        """Whether a token with this digest is the key: today's value, or an earlier one that still holds."""
        found = bool(self.current) and hmac.compare_digest(self.current, digest)
        for earlier, end in self.previous:
            found |= hmac.compare_digest(earlier, digest) and not end.is_over(clock)
        return found

    def in_force(self, clock: Clock, last_use: Callable[[str], Use | None]) -> bool:
        """Whether the key works by itself: neither disabled, nor going, nor expired. What has expired stays so."""
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


KEY_PREFIX = "fairlead_"
KEY_BYTES = 32
DIGEST_SCHEME = "hmac-sha256"
BLOCK = 64
"""How many bytes SHA-256 takes in at a time."""
ACCESS_KEYS = "ownedaccesskeys"

ACCEPTED = 4_096
"""How many tokens are remembered at most."""

__all__ = ["ACCESS_KEYS", "KEY_PREFIX", "TEAMS", "USERS", "AccessKeys", "Pepper", "new_key"]


def new_key() -> str:
    """A fresh key."""
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


@dataclass(frozen=True)
class Pepper:
    """The secret that digests are made with; it lives outside the database."""

    secret: bytes

    def digest(self, key: str) -> str:
        """What the store keeps of a key. The part in the middle names the pepper, so that it can be rotated."""
        inner, outer = self._begun
        made = inner.copy()
        made.update(key.encode())
        digest = outer.copy()
        digest.update(made.digest())
        return self._scheme + digest.hexdigest()

    @cached_property
    def _begun(self) -> tuple["hashlib._Hash", "hashlib._Hash"]:
        """HMAC (RFC 2104) with the secret already taken in, which is most of the work and the same for every key."""
        secret = self.secret if len(self.secret) <= BLOCK else hashlib.sha256(self.secret).digest()
        inner, outer = (bytes(each ^ pad for each in secret.ljust(BLOCK, b"\0")) for pad in (0x36, 0x5C))
        return hashlib.sha256(inner), hashlib.sha256(outer)

    @cached_property
    def _scheme(self) -> str:
        return f"{DIGEST_SCHEME}:{hashlib.sha256(self.secret).hexdigest()[:8]}:"


class AccessKeys:
    """Authenticates `Authorization: Bearer <key>`. `last_use` tells of uses that are not written down yet."""

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
        # Tokens that have gone through all of it since anything changed. None is kept as it is: they are known by a
        # keyed hash whose key nobody has but this process, so that how long a look takes tells nothing of any of them.
        self._accepted: dict[bytes, User] = {}
        secret = secrets.token_bytes(KEY_BYTES)
        self._token_mark = hashlib.blake2b(key=secret, digest_size=KEY_BYTES, person=b"token")
        self._header_mark = hashlib.blake2b(key=secret, digest_size=KEY_BYTES, person=b"header")
        self._accepted_in: object = None
        self._accepted_at = -1
        # Whoever sends an unknown key is answered after the same work as for a known one.
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
        """Whose key a token is. Raises Unauthorized for one that is unknown, or no longer in force."""
        mark = _marked(self._token_mark, token)
        user = self._still_accepted().get(mark)
        return user if user is not None else self._looked_up(token, mark)

    def _still_accepted(self) -> dict[bytes, User]:
        """What was accepted since a key or anybody who has one has changed."""
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
        """Whom the key of that name stands for; None if there is no such key, or it is not in force."""
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
        """Whoever has this digest; of two, which takes a race between people who choose the same key, the older."""
        found = self._by_digest.get(digest)
        if not found:
            return self._nobody
        return next(iter(found.values())) if len(found) == 1 else min(found.values(), key=_age)

    def _user(self, credential: Credential) -> User | None:
        """The identity behind a key that is in force. It is worked out anew when people have changed."""
        generation = self._people.generation()
        if credential.generation != generation:
            credential.user, credential.generation = self._identified(credential.key), generation
        in_force = credential.in_force(self._clock, self._last_use)
        return credential.user if in_force else None

    def _identified(self, key: Object) -> User | None:
        owner = self._owner(key)
        if owner is None:
            return None
        # The groups of a service account are its own: no key adds to them, an administrators' group least of all.
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
    """Whether the key was made for this very owner, and not for another one who had the name before.

    A key that names no owner, because it is from an earlier version or was orphaned, must be younger than its owner.
    """
    meta, name = metadata(owner), metadata(owner)["name"]
    references = metadata(key).get("ownerReferences") or ()
    named = [each.get("uid") for each in references if (each.get("kind"), each.get("name")) == (kind, name)]
    if named:
        return named == [meta.get("uid")]
    return (meta.get("creationTimestamp") or "") <= (metadata(key).get("creationTimestamp") or "")
