"""Admission: checks a write against other objects before it is committed, and fills in defaults.

`app/admission.py` puts the rules in order. What can be checked on the object alone is validation
(`registry/validate.py`), not admission.

    namespaces, projects, allow_lists, quotas   where objects may be created, what they may use, how many there may be
    instances, templates                        spaces, virtual clusters, workspaces, and the templates they use
    users, access_keys, access_key_limits       principals and their credentials
    escalation, rbac_coverage                   privilege escalation prevention: RBAC, owners, access entries, members
    owner_references, secret_refs               references to other objects
    protected_objects, protected_fields         metadata, status and Secrets that only the server may write
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
"""Raises to reject the write. May change the new object and add writes and preconditions to the commit."""

Concern = Callable[[Kind, str], bool]
"""Whether a rule applies to a verb (create, update, delete) on a kind. Must be deterministic: the result is cached."""

May = Callable[[User, Target], Verdict]
"""Authorizes a request on behalf of the requester, as if they had sent it over HTTP."""


@dataclass(frozen=True, slots=True)
class Concerned:
    """A rule that applies only to some kinds and verbs."""

    concerns: Concern
    judge: Rule

    async def __call__(self, change: Change, registry: Registry) -> None:
        if self.concerns(change.kind, change.verb):
            await self.judge(change, registry)


def concerning(concerns: Concern) -> Callable[[Rule], Rule]:
    """Decorator that restricts a rule to the kinds and verbs accepted by the filter."""

    def limited(rule: Rule) -> Rule:
        return Concerned(concerns, rule)

    return limited


def is_one_of(kind: Kind, group: str, *plurals: str) -> bool:
    return kind.group == group and kind.plural in plurals


class Chain:
    """Runs the admission rules in order.

    Which rules apply is computed once per kind and verb, so rules that do not apply cost a write nothing. The registry
    itself needs the chain, so it is set after construction with `bind_registry`.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._chosen: dict[tuple[str, str, str], Sequence[Rule]] = {}
        self._registry: Registry | None = None

    def look_around_in(self, registry: Registry) -> None:
        self._registry = registry

    async def __call__(self, change: Change) -> None:
        if self._registry is None:
            raise RuntimeError("admission was called before bind_registry")
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
            # Rules see objects before the schema rejects them, and may fail on a value of the wrong type.
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
