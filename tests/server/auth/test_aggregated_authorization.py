"""Tests of `fairlead.server.auth.aggregated_authorization`: requests that a kube-apiserver, the host, forwards."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.authz.authorizer import AuthorizerChain, administrators
from fairlead.core.call import CLIENT, FRONT_PROXY, MANAGEMENT, Call, Decision, RequestInfo, TlsPeer
from fairlead.core.errors import Expired, Forbidden, Unavailable
from fairlead.core.user import User
from fairlead.server.auth.aggregated_authorization import (
    CONTROLLER_MANAGER,
    MAX_REVIEW_AGE,
    NAMESPACE_CONTROLLER,
    AggregatedAuthorization,
)
from fairlead.server.auth.stages import AuthorizeStage
from tests.harness.calls import ADMIN, call
from tests.harness.clock import ManualClock

GROUP = "management.service.sh"
ALICE, BO = User("alice", ("system:authenticated",)), User("bo", ("system:authenticated",))
APPS = RequestInfo("list", "/", MANAGEMENT, GROUP, "v1", "apps")
SECRETS = RequestInfo("list", "/", MANAGEMENT, GROUP, "v1", "sharedsecrets", "", "n")
MANAGER = User(CONTROLLER_MANAGER, ("system:authenticated",))
COLLECTOR = User("host:system:serviceaccount:kube-system:generic-garbage-collector", ("system:authenticated",))


class Host:
    """Allows the verbs in `allowed` to everybody. `failure` is raised instead."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = set(allowed)
        self.reviewed: list[tuple[str, str]] = []
        self.remembered: Decision | None = None
        self.started = 0
        self.failure: Exception | None = None
        self.is_full = False

    def cached(self, user: User, target: RequestInfo) -> Decision | None:
        return self.remembered

    async def review(self, user: User, target: RequestInfo) -> Decision:
        self.reviewed.append((user.name, target.verb))
        if self.failure is not None:
            raise self.failure
        return Decision(target.verb in self.allowed, "RBAC")

    def start(self, user: User, target: RequestInfo) -> "asyncio.Task[Decision]":
        if self.is_full:
            raise Unavailable("too many are waiting")
        self.started += 1
        return asyncio.create_task(self.review(user, target))


class Fixture:
    """The stage with a host, or without one. Own permissions: `bo` may do everything."""

    def __init__(self, host: Host | None) -> None:
        self.clock = ManualClock()
        self.user = ALICE

        def own(user: User, target: RequestInfo) -> Decision | None:
            return Decision(True, "own") if user.name == "bo" else None

        stage = AuthorizeStage(AuthorizerChain((administrators, own)), lambda _: self.user)
        self.stage = AggregatedAuthorization(stage, GROUP, self.clock, lambda target: not target.subresource, host)

    async def send(
        self, user: User, target: RequestInfo = APPS, purpose: str = FRONT_PROXY, agent: str = "", accept: str = ""
    ) -> Call:
        self.user = user
        request = call(headers={"user-agent": agent, "accept": accept}, target=target)
        request.user = user
        request.peer = TlsPeer(purpose, "front-proxy", (), 0.0, "f") if purpose else None
        pending = self.stage(request)
        if pending is not None:
            await pending
        return request


async def test_the_host_decides_and_own_permissions_do_not_count() -> None:
    host = Host("list")
    fixture = Fixture(host)
    allowed = await fixture.send(ALICE)
    assert allowed.decision == Decision(True, "RBAC") and allowed.object_filter is None
    with pytest.raises(Forbidden, match='User "bo" cannot delete resource "apps"'):
        await fixture.send(BO, replace(APPS, verb="delete", name="x"))
    assert host.reviewed == [("alice", "list"), ("bo", "delete")]


async def test_masters_are_not_reviewed() -> None:
    host = Host()
    assert (await Fixture(host).send(ADMIN)).decision is not None
    assert host.reviewed == []


@pytest.mark.parametrize(
    "target", [RequestInfo("get", "/apis", MANAGEMENT), RequestInfo("get", "/openapi/v2", MANAGEMENT)]
)
async def test_documents_are_reviewed(target: RequestInfo) -> None:
    host = Host("get")
    await Fixture(host).send(ALICE, target)
    assert host.reviewed == [("alice", "get")]


@pytest.mark.parametrize(
    ("target", "purpose"),
    [
        (replace(APPS, group="", resource="configmaps"), FRONT_PROXY),
        (replace(APPS, group="rbac.authorization.k8s.io", resource="clusterroles"), FRONT_PROXY),
        (replace(APPS, root=""), FRONT_PROXY),
        (replace(APPS, gateway=RequestInfo("use", "", MANAGEMENT, GROUP, "v1", "clusters", name="c")), FRONT_PROXY),
        (APPS, CLIENT),
        (APPS, ""),
    ],
)
async def test_the_host_has_no_say_in_anything_else(target: RequestInfo, purpose: str) -> None:
    host = Host("list", "get", "use")
    fixture = Fixture(host)
    assert (await fixture.send(BO, target, purpose)).decision == Decision(True, "own")
    with pytest.raises(Forbidden):
        await fixture.send(ALICE, target, purpose)
    assert host.reviewed == []


async def test_what_the_host_denies_is_denied_in_all_its_namespaces() -> None:
    with pytest.raises(Forbidden, match=r'cannot list resource "sharedsecrets" .* at the cluster scope'):
        await Fixture(Host()).send(ALICE, SECRETS)


async def test_service_accounts_of_this_server_are_not_reviewed_by_the_host() -> None:
    """A front proxy cannot name them, but who may impersonate them can."""
    host = Host("list")
    with pytest.raises(Forbidden):
        await Fixture(host).send(User("system:serviceaccount:kube-system:x"))
    assert host.reviewed == []
    await Fixture(host).send(User("host:system:serviceaccount:kube-system:x"))
    assert host.reviewed == [("host:system:serviceaccount:kube-system:x", "list")]


async def test_a_host_that_does_not_answer_allows_nothing() -> None:
    host = Host("list")
    host.failure = Unavailable("down")
    with pytest.raises(Unavailable):
        await Fixture(host).send(BO)


async def test_applying_needs_the_right_to_create() -> None:
    patch = replace(APPS, verb="patch", name="x")
    request = await Fixture(Host("patch")).send(ALICE, patch)
    with pytest.raises(Forbidden, match="cannot create"):
        request.require(replace(patch, verb="create"))
    request = await Fixture(Host("patch", "create")).send(ALICE, patch)
    request.require(replace(patch, verb="create"))
    with pytest.raises(Forbidden, match="clusters"):
        request.require(replace(patch, verb="use", resource="clusters"))  # own permissions


async def test_a_stream_ends_when_the_host_denies_it_or_does_not_answer_for_long() -> None:
    host = Host("watch")
    fixture = Fixture(host)
    request = await fixture.send(ALICE, replace(APPS, verb="watch"))
    host.remembered = Decision(True)
    request.recheck()
    host.remembered = None
    request.recheck()
    assert host.started == 1, "a review is started, and its result is for the next time"
    host.remembered = Decision(False)
    with pytest.raises(Forbidden):
        request.recheck()
    host.remembered = None
    fixture.clock.tick(MAX_REVIEW_AGE + 1)
    with pytest.raises(Unavailable):
        request.recheck()
    fixture.user = BO
    with pytest.raises(Expired):
        request.recheck()


async def open_uncached_watch(host: Host) -> tuple[Fixture, Call]:
    """Reviews of users with many groups are not cached. This watch has been open for longer than MAX_REVIEW_AGE."""
    fixture = Fixture(host)
    request = await fixture.send(ALICE, replace(APPS, verb="watch"))
    for _ in range(20):
        fixture.clock.tick(MAX_REVIEW_AGE / 4)
        request.recheck()
        await asyncio.sleep(0)
    return fixture, request


async def test_a_stream_whose_reviews_are_not_cached_goes_on_until_the_host_denies_it() -> None:
    host = Host("watch")
    _, request = await open_uncached_watch(host)
    host.allowed.clear()
    request.recheck()
    await asyncio.sleep(0)
    with pytest.raises(Forbidden):
        request.recheck()


@pytest.mark.parametrize("problem", ["full", "down", "slow"])
async def test_a_stream_ends_after_a_minute_without_an_answer_and_not_before(problem: str) -> None:
    host = Host("watch")
    fixture, request = await open_uncached_watch(host)
    host.is_full, host.failure = problem == "full", Unavailable("down") if problem == "down" else None
    for _ in range(3):
        fixture.clock.tick(MAX_REVIEW_AGE / 4)
        request.recheck()
        if problem != "slow":
            await asyncio.sleep(0)
    fixture.clock.tick(MAX_REVIEW_AGE)
    with pytest.raises(Unavailable, match="does not answer access reviews"):
        request.recheck()


AGENT = "kube-controller-manager/v1.35.8 (linux/amd64) kubernetes/abc/namespace-controller"


@pytest.mark.parametrize("host", [None, Host("list", "deletecollection")])
@pytest.mark.parametrize(("user", "agent"), [(User(NAMESPACE_CONTROLLER), ""), (ADMIN, AGENT), (MANAGER, AGENT)])
@pytest.mark.parametrize("verb", ["list", "deletecollection"])
async def test_the_namespace_controller_of_the_host_sees_nothing(
    host: Host | None, user: User, agent: str, verb: str
) -> None:
    """Otherwise it would delete the objects of a namespace here that has the name of one there."""
    entry: Any = SimpleNamespace(key=(GROUP, "sharedsecrets", "n", "x"))
    request = await Fixture(host).send(user, replace(SECRETS, verb=verb), agent=agent)
    assert request.decision is not None and request.decision.allowed
    assert request.object_filter is not None and not request.object_filter.allows(entry)


@pytest.mark.parametrize(
    ("target", "agent"),
    [
        (SECRETS, "kubectl/v1.35.8"),
        (replace(SECRETS, namespace=""), AGENT),
        (replace(SECRETS, verb="get", name="x"), AGENT),
        (replace(SECRETS, group="", resource="configmaps"), AGENT),
    ],
)
async def test_everything_else_is_an_ordinary_request(target: RequestInfo, agent: str) -> None:
    assert (await Fixture(None).send(ADMIN, target, agent=agent)).object_filter is None


async def test_the_user_agent_of_another_user_means_nothing() -> None:
    for host in (None, Host()):
        with pytest.raises(Forbidden):
            await Fixture(host).send(ALICE, SECRETS, agent=AGENT)
    assert (await Fixture(None).send(BO, SECRETS, agent=AGENT)).object_filter is None


METADATA = (
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)


@pytest.mark.parametrize("user", [COLLECTOR, MANAGER])
async def test_controllers_that_watch_everything_may_read_metadata(user: User) -> None:
    fixture, watch = Fixture(None), replace(SECRETS, verb="watch")
    request = await fixture.send(user, watch, accept=METADATA)
    request.recheck()
    fixture.user = ALICE
    with pytest.raises(Expired):
        request.recheck()


@pytest.mark.parametrize(
    ("user", "target", "purpose", "accept"),
    [
        (COLLECTOR, replace(SECRETS, verb="watch"), FRONT_PROXY, "application/json"),
        (COLLECTOR, SECRETS, FRONT_PROXY, "application/json;as=Table;g=meta.k8s.io;v=v1"),
        (COLLECTOR, replace(SECRETS, verb="get", name="x", subresource="profile"), FRONT_PROXY, METADATA),
        (COLLECTOR, replace(SECRETS, verb="delete", name="x"), FRONT_PROXY, METADATA),
        (COLLECTOR, SECRETS, CLIENT, METADATA),
        (MANAGER, SECRETS, FRONT_PROXY, "application/json"),
        (MANAGER, replace(SECRETS, verb="delete", name="x"), FRONT_PROXY, METADATA),
        (ALICE, SECRETS, FRONT_PROXY, METADATA),
        (User(COLLECTOR.name.removeprefix("host:")), SECRETS, FRONT_PROXY, METADATA),
    ],
)
async def test_others_and_other_requests_need_permissions(
    user: User, target: RequestInfo, purpose: str, accept: str
) -> None:
    with pytest.raises(Forbidden):
        await Fixture(None).send(user, target, purpose, accept=accept)
