"""All authorizers together: may this user do that, and what of a list is for this user?

`app` puts the authorizers in order. Most answer from the request alone; personal ones also from a single object,
because it belongs to the user or is shared with it. Who may not list a whole resource, and stands in such a relation to
it, gets the list and the watch cut down to what it may get. Everybody else is refused. A scope is asked about the list
or watch itself, object by object: what a key may only get is in none of its lists.
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


# DOC-MERGED authz/explain
# How a decision comes about: what everyone in the chain says, in the order in which they are asked.
#
# `subresources/access_reviews.py` puts it into the answer of the platform's own access reviews, which `fairlead key explain` prints.
# It asks the same authorizers as `chain.authorize`, so the two cannot disagree.


ALLOW, DENY, NO_OPINION, NOT_ASKED = "allow", "deny", "no opinion", "not asked"
DEFAULT = "default"
"""The step that denies what nobody allows."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one of them said, and why."""

    step: str
    verdict: str
    reason: str = ""


def explain(authorizers: Sequence[Authorizer], user: User, target: Target) -> list[Step]:
    """The path of a decision. The first who has an opinion decides; where nobody has one, the last step denies."""
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
        yield Step(DEFAULT, DENY, "nobody allows it, and what nobody allows is denied")


def _step(name: str, decision: Decision | None) -> Step:
    if decision is None:
        return Step(name, NO_OPINION)
    return Step(name, ALLOW if decision.allowed else DENY, decision.reason)


def name_of(authorizer: Authorizer) -> str:
    """An authorizer is known by the function, class, or maker of functions that its source names."""
    word = str(getattr(authorizer, "__qualname__", type(authorizer).__name__)).partition(".")[0]
    return word.replace("_", " ").lower()


# DOC-MERGED authz/refusal
# A 403 in Kubernetes' words: who cannot do what where, and why. It never tells whether the object exists.


def forbidden(user: User, target: Target, decision: Decision) -> Forbidden:
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
