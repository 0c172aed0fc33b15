""""""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairlead.core.call import Target
from fairlead.core.user import User

# DOC-MERGED authz/chain
# May you? Authorizers are asked in order; each allows, denies, or has no opinion. What nobody allows is denied.


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer with its reason.

    `is_inside` says of a request through a gateway that the answer is about what was asked behind it, and not about
    passing the gateway.
    """

    allowed: bool
    reason: str = ""
    is_inside: bool = False


Authorizer = Callable[[User, Target], Decision | None]
"""A decision, or None for no opinion."""

Decide = Callable[[User, Target], Decision]
"""All of them together: there is always an answer."""


def authorize(authorizers: Sequence[Authorizer], user: User, target: Target) -> Decision:
    for authorizer in authorizers:
        decision = authorizer(user, target)
        if decision is not None:
            return decision
    return Decision(False)


def administrators(user: User, target: Target) -> Decision | None:
    """The built-in admin groups may do everything."""
    return _ADMINISTRATOR if user.is_admin else None


_ADMINISTRATOR = Decision(True, "member of a built-in admin group")
