"""Which access keys a requester may create, extend or rotate: none with more access or a longer life than their own
key.

Used when keys are issued (`admission/access_keys.py`) and rotated (`authn/key_rotation.py`). The reasons are shown to
users and say what to change.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, get_path
from fairlead.core.scope import Scope, ScopeTooLarge
from fairlead.core.user import CONTROLLER_USER, USER_GROUP_PREFIX, User
from fairlead.domain.key_lifetime import KEY_OWNER_FIELDS, expires_at, is_sliding, ttl_seconds
from fairlead.registry.codec import decode
from fairlead.registry.resource import Resource

_OWNER_PATHS = ", ".join(f"spec.{field}" for field in KEY_OWNER_FIELDS)

ScopeCovers = Callable[[Scope | None, Scope | None], bool]
"""Whether the first scope allows everything that the second allows. Raises ScopeTooLarge."""


@dataclass(frozen=True, slots=True)
class Delegator:
    """The requester, and the key that authenticated the request. `key` is None for other credentials."""

    user: User
    key: Object | None

    @property
    def is_unscoped_admin(self) -> bool:
        """Whether the requester may create keys for any owner. An administrator with a scoped key may not."""
        return self.user.is_unscoped_admin

    @property
    def owner(self) -> tuple[str, str]:
        """The field and the name that identify the owner of the requester's own keys."""
        if self.key is not None and self.user.impersonator is None:
            for field in KEY_OWNER_FIELDS:
                if name := get_path(self.key, f"spec.{field}"):
                    return field, name
        # An impersonated user may not exist, or be disabled. Then no key can be issued.
        is_active = self.user.impersonator is None or f"{USER_GROUP_PREFIX}{self.user.name}" in self.user.groups
        return "user", self.user.name if is_active else ""


def delegator_for(user: User, keys: Resource) -> Delegator:
    """The requester with the key that authenticated the request."""
    name = (user.impersonator or user).key
    if not name:
        return Delegator(user, None)
    entry = keys.get_cached("", name)
    if entry is None:
        raise Forbidden(f'the access key "{name}" of this request no longer exists; sign in again')
    return Delegator(user, decode(entry))


def delegation_problem(delegator: Delegator, key: Object, covers: ScopeCovers, now: datetime) -> str | None:
    """The reason why the requester may not issue this key; None if they may."""
    if delegator.user == CONTROLLER_USER:
        return None
    return (
        _owner_problem(delegator, key)
        or _scope_problem(delegator, key, covers)
        or _lifetime_problem(delegator, key, now)
    )


def _owner_problem(delegator: Delegator, key: Object) -> str | None:
    if delegator.is_unscoped_admin:
        return None
    field, name = delegator.owner
    if (
        any(get_path(key, f"spec.{each}") for each in KEY_OWNER_FIELDS if each != field)
        or get_path(key, f"spec.{field}") != name
    ):
        return f'only administrators can create keys for others; omit {_OWNER_PATHS} to create one for "{name}"'
    own_groups = frozenset(get_path(delegator.key or {}, "spec.groups") or ())
    added = next((group for group in get_path(key, "spec.groups") or () if group not in own_groups), None)
    if added is not None:
        return f'only administrators can add groups to a key; remove "{added}" from spec.groups'
    return None


def _scope_problem(delegator: Delegator, key: Object, covers: ScopeCovers) -> str | None:
    if delegator.user.scope is None:
        return None  # without parsing the other one, which may be large
    try:
        if covers(delegator.user.scope, Scope.parse(get_path(key, "spec.scope"))):
            return None
    except ScopeTooLarge:
        return (
            f'spec.scope has too many rules to be compared with those of "{delegator.user.key}", the key in use; use '
            "fewer rules, or exactly the rules of that key"
        )
    return f'spec.scope exceeds the scope of "{delegator.user.key}", the key in use; narrow it down'


def _lifetime_problem(delegator: Delegator, key: Object, now: datetime) -> str | None:
    limit = expires_at(delegator.key, now) if delegator.key is not None else None
    if delegator.key is None or limit is None:
        return None
    end = expires_at(key, now)
    left = int((limit - now).total_seconds())
    if end is None or end > limit:
        return f"the key in use expires, and no key outlives the one that issued it: set spec.ttl to at most {left}"
    if is_sliding(key) and not is_sliding(delegator.key):
        return "the key in use has a fixed expiry, which activity does not extend: omit spec.ttlAfterLastActivity"
    return None


def is_widening(old: Object, new: Object, covers: ScopeCovers) -> bool:
    """Whether a change gives a key more access or a longer life."""
    if get_path(old, "spec.disabled") and not get_path(new, "spec.disabled"):
        return True
    if set(get_path(new, "spec.groups") or ()) - set(get_path(old, "spec.groups") or ()):
        return True
    if _is_scope_widening(get_path(old, "spec.scope"), get_path(new, "spec.scope"), covers):
        return True
    before = ttl_seconds(old)
    after = ttl_seconds(new)
    return bool(before) and (not after or after > before or (is_sliding(new) and not is_sliding(old)))


def _is_scope_widening(old: Object | None, new: Object | None, covers: ScopeCovers) -> bool:
    """Whether the new scope allows more. A scope that is too large to compare counts as wider."""
    if old == new:
        return False
    try:
        return not covers(Scope.parse(old), Scope.parse(new))
    except ScopeTooLarge:
        return True
