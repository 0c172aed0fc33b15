"""The authorizer of the server: combines all authorizers, filters lists and watches, and explains decisions.

`app/auth.py` puts the authorizers in order. Most decide from the request alone; object authorizers also decide from the
object, because the user owns it or it is shared with the user. A user who may not list a whole resource, but may get
some of its objects that way, gets a filtered list or watch; other users get 403. A scope must allow the list or watch
itself for each object: objects that a key may only get are not in its lists.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fairlead.authz import Authorizer, Decision, authorize
from fairlead.core.call import NAMESPACES, Target
from fairlead.core.errors import Details, Forbidden, qualified, shown
from fairlead.core.user import User
from fairlead.storage.view.view import Entry

CUT_VERBS = ("list", "watch")


class Personal(Protocol):
    """An authorizer that can also decide from the content of an object."""

    def __call__(self, user: User, target: Target) -> Decision | None:
        """Like any authorizer; looks up the object itself."""

    def of(self, user: User, target: Target, entry: Entry) -> Decision | None:
        """The same, for a given state of the object that the target names."""

    def stands(self, user: User, target: Target) -> bool:
        """Whether the user may get some objects of the resource, so that a list or watch is filtered, not denied."""


@dataclass(frozen=True, slots=True)
class Scoping:
    """The scope checks. `within_scope` is the first authorizer and denies requests outside of the user's scope.
    `is_within_scope` is the same check without a reason. `overlaps` says whether a scope allows anything of a
    resource."""

    within: Authorizer
    is_inside: Callable[[User, Target], bool]
    touches: Callable[[User, Target], bool]


class Permissions:
    """Authorizes requests. Each of `generations` returns a value that changes when permissions may have changed."""

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
        """The filter for a list or watch that was denied as a whole; None if it stays denied."""
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
        """Whether a request is within the scope of the user's key."""
        return user.scope is None or self._scoping is None or self._scoping.is_inside(user, target)

    def _is_personal(self, user: User, target: Target) -> bool:
        """Whether an object authorizer allows the request and no other authorizer denies it."""
        for authorizer in self.general:
            decision = authorizer(user, target)
            if decision is not None and not decision.allowed:
                return False
        return authorize(self.personal, user, target).allowed


@dataclass(frozen=True, slots=True)
class Cut:
    """Filters a list or watch: keeps the objects that the user may get and that the scope allows to list or watch."""

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


ALLOW, DENY, NO_OPINION, NOT_ASKED = "allow", "deny", "no opinion", "not asked"
DEFAULT = "default"
"""The last step, which denies if no authorizer had an opinion."""


@dataclass(frozen=True, slots=True)
class Step:
    """The verdict of one authorizer, and its reason."""

    step: str
    verdict: str
    reason: str = ""


def explain(authorizers: Sequence[Authorizer], user: User, target: Target) -> list[Step]:
    """The verdicts of all authorizers in order, for access reviews (`subresources/access_reviews.py`).

    Runs the same authorizers as `authorize`, so the two cannot disagree.
    """
    return list(_steps(authorizers, user, target))


def _steps(authorizers: Sequence[Authorizer], user: User, target: Target) -> Iterator[Step]:
    decided = False
    for authorizer in authorizers:
        name = name_of(authorizer)
        if decided:
            yield Step(name, NOT_ASKED)
            continue
        decision = authorizer(user, target)
        yield _step(name, decision)
        decided = decision is not None
    if not decided:
        yield Step(DEFAULT, DENY, "no authorizer allows it, and the default is deny")


def _step(name: str, decision: Decision | None) -> Step:
    if decision is None:
        return Step(name, NO_OPINION)
    return Step(name, ALLOW if decision.allowed else DENY, decision.reason)


def name_of(authorizer: Authorizer) -> str:
    """The name of a step: that of the authorizer's class, function, or factory function."""
    word = str(getattr(authorizer, "__qualname__", type(authorizer).__name__)).partition(".")[0]
    return word.replace("_", " ").lower()


def forbidden(user: User, target: Target, decision: Decision) -> Forbidden:
    """The 403 error with the wording of Kubernetes. It does not reveal whether the object exists."""
    reason = decision.reason
    if target.via is not None and not decision.is_inside:
        target = target.via
    if not target.is_resource:
        message = f'forbidden: User "{user.name}" cannot {target.verb} path "{target.path}"'
        return Forbidden(f"{message}: {reason}" if reason else message)
    resource = f"{target.resource}/{target.subresource}" if target.subresource else target.resource
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    what = f"{qualified(target.resource, target.group)}{f' {shown(target.name)}' if target.name else ''}"
    who = f'User "{user.name}" cannot {target.verb} resource "{resource}" in API group "{target.group}" {where}'
    message = f"{what} is forbidden: {who}"
    details = Details(target.name, target.group, target.resource)
    return Forbidden(f"{message}: {reason}" if reason else message, details)
