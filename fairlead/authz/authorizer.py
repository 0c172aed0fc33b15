"""The authorizer of the server: combines all authorizers, filters lists and watches, and explains decisions.

`app/auth.py` puts the authorizers in order. Most decide from the request alone; object authorizers also decide from the
object, because the user owns it or it is shared with the user. A user who may not list a whole resource, but may get
some of its objects that way, gets a filtered list or watch; other users get 403. A scope must allow the list or watch
itself for each object: objects that a key may only get are not in its lists.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fairlead.core.call import MANAGEMENT, NAMESPACE_RESOURCE, Authorize, Decision, RequestInfo
from fairlead.core.errors import AUTHORIZATION, SCOPE, Details, Forbidden, qualified_resource, quote_value
from fairlead.core.user import User
from fairlead.storage.view.view import Entry

Authorizer = Callable[[User, RequestInfo], Decision | None]
"""A decision, or None for no opinion."""

FILTERED_VERBS = ("list", "watch")


def first_decision(authorizers: Sequence[Authorizer], user: User, target: RequestInfo) -> Decision:
    """The decision of the first authorizer with an opinion; deny if there is none."""
    for authorizer in authorizers:
        decision = authorizer(user, target)
        if decision is not None:
            return decision
    return _DENY


_DENY = Decision(False)


def administrators(user: User, target: RequestInfo) -> Decision | None:
    """Allows everything to members of the built-in admin groups."""
    return _ALLOW_ADMIN if user.is_admin else None


_ALLOW_ADMIN = Decision(True, "member of a built-in admin group")


class ObjectAuthorizer(Protocol):
    """An authorizer that can also decide from the content of an object."""

    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        """Like any authorizer; looks up the object itself."""

    def authorize_object(self, user: User, target: RequestInfo, entry: Entry) -> Decision | None:
        """The same, for a given state of the object that the target names."""

    def may_see_some(self, user: User, target: RequestInfo) -> bool:
        """Whether the user may get some objects of the resource, so that a list or watch is filtered, not denied."""


@dataclass(frozen=True, slots=True)
class ScopeChecks:
    """The scope checks. `within_scope` is the first authorizer and denies requests outside of the user's scope.
    `is_within_scope` is the same check without a reason. `overlaps` says whether a scope allows anything of a
    resource."""

    within_scope: Authorizer
    is_within_scope: Callable[[User, RequestInfo], bool]
    overlaps: Callable[[User, RequestInfo], bool]


class AuthorizerChain:
    """Authorizes requests. Each of `generations` returns a value that changes when permissions may have changed."""

    def __init__(
        self,
        general: Sequence[Authorizer],
        object_authorizers: Sequence[ObjectAuthorizer] = (),
        scope_checks: ScopeChecks | None = None,
        generations: Sequence[Callable[[], object]] = (),
    ) -> None:
        first = () if scope_checks is None else (scope_checks.within_scope,)
        self.general = general
        self.object_authorizers = object_authorizers
        self._unscoped: tuple[Authorizer, ...] = (*general, *object_authorizers)
        self.authorizers: tuple[Authorizer, ...] = (*first, *self._unscoped)
        self._scope_checks = scope_checks
        self._generations = generations

    def authorize(self, user: User, target: RequestInfo) -> Decision:
        for authorizer in self._unscoped if user.scope is None else self.authorizers:
            decision = authorizer(user, target)
            if decision is not None:
                return decision
        return _DENY

    def generation(self) -> object:
        return tuple(each() for each in self._generations)

    def filter_for(self, user: User, target: RequestInfo) -> "ListFilter | None":
        """The filter for a list or watch that was denied as a whole; None if it stays denied."""
        if target.verb not in FILTERED_VERBS or target.subresource or target.gateway is not None:
            return None
        if target.name:
            personal = self.is_within_scope(user, target) and self._is_allowed_by_object(
                user, replace(target, verb="get")
            )
            return ListFilter(self, user, target) if personal else None
        if user.scope is not None and (self._scope_checks is None or not self._scope_checks.overlaps(user, target)):
            return None
        may_see_some = any(each.may_see_some(user, target) for each in self.object_authorizers)
        if not may_see_some and (user.scope is None or not self.authorize(replace(user, scope=None), target).allowed):
            return None
        return ListFilter(self, user, target)

    def is_within_scope(self, user: User, target: RequestInfo) -> bool:
        """Whether a request is within the scope of the user's key."""
        return user.scope is None or self._scope_checks is None or self._scope_checks.is_within_scope(user, target)

    def _is_allowed_by_object(self, user: User, target: RequestInfo) -> bool:
        """Whether an object authorizer allows the request and no other authorizer denies it."""
        for authorizer in self.general:
            decision = authorizer(user, target)
            if decision is not None and not decision.allowed:
                return False
        return first_decision(self.object_authorizers, user, target).allowed


@dataclass(frozen=True, slots=True)
class ListFilter:
    """Filters a list or watch: keeps the objects that the user may get and that the scope allows to list or watch."""

    chain: AuthorizerChain
    user: User
    target: RequestInfo

    def allows(self, entry: Entry) -> bool:
        group, plural, namespace, name = entry.key
        if (group, plural) == NAMESPACE_RESOURCE:
            namespace = name  # as in the path of a request for a namespace
        if self.user.scope is not None:
            listed = replace(self.target, namespace=namespace, name=name, path="")
            if not self.chain.is_within_scope(self.user, listed):
                return False
        target = replace(self.target, verb="get", namespace=namespace, name=name, path="")
        for authorizer in self.chain.general:
            decision = authorizer(self.user, target)
            if decision is not None:
                return decision.allowed
        decisions = (each.authorize_object(self.user, target, entry) for each in self.chain.object_authorizers)
        return any(decision is not None and decision.allowed for decision in decisions)

    def generation(self) -> object:
        return self.chain.generation()


ALLOW, DENY, NO_OPINION, NOT_EVALUATED = "allow", "deny", "no opinion", "not evaluated"
DEFAULT_STEP = "default"
"""The last step, which denies if no authorizer had an opinion."""


@dataclass(frozen=True, slots=True)
class ExplainStep:
    """The verdict of one authorizer, and its reason."""

    step: str
    verdict: str
    reason: str = ""


def explain(authorizers: Sequence[Authorizer], user: User, target: RequestInfo) -> list[ExplainStep]:
    """The verdicts of all authorizers in order, for access reviews (`subresources/access_reviews.py`).

    Runs the same authorizers as `first_decision`, so the two cannot disagree.
    """
    return list(_explain_steps(authorizers, user, target))


def _explain_steps(authorizers: Sequence[Authorizer], user: User, target: RequestInfo) -> Iterator[ExplainStep]:
    decided = False
    for authorizer in authorizers:
        name = step_name(authorizer)
        if decided:
            yield ExplainStep(name, NOT_EVALUATED)
            continue
        decision = authorizer(user, target)
        yield _build_step(name, decision)
        decided = decision is not None
    if not decided:
        yield ExplainStep(DEFAULT_STEP, DENY, "no authorizer allows it, and the default is deny")


def _build_step(name: str, decision: Decision | None) -> ExplainStep:
    if decision is None:
        return ExplainStep(name, NO_OPINION)
    return ExplainStep(name, ALLOW if decision.allowed else DENY, decision.reason)


def step_name(authorizer: Authorizer) -> str:
    """The name of a step, from the class, function or factory: `ProjectMemberAuthorizer` is "project member"."""
    name = str(getattr(authorizer, "__qualname__", type(authorizer).__name__)).partition(".")[0]
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
    return " ".join(word for word in words if word != "authorizer")


def forbidden_error(user: User, target: RequestInfo, decision: Decision) -> Forbidden:
    """The 403 error with the wording of Kubernetes. It does not reveal whether the object exists."""
    reason = decision.reason
    refused_by = SCOPE if decision.is_about_scope else AUTHORIZATION
    if target.gateway is not None and not decision.is_about_inner:
        target = target.gateway
    if not target.is_resource:
        message = f'forbidden: User "{user.name}" cannot {target.verb} path "{target.path}"'
        return Forbidden(f"{message}: {reason}" if reason else message, refused_by=refused_by)
    resource = f"{target.resource}/{target.subresource}" if target.subresource else target.resource
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    what = f"{qualified_resource(target.resource, target.group)}{f' {quote_value(target.name)}' if target.name else ''}"
    who = f'User "{user.name}" cannot {target.verb} resource "{resource}" in API group "{target.group}" {where}'
    message = f"{what} is forbidden: {who}"
    details = Details(target.name, target.group, target.resource)
    return Forbidden(f"{message}: {reason}" if reason else message, details, refused_by)


# --- gateway access ---
# Authorizes requests through a gateway: they need the verb `use` on the cluster, space or virtual cluster.
#
# Runs right after the scope authorizer, which has checked the inner request. The remote cluster authorizes the inner
# request itself. Rules about our own objects must never apply to it, so this authorizer decides all gateway
# requests.


def gateway_authorizer(authorize: Authorize) -> Authorizer:
    """`authorize` is the whole chain, of which this one is a part. It authorizes `use` on the gateway's resource."""

    def authorizer(user: User, target: RequestInfo) -> Decision | None:
        if target.gateway is None:
            return None
        owner = user if user.scope is None else replace(user, scope=None)
        return authorize(owner, replace(target.gateway, root=MANAGEMENT, path=""))

    return authorizer
