""""""

from collections.abc import Callable, Sequence

from fairlead.core.call import Call
from fairlead.core.errors import Unauthorized
from fairlead.core.user import User

# DOC-MERGED authn/chain
# Who are you? Authenticators are asked in order; each says "not mine", "yes, this one", or "mine, but invalid".


Authenticator = Callable[[Call], User | None]
"""The user, or None if the call carries nothing for this authenticator. Raises Unauthorized for what is invalid."""


def authenticate(authenticators: Sequence[Authenticator], call: Call) -> User:
    """The identity behind a call. That no authenticator objected is not enough: one must have said yes."""
    for authenticator in authenticators:
        user = authenticator(call)
        if user is not None:
            return user
    raise Unauthorized
