"""Tests of `fairlead.authz.subject_access_reviews`: authorization by another API server."""

import asyncio
from typing import Any

import pytest

from fairlead.authz import subject_access_reviews as module
from fairlead.authz.subject_access_reviews import CACHE_SECONDS, SubjectAccessReviews, build_review, parse_review
from fairlead.core.call import RequestInfo
from fairlead.core.errors import Unavailable
from fairlead.core.user import User
from tests.harness.clock import ManualClock

ALICE = User("alice", ("devs", "system:authenticated"), "7", extra=(("scopes", ("a", "b")),))
LIST = RequestInfo("list", "/apis/g/v1/apps", "management", "g", "v1", "apps")


class Host:
    """Answers with `answer`, or raises it. `gate`, if set, has to be opened first."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer if answer is not None else {"status": {"allowed": True, "reason": "RBAC"}}
        self.received: list[dict[str, Any]] = []
        self.gate: asyncio.Event | None = None

    async def __call__(self, review: dict[str, Any]) -> dict[str, Any]:
        self.received.append(review["spec"])
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: dict[str, Any] = self.answer
        return answer


def test_a_review_has_the_user_as_sent_and_the_request() -> None:
    named = RequestInfo("get", "/x", "management", "g", "v1", "apps", "status", "n", "one")
    assert build_review(ALICE, named)["spec"] == {
        **{"user": "alice", "groups": ["devs", "system:authenticated"], "uid": "7", "extra": {"scopes": ["a", "b"]}},
        "resourceAttributes": {
            **{"verb": "get", "group": "g", "version": "v1", "resource": "apps"},
            **{"subresource": "status", "name": "one"},
        },
    }
    assert build_review(User("bo"), RequestInfo("get", "/openapi/v2", "management"))["spec"] == {
        **{"user": "bo", "groups": []},
        "nonResourceAttributes": {"path": "/openapi/v2", "verb": "get"},
    }


async def test_rights_in_a_namespace_of_the_other_server_do_not_count() -> None:
    """Its namespaces are others. So the question is about all of them, and is one for all namespaces here."""
    host = Host()
    reviews = SubjectAccessReviews(host, ManualClock())
    for namespace in ("p-one", "p-two", ""):
        target = RequestInfo("list", "/x", "management", "g", "v1", "apps", namespace=namespace)
        await reviews.review(ALICE, target)
        assert reviews.cached(ALICE, target) is not None
    assert [each["resourceAttributes"] for each in host.received] == [
        {"verb": "list", "group": "g", "version": "v1", "resource": "apps"}
    ]


def test_service_accounts_of_the_other_server_are_reviewed_by_their_own_names() -> None:
    groups = "host:system:serviceaccounts", "host:system:serviceaccounts:a", "host:b", "system:serviceaccounts:own"
    spec = build_review(User("host:system:serviceaccount:a:ci", groups), LIST)["spec"]
    assert spec["user"] == "system:serviceaccount:a:ci"
    assert spec["groups"] == ["system:serviceaccounts", "system:serviceaccounts:a", "host:b"]


@pytest.mark.parametrize(
    ("status", "is_allowed"),
    [
        ({"allowed": True}, True),
        ({"allowed": False}, False),
        ({"allowed": True, "denied": True}, False),
        ({"allowed": "true"}, False),
        ({}, False),
    ],
)
def test_only_a_clear_answer_allows(status: dict[str, Any], is_allowed: bool) -> None:
    assert parse_review({"status": status}).allowed is is_allowed
    with pytest.raises(Unavailable):
        parse_review({})


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_both_answers_are_cached_for_ten_seconds(is_allowed: bool) -> None:
    host, clock = Host({"status": {"allowed": is_allowed}}), ManualClock()
    reviews = SubjectAccessReviews(host, clock)
    for _ in range(3):
        assert (await reviews.review(ALICE, LIST)).allowed is is_allowed
    assert len(host.received) == 1
    clock.tick(CACHE_SECONDS)
    assert reviews.cached(ALICE, LIST) is None
    await reviews.review(ALICE, LIST)
    assert len(host.received) == 2


async def test_other_users_groups_and_requests_are_reviewed_by_themselves() -> None:
    host = Host()
    reviews = SubjectAccessReviews(host, ManualClock())
    users = ALICE, User("alice", ("devs",), "7", extra=ALICE.extra), User("bo", ALICE.groups)
    targets = LIST, RequestInfo("watch", *("/", "management", "g", "v1", "apps")), RequestInfo("get", "/apis")
    for user in users:
        for target in targets:
            await reviews.review(user, target)
    assert len(host.received) == len(users) * len(targets)
    await reviews.review(ALICE, RequestInfo("list", "/other/spelling", "", "g", "v1", "apps"))
    assert len(host.received) == len(users) * len(targets)


async def test_a_failure_is_not_cached_and_allows_nothing() -> None:
    host = Host(Unavailable("down"))
    reviews = SubjectAccessReviews(host, ManualClock())
    for _ in range(2):
        with pytest.raises(Unavailable):
            await reviews.review(ALICE, LIST)
    assert len(host.received) == 2 and reviews.cached(ALICE, LIST) is None


async def test_equal_reviews_at_once_are_one_and_survive_a_client_that_leaves() -> None:
    host = Host()
    host.gate = asyncio.Event()
    reviews = SubjectAccessReviews(host, ManualClock())
    first, second = (asyncio.create_task(reviews.review(ALICE, LIST)) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    host.gate.set()
    assert (await second).allowed and len(host.received) == 1


async def test_reviews_in_flight_and_waiting_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 40)
    host = Host()
    host.gate = asyncio.Event()
    reviews = SubjectAccessReviews(host, ManualClock())
    waiting = [asyncio.create_task(reviews.review(User(f"u{number}"), LIST)) for number in range(40)]
    await asyncio.sleep(0.01)
    assert len(host.received) == module.MAX_IN_FLIGHT
    with pytest.raises(Unavailable, match="too many access reviews"):
        await reviews.review(User("one more"), LIST)
    await reviews.close()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_slow_host_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REVIEW_SECONDS", 0.01)
    host = Host()
    host.gate = asyncio.Event()
    with pytest.raises(Unavailable, match="in time"):
        await SubjectAccessReviews(host, ManualClock()).review(ALICE, LIST)


async def test_long_names_are_not_cached() -> None:
    reviews = SubjectAccessReviews(Host(), ManualClock())
    long = User("alice", ("x" * 20_000,))
    assert (await reviews.review(long, LIST)).allowed
    assert reviews.cached(long, LIST) is None
