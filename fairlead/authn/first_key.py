"""The key of the first administrator: it is for setting up another way in, and expires after a day without one.

Its annotation says when. The key itself has no TTL: no key may create one that outlives it, and this one has to. Keys
from before this rule have no annotation, and do not expire. `controllers/access/access_keys.py` enforces it.
"""

from collections.abc import Callable

from fairlead.authn.principals import PrincipalDirectory
from fairlead.core.objects import Object, get_path, metadata
from fairlead.domain.key_lifetime import temporary_until, ttl_seconds
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY, key_usage_index
from fairlead.registry.codec import decode
from fairlead.storage.view.view import View

FIRST_KEY_SECONDS = 24 * 3600
PERMANENT_TYPES = frozenset({None, "", "User", "Other"})


class OtherAdminAccess:
    """Whether an administrator can get in without the first key: with another key that does not expire, a password, or
    single sign-on. Disabled users do not count, and neither do keys with a scope."""

    def __init__(
        self, view: View, api_group: str, principals: PrincipalDirectory, is_password_enabled: Callable[[], bool]
    ) -> None:
        self._view = view
        self._group = api_group
        self._owned = key_usage_index(view, api_group)
        self._principals = principals
        self._is_password_enabled = is_password_enabled

    def __call__(self, first_key: str) -> bool:
        admins = [obj for obj, user in self._principals.list_users() if user.is_admin]
        return any(self._can_sign_in(admin) or self._has_key(admin, first_key) for admin in admins)

    def _can_sign_in(self, admin: Object) -> bool:
        has_password = bool(get_path(admin, "spec.passwordRef")) and self._is_password_enabled()
        return has_password or bool(get_path(admin, "spec.issuer") and get_path(admin, "spec.subject"))

    def _has_key(self, admin: Object, first_key: str) -> bool:
        names = (key[3] for key in self._owned.get(("user", metadata(admin)["name"])))
        entries = (
            self._view.get((self._group, OWNED_ACCESS_KEY.plural, "", name)) for name in names if name != first_key
        )
        return any(_is_permanent(decode(entry)) for entry in entries if entry is not None)


def _is_permanent(key: Object) -> bool:
    spec = key.get("spec") or {}
    ended = spec.get("disabled") or get_path(key, "status.expired") or "deletionTimestamp" in metadata(key)
    is_limited = ttl_seconds(key) or spec.get("scope") is not None or temporary_until(key) is not None
    return not ended and not is_limited and spec.get("type") in PERMANENT_TYPES
