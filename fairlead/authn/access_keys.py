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

from msgspec import Struct

from fairlead.authn.credentials import INVALID_TOKEN, MAX_HEADER_BYTES, bearer_token
from fairlead.authn.principals import TEAMS, USERS, PrincipalDirectory
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import Call
from fairlead.core.clock import Clock, parse_rfc3339
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.scope import Scope
from fairlead.core.user import AUTHENTICATED_GROUPS, User
from fairlead.domain.key_lifetime import expires_at, is_sliding, ttl_seconds
from fairlead.kinds.access.access_key import MAX_OVERLAP_SECONDS, OWNED_ACCESS_KEY, is_cli_login, is_sso_login
from fairlead.kinds.core.service_account import account_uid, is_account_key
from fairlead.registry.informer import Derived, Informer

KEY_PREFIX = "fairlead_"
KEY_BYTES = 32
DIGEST_SCHEME = "hmac-sha256"
"""Block size of SHA-256 in bytes."""
ACCESS_KEYS = OWNED_ACCESS_KEY.plural

MAX_PARENTS = 4
"""How long the chain of `spec.parent` can be: a key of the CLI, its refresh token, the login."""
SERVER_ISSUED_TYPES = frozenset({"Login", "OIDCRefreshToken"})
"""The types of keys whose `spec.parent` counts. Other keys may have the field, which was never checked."""

TOKEN_CACHE_SIZE = 4_096
"""Maximum number of cached tokens."""

__all__ = ["ACCESS_KEYS", "KEY_PREFIX", "TEAMS", "USERS", "AccessKeyAuthenticator", "Pepper", "generate_key"]


class LastUse(Struct, frozen=True):
    """The last use of a key, by both clocks."""

    wall_time: datetime
    monotonic: float


@dataclass(frozen=True, slots=True)
class Expiry:
    """An expiry, by two clocks: it is reached when either the wall clock or the monotonic clock says so.

    The monotonic clock counts from when the key was first seen. So setting the wall clock back neither extends a
    lifetime nor revives an expired key.
    """

    wall_time: datetime
    monotonic: float

    @staticmethod
    def from_time(wall_time: datetime, clock: Clock, max_seconds: float) -> "Expiry":
        """`max_seconds` caps what is left, in case the wall clock was set back after `wall_time` was computed."""
        left = (wall_time - clock.now()).total_seconds()
        return Expiry(wall_time, clock.monotonic() + min(left, max_seconds))

    def after(self, use: LastUse, seconds: int) -> "Expiry":
        """The later one of this expiry and `seconds` after a use."""
        moment = use.wall_time + timedelta(seconds=seconds)
        return Expiry(max(self.wall_time, moment), max(self.monotonic, use.monotonic + seconds))

    def is_reached(self, clock: Clock) -> bool:
        return clock.now() >= self.wall_time or clock.monotonic() >= self.monotonic


@dataclass(slots=True)
class Credential:
    """An access key in the authenticator's index. `user` is cached for `generation`."""

    key: Object
    current_digest: str
    previous_digests: tuple[tuple[str, Expiry], ...]
    expiry: Expiry | None
    is_expired: bool
    is_disabled: bool
    """Disabled or being deleted."""
    is_sso_login: bool
    """A login by single sign-on: valid only while the provider confirms it."""
    parent: str
    """The key with which this login was allowed: the login is valid only as long as that is."""
    user: User | None = None
    generation: object = None

    @staticmethod
    def from_key(key: Object, clock: Clock, before: "Credential | None") -> "Credential":
        """`before` is the previous index entry of that name, if there is one."""
        if before is not None and metadata(before.key).get("uid") != metadata(key).get("uid"):
            before = None
        moment = expires_at(key)
        end = Expiry.from_time(moment, clock, ttl_seconds(key)) if moment is not None else None
        expired = bool(get_path(key, "status.expired"))
        if before is not None and before.expiry is not None and before.expiry.wall_time == moment:
            end, expired = before.expiry, expired or before.is_expired
        off = bool(get_path(key, "spec.disabled")) or "deletionTimestamp" in metadata(key)
        value = get_path(key, "spec.key") or ""
        previous = tuple(_previous_digests(key, clock))
        parent = get_path(key, "spec.parent") if get_path(key, "spec.type") in SERVER_ISSUED_TYPES else None
        return Credential(
            key=key,
            current_digest=value,
            previous_digests=previous,
            expiry=end,
            is_expired=expired,
            is_disabled=off,
            is_sso_login=is_sso_login(key),
            parent=parent or "",
        )

    @property
    def is_cli_login(self) -> bool:
        """Whether this is a login of the command line, whose keys are short-lived (`signin/cli_logins.py`)."""
        return is_cli_login(self.key)

    @property
    def depends_on_expiry_alone(self) -> bool:
        """Whether the key is valid until `expiry`, at least, unless an object changes."""
        return not self.previous_digests and not self.is_sso_login and not self.parent

    def needs_check(self, clock: Clock) -> bool:
        """Whether a key that `depends_on_expiry_alone` has to be checked again: activity may have extended its expiry.
        A key that was found expired stays so, also if the wall clock is set back."""
        return self.is_expired or (self.expiry is not None and self.expiry.is_reached(clock))

    def digests(self) -> Iterator[str]:
        """All digests of the key, current and previous, active or not."""
        if self.current_digest:
            yield self.current_digest
        yield from (digest for digest, _ in self.previous_digests if digest != self.current_digest)

    def matches(self, digest: str, clock: Clock) -> bool:
        """Whether the digest is that of the current value, or of a previous one that has not expired."""
        found = bool(self.current_digest) and hmac.compare_digest(self.current_digest, digest)
        for earlier, end in self.previous_digests:
            found |= hmac.compare_digest(earlier, digest) and not end.is_reached(clock)
        return found

    def is_active(self, clock: Clock, last_use: Callable[[str], LastUse | None]) -> bool:
        """Whether the key is neither disabled, nor being deleted, nor expired."""
        return not self.is_disabled and self._is_unexpired(clock, last_use)

    def supports(self, login: Object, clock: Clock, last_use: Callable[[str], LastUse | None]) -> bool:
        """Whether a login that was allowed with this key is still in force.

        The key must neither be gone nor expired, nor be a later one of the same name. A login ends as well if the value
        of the key was replaced, as its former value may have been stolen, and if the key got another scope or lost a
        group, so that the login would exceed it. A disabled key ends it, too. A login in the browser is the exception:
        it is disabled when its user signs out there, which does not end what the user has allowed.
        """
        meta = metadata(self.key)
        created = metadata(login).get("creationTimestamp") or ""
        is_later = (meta.get("creationTimestamp") or "") > created
        is_rotated = (get_path(self.key, "status.rotated") or "") >= created
        if "deletionTimestamp" in meta or is_later or is_rotated or _exceeds(login, self.key):
            return False
        if get_path(self.key, "spec.user") != get_path(login, "spec.user"):
            return False
        is_signed_out = self.is_disabled and get_path(self.key, "spec.type") in SERVER_ISSUED_TYPES
        return (is_signed_out or not self.is_disabled) and self._is_unexpired(clock, last_use)

    def _is_unexpired(self, clock: Clock, last_use: Callable[[str], LastUse | None]) -> bool:
        """An expired key stays expired."""
        if self.is_expired:
            return False
        end = self.expiry
        if end is None:
            return True
        use = last_use(metadata(self.key).get("name", "")) if is_sliding(self.key) else None
        if use is not None:
            end = end.after(use, ttl_seconds(self.key))
        self.is_expired = end.is_reached(clock)
        return not self.is_expired


def _exceeds(login: Object, key: Object) -> bool:
    """Whether a login has more rights than the key with which it was allowed."""
    scope = get_path(key, "spec.scope")
    groups = get_path(login, "spec.groups") or ()
    has_other_scope = scope is not None and scope != get_path(login, "spec.scope")
    return has_other_scope or not set(groups).issubset(get_path(key, "spec.groups") or ())


def _previous_digests(key: Object, clock: Clock) -> Iterator[tuple[str, Expiry]]:
    for each in get_path(key, "status.previous") or ():
        until = parse_rfc3339(each.get("until"))
        if until is not None:
            yield each.get("key") or "", Expiry.from_time(until, clock, MAX_OVERLAP_SECONDS)


def generate_key() -> str:
    """Generates a random key."""
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


@dataclass(frozen=True)
class Pepper:
    """The HMAC secret for digests; it is stored outside of the database."""

    secret: bytes

    def digest(self, key: str) -> str:
        """The stored form of a key. The middle part identifies the pepper, so that it can be rotated."""
        digest = self._hmac.copy()
        digest.update(key.encode())
        return self._scheme + digest.hexdigest()

    @cached_property
    def _hmac(self) -> hmac.HMAC:
        """The state after hashing the secret: half of the work, and the same for every key."""
        return hmac.new(self.secret, digestmod="sha256")

    @cached_property
    def _scheme(self) -> str:
        return f"{DIGEST_SCHEME}:{hashlib.sha256(self.secret).hexdigest()[:8]}:"


class AccessKeyAuthenticator:
    """Authenticates `Authorization: Bearer <key>`. `last_use` returns uses that are not stored yet."""

    def __init__(
        self,
        keys: Informer,
        principals: PrincipalDirectory,
        pepper: Pepper,
        clock: Clock,
        last_use: Callable[[str], LastUse | None],
    ) -> None:
        self._keys = keys
        self._principals = principals
        self._pepper = pepper
        self._clock = clock
        self._last_use = last_use
        self._by_name: dict[str, Credential] = {}
        self._by_digest: dict[str, dict[str, Credential]] = {}
        # Tokens that were authenticated since a key or a principal changed last, with their user. The keys of the cache
        # are keyed hashes with a secret of this process, so that the timing of a lookup reveals nothing about a token.
        self._token_cache = Derived(keys.view, (keys.refresh, principals.generation), _new_token_cache)
        secret = secrets.token_bytes(KEY_BYTES)
        self._token_hash = hashlib.blake2b(key=secret, digest_size=KEY_BYTES, person=b"token")
        self._header_hash = hashlib.blake2b(key=secret, digest_size=KEY_BYTES, person=b"header")
        # Makes the check of an unknown key take as long as that of a known one.
        self._dummy_credential = Credential.from_key({"spec": {"key": pepper.digest(generate_key())}}, clock, None)

    def __call__(self, call: Call) -> User | None:
        header = call.headers.find_single(b"authorization")
        mark = self.mark_header(header) if header is not None else b""
        if mark and (user := self.find_marked(mark)) is not None:
            return user
        token = bearer_token(call)
        if token is None:
            return None
        try:
            return self._authenticate_uncached(token, mark)
        except Unauthorized:
            user = self._user_of_open_stream(call)
            if user is None:
                raise
            return user

    def mark_header(self, header: bytes) -> bytes:
        """What an Authorization header is found under by `find_marked`; empty if it is too large. It says nothing about
        the header to others, and changes with each start."""
        return _keyed_hash(self._header_hash, header) if len(header) <= MAX_HEADER_BYTES else b""

    def find_marked(self, mark: bytes) -> User | None:
        """The user of a header that was authenticated before. None if any key or principal has changed since, or the
        key has to be checked again."""
        found = self._token_cache.get().get(mark)
        if found is None:
            return None
        user, credential = found
        return None if credential.needs_check(self._clock) else user

    def authenticate_token(self, token: str) -> User:
        """The user of a token. Raises Unauthorized if the key is unknown or no longer active."""
        mark = _keyed_hash(self._token_hash, token.encode())
        user = self.find_marked(mark)
        return user if user is not None else self._authenticate_uncached(token, mark)

    def _authenticate_uncached(self, token: str, cache_key: bytes) -> User:
        """An empty `cache_key` means that the result must not be cached."""
        digest = self._pepper.digest(token)
        self._sync()
        credential = self._find_by_digest(digest)
        fits = credential.matches(digest, self._clock)
        user = self._resolve_user(credential)
        if not fits or user is None:
            raise Unauthorized(INVALID_TOKEN)
        if cache_key and credential.depends_on_expiry_alone:
            self._token_cache.get()[cache_key] = user, credential
        return user

    def user_of_key(self, key: str) -> User | None:
        """The user of the key with that object name; None if there is no such key, or it is not active."""
        self._sync()
        credential = self._by_name.get(key)
        return None if credential is None else self._resolve_user(credential)

    def _user_of_open_stream(self, call: Call) -> User | None:
        """The user of a call that was authenticated before, with a key of the command line that has expired meanwhile.

        Such keys last a few minutes. An open stream, such as a terminal, lasts as long as the login.
        """
        if call.user is None:
            return None
        credential = self._by_name.get((call.user.impersonator or call.user).key)
        return self._resolve_user(credential) if credential is not None and credential.is_cli_login else None

    def _sync(self) -> None:
        for place in self._keys.pop_changed_keys():
            name = place[1]
            before = self._by_name.pop(name, None)
            for digest in before.digests() if before is not None else ():
                self._by_digest[digest].pop(name, None)
                if not self._by_digest[digest]:
                    del self._by_digest[digest]
            key = self._keys.objects.get(place)
            if key is None:
                continue
            credential = self._by_name[name] = Credential.from_key(key, self._clock, before)
            for digest in credential.digests():
                self._by_digest.setdefault(digest, {})[name] = credential

    def _find_by_digest(self, digest: str) -> Credential:
        """The key with this digest. Two keys can have the same value only after a race; then the older one counts."""
        found = self._by_digest.get(digest)
        if not found:
            return self._dummy_credential
        return next(iter(found.values())) if len(found) == 1 else min(found.values(), key=_age)

    def _resolve_user(self, credential: Credential) -> User | None:
        """The user of an active key, resolved again when a principal has changed."""
        generation = self._principals.generation()
        if credential.generation != generation:
            credential.user, credential.generation = self._build_user(credential.key), generation
        in_force = credential.is_active(self._clock, self._last_use) and self._is_support_current(credential)
        return credential.user if in_force else None

    def _is_support_current(self, credential: Credential) -> bool:
        """Whether what a key depends on is in force: single sign-ons, and the keys with which a login was allowed."""
        for _ in range(MAX_PARENTS):
            if credential.is_sso_login and not self._principals.is_session_current(credential.key, self._clock.now()):
                return False
            if not credential.parent:
                return True
            parent = self._by_name.get(credential.parent)
            if parent is None or not parent.supports(credential.key, self._clock, self._last_use):
                return False
            credential = parent
        return False

    def _build_user(self, key: Object) -> User | None:
        owner = self._resolve_owner(key)
        if owner is None:
            return None
        # A key must not add groups to a service account, above all not an admin group.
        added = () if is_account_key(key) else get_path(key, "spec.groups") or ()
        groups = dict.fromkeys((*owner.groups, *added))
        scope = Scope.parse(get_path(key, "spec.scope"))
        return replace(owner, groups=tuple(groups), key=metadata(key).get("name", ""), scope=scope)

    def _resolve_owner(self, key: Object) -> User | None:
        user, team, subject = (get_path(key, f"spec.{field}") for field in ("user", "team", "subject"))
        if user:
            found = self._principals.find_active("User", user)
            return (
                self._principals.build_user(found) if found is not None and _is_issued_for(key, found, "User") else None
            )
        if team:
            found = self._principals.find_active("Team", team)
            return (
                self._principals.build_team(found) if found is not None and _is_issued_for(key, found, "Team") else None
            )
        if is_account_key(key):
            return self._principals.service_account(subject, account_uid(key))
        return User(subject, AUTHENTICATED_GROUPS) if subject else None


def _new_token_cache() -> BoundedCache[bytes, tuple[User, Credential]]:
    return BoundedCache(TOKEN_CACHE_SIZE)


def _keyed_hash(state: "hashlib.blake2b", value: bytes) -> bytes:
    mark = state.copy()
    mark.update(value)
    return mark.digest()


def _age(credential: Credential) -> tuple[str, str]:
    meta = metadata(credential.key)
    return meta.get("creationTimestamp") or "", meta.get("name", "")


def _is_issued_for(key: Object, owner: Object, kind: str) -> bool:
    """Whether the key was issued for this owner, and not for an earlier one with the same name.

    A key without an owner reference, from an earlier version or orphaned, must be younger than its owner.
    """
    meta = metadata(owner)
    name = metadata(owner)["name"]
    references = metadata(key).get("ownerReferences") or ()
    named = [each.get("uid") for each in references if (each.get("kind"), each.get("name")) == (kind, name)]
    if named:
        return named == [meta.get("uid")]
    return (meta.get("creationTimestamp") or "") <= (metadata(key).get("creationTimestamp") or "")
