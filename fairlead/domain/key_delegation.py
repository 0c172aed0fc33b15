"""Which access keys a requester may create, extend or rotate: none with more access or a longer life than their own
key.

Used when keys are issued (`admission/access_keys.py`) and rotated (`authn/key_rotation.py`). The reasons are shown to
users and say what to change.
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
"""Whether the first scope allows everything that the second allows. Raises ScopeTooLarge."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The requester, and the key that authenticated the request. `key` is None for other credentials."""

    user: User
    key: Object | None

    @property
    def is_free(self) -> bool:
        """Whether the requester may create keys for any owner. An administrator with a scoped key may not."""
        return self.user.holds_everything

    @property
    def owner(self) -> tuple[str, str]:
        """The field and the name that identify the owner of the requester's own keys."""
        if self.key is not None and self.user.impersonator is None:
            for field in OWNERS:
                if name := dig(self.key, f"spec.{field}"):
                    return field, name
        # An impersonated user may not exist, or be disabled. Then no key can be issued.
        is_active = self.user.impersonator is None or f"{USER_GROUP}{self.user.name}" in self.user.groups
        return "user", self.user.name if is_active else ""


def holder_of(user: User, keys: Resource) -> Holder:
    """The requester with the key that authenticated the request."""
    name = (user.impersonator or user).key
    if not name:
        return Holder(user, None)
    entry = keys.peek("", name)
    if entry is None:
        raise Forbidden(f'the access key "{name}" of this request no longer exists; sign in again')
    return Holder(user, decode(entry))


def overreach(holder: Holder, key: Object, covers: Covers, now: datetime) -> str | None:
    """The reason why the requester may not issue this key; None if they may."""
    if holder.user == CONTROLLER:
        return None
    return _foreign(holder, key) or _wide(holder, key, covers) or _long(holder, key, now)


def _foreign(holder: Holder, key: Object) -> str | None:
    if holder.is_free:
        return None
    field, name = holder.owner
    if any(dig(key, f"spec.{each}") for each in OWNERS if each != field) or dig(key, f"spec.{field}") != name:
        return f'only administrators can create keys for others; omit {_OWNER_PATHS} to create one for "{name}"'
    own_groups = frozenset(dig(holder.key or {}, "spec.groups") or ())
    added = next((group for group in dig(key, "spec.groups") or () if group not in own_groups), None)
    if added is not None:
        return f'only administrators can add groups to a key; remove "{added}" from spec.groups'
    return None


def _wide(holder: Holder, key: Object, covers: Covers) -> str | None:
    try:
        if covers(holder.user.scope, Scope.of(dig(key, "spec.scope"))):
            return None
    except ScopeTooLarge:
        return (
            f'spec.scope has too many rules to be compared with those of "{holder.user.key}", the key in use; use '
            "fewer rules, or exactly the rules of that key"
        )
    return f'spec.scope exceeds the scope of "{holder.user.key}", the key in use; narrow it down'


def _long(holder: Holder, key: Object, now: datetime) -> str | None:
    limit = end_of(holder.key, now) if holder.key is not None else None
    if holder.key is None or limit is None:
        return None
    end, left = end_of(key, now), int((limit - now).total_seconds())
    if end is None or end > limit:
        return f"the key in use expires, and no key outlives the one that issued it: set spec.ttl to at most {left}"
    if slides(key) and not slides(holder.key):
        return "the key in use has a fixed expiry, which activity does not extend: omit spec.ttlAfterLastActivity"
    return None


def widens(old: Object, new: Object, covers: Covers) -> bool:
    """Whether a change gives a key more access or a longer life."""
    if dig(old, "spec.disabled") and not dig(new, "spec.disabled"):
        return True
    if set(dig(new, "spec.groups") or ()) - set(dig(old, "spec.groups") or ()):
        return True
    if _scope_widens(dig(old, "spec.scope"), dig(new, "spec.scope"), covers):
        return True
    before, after = ttl_of(old), ttl_of(new)
    return bool(before) and (not after or after > before or (slides(new) and not slides(old)))


def _scope_widens(old: Object | None, new: Object | None, covers: Covers) -> bool:
    """Whether the new scope allows more. A scope that is too large to compare counts as wider."""
    if old == new:
        return False
    try:
        return not covers(Scope.of(old), Scope.of(new))
    except ScopeTooLarge:
        return True
