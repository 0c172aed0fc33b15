"""Authorization by another API server, with SubjectAccessReviews. For requests that its aggregation layer forwards.

As in Kubernetes' delegated authorization, both answers are cached for ten seconds. What cannot be asked is not allowed:
a failure raises Unavailable, and is not cached. Equal questions at the same time are asked once. Bounds: reviews in
flight, those that wait, their duration, and the size of the cache.

Namespaces and service accounts of the other server are not those of this one, even if they have the same names. So a
request for a namespace here is reviewed for all namespaces there: rights in one namespace of the other server are no
rights here. The service accounts of the other server, which have other names here, are reviewed by their own names.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.clock import Clock
from fairlead.core.errors import Unavailable, truncate
from fairlead.core.objects import Object
from fairlead.core.user import User, is_own_account, restore_host_account
from fairlead.core.waiting import end_tasks

PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CACHE_SECONDS, REVIEW_SECONDS = 10.0, 5.0
MAX_IN_FLIGHT, MAX_WAITING = 32, 512
CACHE_SIZE, MAX_CACHED_CHARS = 4_096, 10_000
"""Reviews of users or objects with longer names are not cached, as in Kubernetes."""
MAX_REASON_CHARS = 512

SendReview = Callable[[Object], Awaitable[Object]]
"""Creates a SubjectAccessReview, and returns it with its status. Raises Unavailable."""

_Key = tuple[User, RequestInfo]


class SubjectAccessReviews:
    """Reviews, cached by user and request."""

    def __init__(self, send: SendReview, clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._cache = BoundedCache[_Key, tuple[float, Decision]](CACHE_SIZE)
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._running: dict[_Key, asyncio.Task[Decision]] = {}

    def cached(self, user: User, target: RequestInfo) -> Decision | None:
        """The decision of a review that is not too old; None if there is none."""
        found = self._cache.get(_key(user, target))
        return found[1] if found is not None and found[0] > self._clock.monotonic() else None

    async def review(self, user: User, target: RequestInfo) -> Decision:
        """The decision of the other server. Raises Unavailable."""
        decision = self.cached(user, target)
        # Shielded: others may wait for the same review when the client of this request has gone.
        return decision if decision is not None else await asyncio.shield(self.start(user, target))

    def start(self, user: User, target: RequestInfo) -> "asyncio.Task[Decision]":
        """Starts a review without waiting for it, unless the same one is running. Raises Unavailable."""
        key = _key(user, target)
        task = self._running.get(key)
        if task is None:
            if len(self._running) >= MAX_WAITING:
                raise Unavailable("too many access reviews are waiting for the cluster's API server; try again later")
            task = self._running[key] = asyncio.get_running_loop().create_task(self._review(key))
            task.add_done_callback(lambda done: self._on_done(key, done))
        return task

    def _on_done(self, key: _Key, task: "asyncio.Task[Decision]") -> None:
        del self._running[key]
        if task.cancelled() or task.exception() is not None:  # also marks the exception as seen
            return
        if _size(key) <= MAX_CACHED_CHARS:
            self._cache[key] = self._clock.monotonic() + CACHE_SECONDS, task.result()

    async def _review(self, key: _Key) -> Decision:
        try:
            async with asyncio.timeout(REVIEW_SECONDS), self._slots:
                return parse_review(await self._send(build_review(*key)))
        except TimeoutError:
            raise Unavailable("the cluster's API server did not review the access in time; try again later") from None

    async def close(self) -> None:
        await end_tasks(*self._running.values())


def build_review(user: User, target: RequestInfo) -> Object:
    """The review of a request: of a resource of the API, or of another path."""
    groups = [restore_host_account(group) for group in user.groups if not is_own_account(group)]
    spec: dict[str, Any] = {"user": restore_host_account(user.name), "groups": groups}
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {name: list(values) for name, values in user.extra}
    if target.is_resource:
        names = "verb", "group", "version", "resource", "subresource", "name"
        attributes = {name: getattr(target, name) for name in names}
        spec["resourceAttributes"] = {name: value for name, value in attributes.items() if value}
    else:
        spec["nonResourceAttributes"] = {"path": target.path, "verb": target.verb}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def parse_review(review: Object) -> Decision:
    """The decision in a review. Anything but `allowed: true` is a denial."""
    status = review.get("status")
    if not isinstance(status, dict):
        raise Unavailable("the cluster's API server returned an access review without a status")
    reason = truncate(str(status.get("reason") or ""), MAX_REASON_CHARS)
    return Decision(status.get("allowed") is True and status.get("denied") is not True, reason)


def _key(user: User, target: RequestInfo) -> _Key:
    """What the review depends on. For a resource, that is neither the path nor the namespace."""
    path = "" if target.is_resource else target.path
    parts = target.group, target.version, target.resource, target.subresource, "", target.name
    return User(user.name, user.groups, user.uid, extra=user.extra), RequestInfo(target.verb, path, "", *parts)


def _size(key: _Key) -> int:
    user, target = key
    extra = sum(len(name) + sum(map(len, values)) for name, values in user.extra)
    request = len(target.path) + len(target.name) + len(target.resource)
    return len(user.name) + sum(map(len, user.groups)) + extra + request
