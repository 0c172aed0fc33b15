"""Is this change acceptable here? The rules that need another object than the one being changed, in order."""

from collections.abc import Awaitable, Callable, Sequence

from fairlead.core.call import Target, Verdict
from fairlead.core.user import User
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

Rule = Callable[[Change, Registry], Awaitable[None]]
"""Raises to refuse; may fill in the new object and hang further writes and conditions onto the commit."""

May = Callable[[User, Target], Verdict]
"""What a rule asks that goes by the rights of whoever writes: the same as if they had sent such a request."""


class Chain:
    """The rules as one function. The registry that they look around in is handed over once it stands."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._registry: Registry | None = None

    def look_around_in(self, registry: Registry) -> None:
        self._registry = registry

    async def __call__(self, change: Change) -> None:
        if self._registry is None:
            raise RuntimeError("admission was asked before the registry stood")
        for rule in self._rules:
            await rule(change, self._registry)
