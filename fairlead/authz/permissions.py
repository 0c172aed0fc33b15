"""All authorizers together: may this user do that, and what of a list is for this user?

`app` puts the authorizers in order. Most answer from the request alone; personal ones also from a single object,
because it belongs to the user or is shared with it. Who may not list a whole resource, and stands in such a relation to
it, gets the list and the watch cut down to what it may get. Everybody else is refused. A scope is asked about the list
or watch itself, object by object: what a key may only get is in none of its lists.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fairlead.authz.chain import Authorizer, Decision, authorize
from fairlead.core.call import NAMESPACES, Target
from fairlead.core.user import User
from fairlead.storage.view import Entry

CUT_VERBS = ("list", "watch")


class Personal(Protocol):
    """An authorizer that knows whose an object is."""

    def __call__(self, user: User, target: Target) -> Decision | None:
        """As any authorizer; it looks the object up by itself."""

    def of(self, user: User, target: Target, entry: Entry) -> Decision | None:
        """The same about one state of the object that the target names."""

    def stands(self, user: User, target: Target) -> bool:
        """Whether a list or watch of this resource may hold something for the user, so that it is cut, not refused."""


@dataclass(frozen=True, slots=True)
class Scoping:
    """What the scopes of access keys say. `within` refuses what is outside of a user's scope and is asked first;
    `is_inside` says the same without a reason, and `touches` whether a scope reaches a resource at all."""

    within: Authorizer
    is_inside: Callable[[User, Target], bool]
    touches: Callable[[User, Target], bool]


class Permissions:
    """Who may do what. `generations` are what permissions are made of: each says by another value that it has
    changed."""

    def __init__(
        self,
        general: Sequence[Authorizer],
        personal: Sequence[Personal] = (),
        scoping: Scoping | None = None,
        generations: Sequence[Callable[[], object]] = (),
    ) -> None:
        first = () if scoping is None else (scoping.within,)
        self.general = general
        self.personal = personal
        self.authorizers: tuple[Authorizer, ...] = (*first, *general, *personal)
        self._scoping = scoping
        self._generations = generations

    def decide(self, user: User, target: Target) -> Decision:
        return authorize(self.authorizers, user, target)

    def generation(self) -> object:
        return tuple(each() for each in self._generations)

    def cut(self, user: User, target: Target) -> "Cut | None":
        """How to cut a list or watch that was not allowed as a whole; None where it stays refused."""
        if target.verb not in CUT_VERBS or target.subresource or target.via is not None:
            return None
        if target.name:
            personal = self.is_inside(user, target) and self._is_personal(user, replace(target, verb="get"))
            return Cut(self, user, target) if personal else None
        if user.scope is not None and (self._scoping is None or not self._scoping.touches(user, target)):
            return None
        stands = any(each.stands(user, target) for each in self.personal)
        if not stands and (user.scope is None or not self.decide(replace(user, scope=None), target).allowed):
            return None
        return Cut(self, user, target)

    def is_inside(self, user: User, target: Target) -> bool:
        """Whether the scope of the user's key leaves a request to the user's rights."""
        return user.scope is None or self._scoping is None or self._scoping.is_inside(user, target)

    def _is_personal(self, user: User, target: Target) -> bool:
        """Whether an object is the user's own, or shared with it, and nothing stands against that."""
        for authorizer in self.general:
            decision = authorizer(user, target)
            if decision is not None and not decision.allowed:
                return False
        return authorize(self.personal, user, target).allowed


@dataclass(frozen=True, slots=True)
class Cut:
    """What one user sees of one resource: those objects that it may get, and that its scope lets it list or watch."""

    permissions: Permissions
    user: User
    target: Target

    def sees(self, entry: Entry) -> bool:
        group, plural, namespace, name = entry.key
        if (group, plural) == NAMESPACES:
            namespace = name  # as in the path of a request for a namespace
        if self.user.scope is not None:
            listed = replace(self.target, namespace=namespace, name=name, path="")
            if not self.permissions.is_inside(self.user, listed):
                return False
        target = replace(self.target, verb="get", namespace=namespace, name=name, path="")
        for authorizer in self.permissions.general:
            decision = authorizer(self.user, target)
            if decision is not None:
                return decision.allowed
        decisions = (each.of(self.user, target, entry) for each in self.permissions.personal)
        return any(decision is not None and decision.allowed for decision in decisions)

    def generation(self) -> object:
        return self.permissions.generation()
