"""The Secrets that passwords are kept in are written by those who may set these passwords, and by nobody else.

Who may write Secrets in the server's own namespace could otherwise put a hash of their own making in the place of
somebody else's, and sign in as that user. It takes an administrator, or the right to impersonate the user; users in a
built-in admin group are for administrators only. A key with a scope is no administrator here: a password leads to keys
without one. Everybody who may delete the Secret can do that, which lets nobody in.
"""

from collections.abc import Callable

from fairlead.admission.chain import May, Rule, concerning, is_one_of
from fairlead.core.call import Target
from fairlead.core.errors import Forbidden
from fairlead.core.objects import dig, name_of
from fairlead.core.user import CONTROLLER
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

SUFFIX = "-password"
"""The Secret of a user is called after it, with this at the end; `authn/password_store.py` follows no other."""
_COUNTS = ("data", "metadata.ownerReferences")
"""What is in it, and whose it is."""


def password_secret(may: May, is_administrator: Callable[[str], bool], namespace: str) -> Rule:
    """The rule, for whoever decides what users may do, and the namespace where passwords are."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, "", "secrets"))
    async def rule(change: Change, registry: Registry) -> None:
        if not _is_password(change, namespace) or change.user == CONTROLLER:
            return
        owner = name_of(change.obj).removesuffix(SUFFIX)
        if change.user.holds_everything:
            return
        acting = Target("impersonate", "", version="v1", resource="users", name=owner)
        if is_administrator(owner) or not may(change.user, acting).allowed:
            raise _refused(change, owner)

    return rule


def _is_password(change: Change, namespace: str) -> bool:
    """Whether the change gives such a Secret another content or owner."""
    new, old = change.obj, change.old
    if dig(new, "metadata.namespace") != namespace:
        return False
    return name_of(new).endswith(SUFFIX) and (old is None or any(dig(old, path) != dig(new, path) for path in _COUNTS))


def _refused(change: Change, owner: str) -> Forbidden:
    why = (
        f'it is where the password of user "{owner}" is kept, which takes an administrator or the right to impersonate '
        "that user; set passwords through the user's profile, and call other secrets differently"
    )
    return Forbidden.of("secrets", "", name_of(change.obj), why)
