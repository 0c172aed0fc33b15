"""Which rule accepts a token, and what a cluster's TokenReview must say. Issuers are tested in tests/live."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.signin.oidc.discovery import ProviderClient
from fairlead.signin.oidc.tokens import Reason, TokenRejected
from fairlead.signin.workload_identity import (
    MAX_CONCURRENT_REVIEWS,
    ExchangeReason,
    ExchangeRejected,
    ReviewUnavailable,
    TrustRule,
    WorkloadIdentity,
    is_pull_request_run,
)
from tests.harness.clock import START
from tests.harness.eventually import eventually
from tests.harness.openid_issuer import sign

AUDIENCE, SUBJECT = "fairlead:1", "system:serviceaccount:build:builder"
RULE: Object = {
    **{"name": "pods", "cluster": "oslo", "namespace": "build", "serviceAccountName": "builder"},
    **{"user": "ci", "scope": {}},
}
USER = {"username": SUBJECT, "uid": "uid-of-builder"}
STATUS = {"authenticated": True, "user": USER, "audiences": [AUDIENCE]}


class Reviews:
    """A cluster whose TokenReviews return the given status."""

    def __init__(self, status: Any) -> None:
        self.status = status
        self.bodies: list[Object] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, cluster: str, body: Object) -> Object:
        self.bodies.append(body)
        await self.gate.wait()
        return {"status": self.status}


def _identity(reviews: Reviews, *rules: Object) -> WorkloadIdentity:
    settings = {"audience": AUDIENCE, "rules": list(rules or (RULE,))}
    uids: Callable[[str], str] = {"oslo": "uid-of-oslo"}.get  # type: ignore[assignment]
    return WorkloadIdentity(lambda: settings, ProviderClient(), reviews, lambda name: uids(name) or "")


def _token(**claims: Any) -> str:
    moment = int(START.timestamp())
    found = {"iss": "https://kubernetes.default.svc", "sub": SUBJECT, "aud": [AUDIENCE], "iat": moment, "jti": "1"}
    return sign({**found, "exp": moment + 600, "kubernetes.io": {"pod": {"name": "build-7"}}, **claims}, "ec")


async def test_the_cluster_reviews_the_token_with_the_audience() -> None:
    reviews = Reviews(STATUS)
    token = _token()
    workload = await _identity(reviews).verify(token, "oslo", START)
    assert (workload.rule.name, workload.source) == ("pods", "cluster:uid-of-oslo")
    assert (workload.subject, workload.run) == (SUBJECT, "build-7")
    assert reviews.bodies[0]["spec"] == {"token": token, "audiences": [AUDIENCE]}


@pytest.mark.parametrize(
    "status",
    [
        None,
        [],
        {},
        {"authenticated": False, "user": USER, "audiences": [AUDIENCE]},
        {"authenticated": "true", "user": USER, "audiences": [AUDIENCE]},
        {"authenticated": True, "user": USER},
        {"authenticated": True, "user": USER, "audiences": []},
        {"authenticated": True, "user": USER, "audiences": ["https://kubernetes.default.svc"]},
        {"authenticated": True, "user": {**USER, "username": "system:admin"}, "audiences": [AUDIENCE]},
        {"authenticated": True, "user": None, "audiences": [AUDIENCE]},
        {"authenticated": True, "audiences": [AUDIENCE]},
        {**STATUS, "error": "something"},
    ],
)
async def test_anything_but_a_clear_yes_of_the_cluster_is_a_no(status: Any) -> None:
    with pytest.raises(ExchangeRejected) as rejected:
        await _identity(Reviews(status)).verify(_token(), "oslo", START)
    assert rejected.value.reason == ExchangeReason.NOT_AUTHENTICATED


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"aud": ["https://kubernetes.default.svc"]}, Reason.WRONG_AUDIENCE),
        ({"aud": [AUDIENCE, "https://kubernetes.default.svc"]}, Reason.WRONG_AUDIENCE),
        ({"exp": 1}, Reason.EXPIRED),
        ({"exp": True}, Reason.INVALID_TIME),
        ({"sub": ""}, Reason.INVALID_SUBJECT),
    ],
)
async def test_the_cluster_reviews_no_tokens_that_are_unacceptable_anyway(
    claims: dict[str, Any], reason: Reason
) -> None:
    reviews = Reviews(STATUS)
    with pytest.raises(TokenRejected) as rejected:
        await _identity(reviews).verify(_token(**claims), "oslo", START)
    assert rejected.value.reason == reason
    with pytest.raises(ExchangeRejected):
        await _identity(reviews).verify(_token(sub="system:serviceaccount:build:other"), "oslo", START)
    assert reviews.bodies == []


@pytest.mark.parametrize(
    ("cluster", "changes"),
    [("paris", {}), ("absent", {"cluster": "absent"}), ("oslo", {"clusterUID": "uid-of-another"})],
)
async def test_only_the_cluster_of_the_rule_is_trusted(cluster: str, changes: Object) -> None:
    with pytest.raises(ExchangeRejected) as rejected:
        await _identity(Reviews(STATUS), {**RULE, **changes}).verify(_token(), cluster, START)
    assert rejected.value.reason == ExchangeReason.UNTRUSTED_CLUSTER


async def test_the_account_can_be_named_by_its_uid() -> None:
    named = {**RULE, "name": "named", "serviceAccountUID": "uid-of-builder"}
    other = {**RULE, "name": "other", "serviceAccountUID": "uid-of-another"}
    assert (await _identity(Reviews(STATUS), other, named).verify(_token(), "oslo", START)).rule.name == "named"
    with pytest.raises(ExchangeRejected) as rejected:
        await _identity(Reviews(STATUS), other).verify(_token(), "oslo", START)
    assert rejected.value.reason == ExchangeReason.NO_RULE


async def test_a_flood_of_tokens_does_not_occupy_the_connections_to_a_cluster() -> None:
    reviews = Reviews(STATUS)
    reviews.gate.clear()
    identity = _identity(reviews)
    flood = [asyncio.create_task(identity.verify(_token(jti=str(number)), "oslo", START)) for number in range(50)]
    await eventually(lambda: len(reviews.bodies) == MAX_CONCURRENT_REVIEWS)
    reviews.gate.set()
    results = await asyncio.gather(*flood, return_exceptions=True)
    assert sum(isinstance(each, ReviewUnavailable) for each in results) == 50 - MAX_CONCURRENT_REVIEWS


async def test_a_change_of_the_settings_takes_effect_at_once() -> None:
    current: list[Object] = [{"audience": AUDIENCE, "rules": [RULE]}]
    identity = WorkloadIdentity(lambda: current[0], ProviderClient(), Reviews(STATUS), lambda name: "uid")
    assert (await identity.verify(_token(), "oslo", START)).rule.max_ttl == 900
    current[0] = {"audience": AUDIENCE, "rules": [{**RULE, "maxTTLSeconds": 60}]}
    assert (await identity.verify(_token(), "oslo", START)).rule.max_ttl == 60
    current[0] = {"audience": "fairlead:2", "rules": [RULE]}
    with pytest.raises(TokenRejected):
        await identity.verify(_token(), "oslo", START)
    for nothing in ({}, {"rules": [RULE]}, {"audience": AUDIENCE, "rules": []}):
        current[0] = nothing
        with pytest.raises(ExchangeRejected) as rejected:
            await identity.verify(_token(), "oslo", START)
        assert rejected.value.reason == ExchangeReason.NOT_CONFIGURED


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"event_name": "push", "ref": "refs/heads/main"}, False),
        ({"event_name": "workflow_dispatch"}, False),
        ({"event_name": "pull_request"}, True),
        ({"event_name": "pull_request_target", "ref": "refs/heads/main"}, True),
        ({"event_name": "workflow_dispatch", "ref": "refs/pull/7/merge"}, True),
        ({"pipeline_source": "push", "ref": "main"}, False),
        ({"pipeline_source": "merge_request_event"}, True),
        ({"pipeline_source": "web", "ref_path": "refs/merge-requests/1/head"}, True),
        ({"ref": ["refs/pull/7/merge"]}, False),
    ],
)
def test_runs_for_pull_requests_are_recognized(claims: dict[str, Any], expected: bool) -> None:
    assert is_pull_request_run(claims) is expected


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"a": "1", "b": "2", "c": 3}, True),
        ({"a": "1"}, False),
        ({"a": "1", "b": 2}, False),
        ({"a": "1", "b": ["2"]}, False),
        ({"a": "1", "b": "2 "}, False),
        ({"a": "1", "b": None}, False),
    ],
)
def test_claims_are_compared_exactly(claims: dict[str, Any], expected: bool) -> None:
    rule = TrustRule.parse(
        {"name": "x", "issuer": "https://a.example", "claims": {"a": "1", "b": "2"}, "user": "ci", "scope": {}}
    )
    assert rule.matches(claims) is expected
