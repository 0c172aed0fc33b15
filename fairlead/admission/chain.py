"""Is this change acceptable here? The rules that need another object than the one being changed, in order.

Most rules are about a few kinds, or about one verb. They say so with `concerning`, and the chain finds out once for
each kind and verb whom it has to ask: what a write costs does not grow with the rules that do not concern it.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from fairlead.core.call import Target, Verdict
from fairlead.core.errors import ApiError, Invalid
from fairlead.core.objects import name_of
from fairlead.core.user import User
from fairlead.registry.kind import Change, Kind
from fairlead.registry.registry import Registry

Rule = Callable[[Change, Registry], Awaitable[None]]
"""Raises to refuse; may fill in the new object and hang further writes and conditions onto the commit."""

Concern = Callable[[Kind, str], bool]
"""Whether a rule is about writes with this verb (create, update, delete) to this kind. It always answers the same."""

May = Callable[[User, Target], Verdict]
"""What a rule asks that goes by the rights of whoever writes: the same as if they had sent such a request."""


@dataclass(frozen=True, slots=True)
class Concerned:
    """A rule that need not be asked about everything."""

    concerns: Concern
    judge: Rule

    async def __call__(self, change: Change, registry: Registry) -> None:
        if self.concerns(change.kind, change.verb):
            await self.judge(change, registry)


def concerning(concerns: Concern) -> Callable[[Rule], Rule]:
    """Makes a rule one that is only asked about what concerns it."""

    def limited(rule: Rule) -> Rule:
        return Concerned(concerns, rule)

    return limited


def is_one_of(kind: Kind, group: str, *plurals: str) -> bool:
    return kind.group == group and kind.plural in plurals


class Chain:
    """The rules as one function. The registry that they look around in is handed over once it stands."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._chosen: dict[tuple[str, str, str], Sequence[Rule]] = {}
        self._registry: Registry | None = None

    def look_around_in(self, registry: Registry) -> None:
        self._registry = registry

    async def __call__(self, change: Change) -> None:
        if self._registry is None:
            raise RuntimeError("admission was asked before the registry stood")
        key = change.kind.group, change.kind.plural, change.verb
        chosen = self._chosen.get(key)
        if chosen is None:
            chosen = self._chosen[key] = tuple(self._concerned(change.kind, change.verb))
        try:
            for rule in chosen:
                await rule(change, self._registry)
        except ApiError:
            raise
        except Exception:
            # Rules see objects before the schema has refused them, and may fail on a value of the wrong type.
            if change.problems:
                kind = change.kind
                raise Invalid.of(kind.name, kind.place[0], name_of(change.obj), change.problems) from None
            raise

    def _concerned(self, kind: Kind, verb: str) -> Iterator[Rule]:
        for rule in self._rules:
            if not isinstance(rule, Concerned):
                yield rule
            elif rule.concerns(kind, verb):
                yield rule.judge
