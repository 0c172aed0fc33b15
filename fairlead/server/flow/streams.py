"""How many long-running requests may be open: watches, WebSockets, and what goes on through gateways.

They hold no seats, because they hardly cost anything while nothing happens. But each is memory and a connection, and
each event costs as many times as there are watches. So they are counted by user, with all keys, sessions and
impersonated identities, whatever sort they are.

Nobody has more of them than are left for others, so that there is always room for one more user. The last part is for
administrators and for components of the platform: whoever has to look after the server must be able to.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairlead.core.errors import Details, TooManyRequests
from fairlead.core.user import User

RESERVED = 10
"""One out of so many is for administrators and components alone."""
RETRY_SECONDS = 5

IsComponent = Callable[[User], bool]


class Streams:
    """All long-running requests that are open."""

    def __init__(self, total: int, per_user: int, is_component: IsComponent = lambda user: False) -> None:
        self._total = total
        self._per_user = per_user
        self._is_component = is_component
        self._open: Counter[str] = Counter()
        self._count = 0

    def require_room(self, user: User) -> None:
        """Raises TooManyRequests where the user may not have another one."""
        real = user.impersonator or user
        is_privileged = real.is_admin or self._is_component(real)
        total = self._total if is_privileged else self._total - self._total // RESERVED
        own, free = self._open[user.payer], total - self._count
        if own >= self._per_user:
            raise _refusal(f"you have {self._per_user} watches and other streams open, which is the limit")
        if free <= 0:
            raise _refusal(f"{self._count} watches and other streams are open, as many as there may be")
        if own >= free:
            raise _refusal(f"you have {own} watches and other streams open, and others have hardly any room left")

    @contextmanager
    def counted(self, user: User) -> Iterator[None]:
        """Counts one for as long as it lasts."""
        name = user.payer
        self._open[name] += 1
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]

    @contextmanager
    def admitted(self, user: User) -> Iterator[None]:
        """The same, and asks again whether there is room: many may have been told so at the same time."""
        self.require_room(user)
        with self.counted(user):
            yield


def _refusal(why: str) -> TooManyRequests:
    message = f"{why}; close some that you do not need, or try again later"
    return TooManyRequests(message, Details(retry_after=RETRY_SECONDS))
