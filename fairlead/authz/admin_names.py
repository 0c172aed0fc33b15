"""Which users are in a built-in admin group, by name: what makes one of them, or lets in as one, is for their like.

Impersonation and the rule about passwords ask here. Users who are disabled count, too: they may be enabled again.
"""

from fairlead.core.objects import dig
from fairlead.core.user import ADMIN_GROUPS
from fairlead.registry.record import decode
from fairlead.storage.view import View

USERS = "users"


class AdminNames:
    """Whether the user of a name is in a built-in admin group; looked up as it is now."""

    def __init__(self, api_group: str, view: View) -> None:
        self._group = api_group
        self._view = view

    def __call__(self, name: str) -> bool:
        entry = self._view.get((self._group, USERS, "", name))
        return entry is not None and not ADMIN_GROUPS.isdisjoint(dig(decode(entry), "spec.groups") or ())
