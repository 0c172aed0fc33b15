"""What a key may hand on: nobody makes, widens or rotates a key that reaches further or lives longer than their own.

Asked by minting (`admission/access_keys.py`) and by rotation (`authn/key_rotation.py`). Reasons are for people: they
say what to change.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, dig
from fairlead.core.scope import Scope, ScopeTooLarge
from fairlead.core.user import CONTROLLER, USER_GROUP, User
from fairlead.domain.key_lifetime import end_of, slides, ttl_of
from fairlead.kinds.access.access_key import OWNERS
from fairlead.registry.codec import decode
from fairlead.registry.resource import Resource

_OWNER_PATHS = ", ".join(f"spec.{field}" for field in OWNERS)

Covers = Callable[[Scope | None, Scope | None], bool]
"""Whether the first scope allows all that the second allows. Raises ScopeTooLarge."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who hands something on: as whom, and the key that they really came with. None where there is none."""

    user: User
    key: Object | None

    @property
    def is_free(self) -> bool:
        """Whether they may make keys for anybody. An administrator's key that is cut down to a scope may not."""
        return self.user.holds_everything

    @property
    def owner(self) -> tuple[str, str]:
        """The field and the name that their own keys carry."""
        if self.key is not None and self.user.impersonator is None:
            for field in OWNERS:
                if name := dig(self.key, f"spec.{field}"):
                    return field, name
        # Whom somebody acts as may not exist, or be disabled; then there is nobody whom a key could be for.
        known = self.user.impersonator is None or f"{USER_GROUP}{self.user.name}" in self.user.groups
        return "user", self.user.name if known else ""


def holder_of(user: User, keys: Resource) -> Holder:
    """Whoever asks, with the key that they came with."""
    name = (user.impersonator or user).key
    if not name:
        return Holder(user, None)
    entry = keys.peek("", name)
    if entry is None:
        raise Forbidden(f'the access key "{name}" that you came with is gone; sign in again')
    return Holder(user, decode(entry))


def overreach(holder: Holder, key: Object, covers: Covers, now: datetime) -> str | None:
    """Why the holder may not hand out this key; None if it may."""
    if holder.user == CONTROLLER:
        return None
    return _foreign(holder, key) or _wide(holder, key, covers) or _long(holder, key, now)


def _foreign(holder: Holder, key: Object) -> str | None:
    if holder.is_free:
        return None
    field, name = holder.owner
    if any(dig(key, f"spec.{each}") for each in OWNERS if each != field) or dig(key, f"spec.{field}") != name:
        return f'only administrators make keys for others; leave out all of {_OWNER_PATHS} for one of "{name}"'
    held = frozenset(dig(holder.key or {}, "spec.groups") or ())
    added = next((group for group in dig(key, "spec.groups") or () if group not in held), None)
    if added is not None:
        return f'only administrators give a key further groups; leave out "{added}" of spec.groups'
    return None


def _wide(holder: Holder, key: Object, covers: Covers) -> str | None:
    try:
        if covers(holder.user.scope, Scope.of(dig(key, "spec.scope"))):
            return None
    except ScopeTooLarge:
        return (
            f'spec.scope has too many rules to be compared with those of "{holder.user.key}", the key in use; ask for '
            "fewer, or for rules exactly as that key has them"
        )
    return f'spec.scope reaches further than the scope of "{holder.user.key}", the key in use; ask for a part of that'


def _long(holder: Holder, key: Object, now: datetime) -> str | None:
    limit = end_of(holder.key, now) if holder.key is not None else None
    if holder.key is None or limit is None:
        return None
    end, left = end_of(key, now), int((limit - now).total_seconds())
    if end is None or end > limit:
        return f"the key in use expires, and no key outlives the one it was made with: set spec.ttl to at most {left}"
    if slides(key) and not slides(holder.key):
        return "the key in use expires however much it is used: leave out spec.ttlAfterLastActivity"
    return None


def widens(old: Object, new: Object, covers: Covers) -> bool:
    """Whether a changed key can do more, or for longer, than before."""
    if dig(old, "spec.disabled") and not dig(new, "spec.disabled"):
        return True
    if set(dig(new, "spec.groups") or ()) - set(dig(old, "spec.groups") or ()):
        return True
    if _scope_widens(dig(old, "spec.scope"), dig(new, "spec.scope"), covers):
        return True
    before, after = ttl_of(old), ttl_of(new)
    return bool(before) and (not after or after > before or (slides(new) and not slides(old)))


def _scope_widens(old: Object | None, new: Object | None, covers: Covers) -> bool:
    """A scope that cannot be compared with the earlier one is held to what whoever changes it may hand on."""
    if old == new:
        return False
    try:
        return not covers(Scope.of(old), Scope.of(new))
    except ScopeTooLarge:
        return True
