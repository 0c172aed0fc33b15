"""Authorization of requests that the aggregation layer of a kube-apiserver, the host, forwards.

The host has authenticated the user, and authorizes a request before it forwards it. Nothing here relies on that: its
own requests are not authorized, and a front proxy need not be a kube-apiserver. Depending on the setting, the
permissions of this server decide, or those of the host, which is asked with a SubjectAccessReview. Members of
`system:masters` may do everything, as there.

Only requests for the management group and for the documents about it are the host's business. Other groups of this API,
such as ConfigMaps, have nothing to do with those of the host. So the permissions of this server decide about them. The
same holds for service accounts of this server, as whom administrators may act: the host has others of the same name.

Controllers of the host look at all resources of an APIService:

- The namespace controller deletes the objects of a namespace that is deleted. Namespaces of the host and of this server
  are different things, which may have the same name. So it is shown that there is nothing to delete: otherwise it would
  delete the objects of a project, or namespaces of the host could not be deleted.
- The garbage collector and the quota controller watch the metadata of all objects. If they cannot, they do not work in
  the host either.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from fairlead.authz.authorizer import forbidden_error
from fairlead.core.call import MANAGEMENT, Call, Decision, RequestInfo
from fairlead.core.clock import Clock
from fairlead.core.errors import Forbidden, Unavailable
from fairlead.core.user import HOST_PREFIX, User, is_own_account
from fairlead.server.api.aggregation import is_aggregated
from fairlead.server.api.content import negotiate
from fairlead.server.auth.stages import AuthorizeStage

MASTERS = "system:masters"
CONTROLLER_MANAGER = "system:kube-controller-manager"
"""The user of all controllers of the host, if they have no service accounts of their own."""
_ACCOUNT = f"{HOST_PREFIX}system:serviceaccount:kube-system:"
NAMESPACE_CONTROLLER = f"{_ACCOUNT}namespace-controller"
WATCHING_CONTROLLERS = frozenset(
    {f"{_ACCOUNT}generic-garbage-collector", f"{_ACCOUNT}resourcequota-controller", CONTROLLER_MANAGER}
)
CONTROLLER_MANAGER_AGENT = "kube-controller-manager/"
METADATA_KINDS = frozenset({"PartialObjectMetadata", "PartialObjectMetadataList"})
NAMESPACE_VERBS = ("list", "deletecollection")
WATCHING_VERBS = ("get", "list", "watch")
CREATING_VERBS = ("update", "patch")
"""Verbs that may create an object, for which the user needs the verb `create` as well."""
MAX_REVIEW_AGE = 60.0
"""Seconds for which a stream goes on although the host does not answer."""

_NOTHING_TO_DELETE = Decision(True, "namespaces of the host have no objects here")
_WATCHING_CONTROLLER = Decision(True, "a controller of the host")


class Reviews(Protocol):
    """Access reviews by the host. Implemented in `authz/subject_access_reviews.py`."""

    def cached(self, user: User, target: RequestInfo) -> Decision | None: ...

    async def review(self, user: User, target: RequestInfo) -> Decision: ...

    def start(self, user: User, target: RequestInfo) -> "asyncio.Task[Decision]": ...


class AggregatedAuthorization:
    """The authorization stage. `own` is that of this server, which decides about all other requests.

    `reviews` is None if the host is not asked. `is_stored` says whether a request is for stored objects themselves.
    """

    def __init__(
        self,
        own: AuthorizeStage,
        group: str,
        clock: Clock,
        is_stored: Callable[[RequestInfo], bool],
        reviews: Reviews | None = None,
    ) -> None:
        self._own = own
        self._group = group
        self._clock = clock
        self._is_stored = is_stored
        self._reviews = reviews

    def __call__(self, call: Call) -> Awaitable[None] | None:
        user = call.user
        if user is not None and call.deferred_error is None and self._is_of_host(call):
            target = self._own.find_target(call)
            if is_namespace_controller(call, user):
                call.decision, call.object_filter = _NOTHING_TO_DELETE, HideAll()
                return None
            if self._reviews is None and self._is_watching_controller(call, user):
                call.decision, call.guard = _WATCHING_CONTROLLER, _ControllerGuard(self._own)
                return None
            if self._reviews is not None and MASTERS not in user.groups and not is_own_account(user.name):
                return self._ask(call, user, target, self._reviews)
        self._own(call)
        return None

    def _is_watching_controller(self, call: Call, user: User) -> bool:
        target = call.target
        if user.name not in WATCHING_CONTROLLERS or target.verb not in WATCHING_VERBS or not self._is_stored(target):
            return False
        return negotiate(call.headers.get("accept", "")).as_kind in METADATA_KINDS

    def _is_of_host(self, call: Call) -> bool:
        target = call.target
        if not is_aggregated(call) or target.root != MANAGEMENT or target.gateway is not None:
            return False
        return target.group == self._group or not target.is_resource

    async def _ask(self, call: Call, user: User, target: RequestInfo, reviews: Reviews) -> None:
        decision = await reviews.review(user, target)
        if not decision.allowed:
            raise _denied_by_host(user, target, decision)
        guard = _ReviewGuard(self._own, reviews, self._clock)
        if target.verb in CREATING_VERBS and not target.subresource:
            creating = replace(target, verb="create")
            guard.granted[creating] = await reviews.review(user, creating)
        call.decision, call.guard = decision, guard


class HideAll:
    """The filter of a list in which nothing is visible."""

    def allows(self, entry: Any) -> bool:
        return False

    def generation(self) -> object:
        return None


class _ControllerGuard:
    """Checks that the identity of a call is still valid."""

    def __init__(self, own: AuthorizeStage) -> None:
        self._own = own

    def require(self, call: Call, target: RequestInfo) -> None:
        self._own.require(call, target)

    def recheck(self, call: Call) -> None:
        self._own.recheck_identity(call)


class _ReviewGuard:
    """Checks again what the host has allowed, while a stream is open.

    It cannot wait for the host. So it starts a review when the last one is old, and uses its result the next time, also
    if it is not cached. If there is none, the stream goes on until the last one is older than MAX_REVIEW_AGE.
    """

    def __init__(self, own: AuthorizeStage, reviews: Reviews, clock: Clock) -> None:
        self._own = own
        self._reviews = reviews
        self._clock = clock
        self._confirmed = self._started = clock.monotonic()
        self._review: asyncio.Task[Decision] | None = None
        self.granted: dict[RequestInfo, Decision] = {}

    def require(self, call: Call, target: RequestInfo) -> None:
        """Further permissions are those of this server, except to create the object of the request."""
        decision = self.granted.get(target)
        if decision is None or call.user is None:
            self._own.require(call, target)
        elif not decision.allowed:
            raise _denied_by_host(call.user, target, decision)

    def recheck(self, call: Call) -> None:
        user = self._own.recheck_identity(call)
        target = self._own.find_target(call)
        decision = self._reviews.cached(user, target)
        reviewed = self._clock.monotonic()
        if decision is None:
            decision, reviewed = self._find_result(), self._started
            self._start(user, target)
        else:
            self._review = None
        if decision is not None:
            if not decision.allowed:
                raise _denied_by_host(user, target, decision)
            self._confirmed = reviewed
        if self._clock.monotonic() - self._confirmed > MAX_REVIEW_AGE:
            raise Unavailable("the cluster's API server does not answer access reviews; try again later")

    def _find_result(self) -> Decision | None:
        """The result of the review that was started last, if there is one."""
        review = self._review
        if review is None or not review.done() or review.cancelled() or review.exception() is not None:
            return None
        return review.result()

    def _start(self, user: User, target: RequestInfo) -> None:
        if self._review is not None and not self._review.done():
            return
        self._review, self._started = None, self._clock.monotonic()
        with suppress(Unavailable):  # too many are waiting: this is no answer
            self._review = self._reviews.start(user, target)


def _denied_by_host(user: User, target: RequestInfo, decision: Decision) -> Forbidden:
    """The error says what was asked: whether the user may do this in all namespaces of the host."""
    return forbidden_error(user, replace(target, namespace=""), decision)


def is_namespace_controller(call: Call, user: User) -> bool:
    """Whether the host deletes a namespace. Depending on its flags, the controllers have identities of their own, or
    all have the one of the controller manager or of an administrator. Then they can only be recognized by what they
    call themselves. From other users, the user agent means nothing."""
    target = call.target
    if target.verb not in NAMESPACE_VERBS or not target.namespace or target.name:
        return False
    if user.name != CONTROLLER_MANAGER and MASTERS not in user.groups:
        return user.name == NAMESPACE_CONTROLLER
    agent = call.headers.get("user-agent", "")
    return agent.startswith(CONTROLLER_MANAGER_AGENT) and agent.endswith("namespace-controller")
