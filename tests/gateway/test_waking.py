"""Tests of `fairlead.gateway.waking` and `activity`: which requests count as use, and which of them wake instances."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.authz.scope.gateway_requests import SPACE, VIRTUAL_CLUSTER, gateway_target
from fairlead.core.call import Call, RequestInfo
from fairlead.core.clock import timestamp
from fairlead.core.errors import Forbidden, Unavailable
from fairlead.core.objects import Object, get_path
from fairlead.core.user import User
from fairlead.domain.sleep_mode import change_annotations
from fairlead.gateway import activity, waking
from fairlead.gateway.routes import GatewayHandler
from fairlead.registry.kind import MANAGEMENT_GROUP, Change
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.access import Limits
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import UpstreamRegistry
from tests.fake_cluster.exchange import build_json_response
from tests.fake_cluster.server import FakeCluster
from tests.gateway.gateway_calls import IDENTITY_MAPPER, STORED_TOKEN, build_call
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture

PREFIX = "sleepmode.service.sh/"
KUBECTL = "kubectl/v1.35.1 (linux/arm64)"
KINDS = {SPACE: "SpaceInstance", VIRTUAL_CLUSTER: "VirtualClusterInstance"}
LIST_PODS = "/api/v1/namespaces/mine/pods"


class Gateways:
    """A space and a virtual cluster, both named `one`, behind gateways."""

    def __init__(self, api: RegistryFixture, handler: GatewayHandler, cluster: FakeCluster) -> None:
        self.api = api
        self.handler = handler
        self.cluster = cluster

    async def create(self, root: str, **notes: str) -> None:
        data = {"config": b64encode(self.cluster.build_kubeconfig(token=STORED_TOKEN)).decode()}
        await self.api.create("Secret", "cluster-c", data=data)
        config = {"secretName": "cluster-c", "secretNamespace": NAMESPACE}
        await self.api.create("Cluster", "c", spec={"config": config})
        place = {"cluster": "c", "namespace": "mine", "virtualCluster": "one" if root == VIRTUAL_CLUSTER else ""}
        body = self.api.build_object(KINDS[root], "one", spec={"clusterRef": place})
        await self.api.submit(KINDS[root], body, server_write_options())
        await self.annotate(root, **notes)
        await self.set_status(root, conditions=[{"type": "SpaceSynced", "status": "True"}], phase="Ready")

    async def annotate(self, root: str, **notes: str | None) -> None:
        changes = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in notes.items()}

        def edit(obj: Object) -> None:
            obj["metadata"] = change_annotations(obj, changes)["metadata"]

        await self.api.patch(KINDS[root], "one", edit, server_write_options())

    async def set_status(self, root: str, **fields: Any) -> None:
        def edit(obj: Object) -> None:
            obj["status"] = {**(obj.get("status") or {}), **fields}

        await self.api.patch(KINDS[root], "one", edit, server_write_options("status"))

    async def put_to_sleep(self, root: str, sleep_type: str = "inactivitySleep") -> None:
        """As the controllers do it."""
        await self.annotate(root, sleep_type=sleep_type, sleeping_since=str(self.now))
        await self.set_status(root, phase="Sleeping", sleep={"stage": "Asleep"})

    async def finish_wake(self, root: str) -> None:
        await self.annotate(root, sleep_type=None, sleeping_since=None)
        await self.set_status(root, phase="Ready", sleep={})

    @property
    def now(self) -> int:
        return int(self.api.clock.now().timestamp())

    def note(self, root: str, name: str) -> str:
        obj = self.api.get(KINDS[root], "one")
        return str((get_path(obj, "metadata.annotations") or {}).get(f"{PREFIX}{name}") or "")

    def is_wake_requested(self, root: str) -> bool:
        return bool(self.note(root, "last-activity"))


@pytest.fixture
async def gateways(
    api: RegistryFixture, fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Gateways]:
    policy = AddressPolicy(["127.0.0.0/8"], lambda: ())
    upstreams = UpstreamRegistry(api.registry, MANAGEMENT_GROUP, NAMESPACE, policy, Limits())
    # How a virtual cluster is reached does not matter here.
    monkeypatch.setattr(upstreams, "virtual_cluster_upstream", lambda namespace, name: upstreams.cluster_upstream("c"))
    handler = GatewayHandler(api.registry, MANAGEMENT_GROUP, "p-", upstreams, IDENTITY_MAPPER)
    yield Gateways(api, handler, fake_cluster)
    await upstreams.close_all()


def build(root: str, path: str = LIST_PODS, verb: str = "list", agent: str = KUBECTL, **headers: str) -> Call:
    """A request for pods, or, with another path, for something that is no resource."""
    segment = "space" if root == SPACE else "virtualcluster"
    gateway = gateway_target(root, "one", NAMESPACE)
    plain = path.partition("?")[0]
    is_resource = plain.startswith("/api/v1/namespaces")
    target = RequestInfo(verb, plain, gateway=gateway, resource="pods" if is_resource else "")
    sent = {"user-agent": agent, **headers}
    call = build_call(f"/kubernetes/project/demo/{segment}/one{path}", headers=sent, target=target)
    query = path.partition("?")[2]
    call.query = {part.partition("=")[0]: [part.partition("=")[2]] for part in query.split("&") if part}
    return call


async def written_activity(gateways: Gateways, call: Call) -> str:
    """What the annotation says after a request."""
    await gateways.handler(call)
    await gateways.handler.activity.flush(everything=True)
    return gateways.note(SPACE, "last-activity")


async def test_a_request_is_activity(gateways: Gateways) -> None:
    await gateways.create(SPACE, sleep_after="3600")
    assert abs(int(await written_activity(gateways, build(SPACE))) - gateways.now) < 60
    assert '"user":"anna"' in gateways.note(SPACE, "last-activity-info")


async def test_without_a_policy_nothing_is_written(gateways: Gateways) -> None:
    await gateways.create(SPACE)
    assert await written_activity(gateways, build(SPACE)) == ""


@pytest.mark.parametrize(
    "call",
    [
        build(SPACE, verb="watch"),
        build(SPACE, "/version", "get"),
        build(SPACE, "/readyz", "get"),
        build(SPACE, **{"x-sleep-mode-ignore": "true"}),
        build(SPACE, agent="Prometheus/3.1.0"),
        build(SPACE, agent="kube-probe/1.35"),
        build(SPACE, agent="robot/1"),
    ],
    ids=["watch", "version", "readyz", "header", "prometheus", "probe", "ignored agent"],
)
async def test_what_is_no_activity(gateways: Gateways, call: Call) -> None:
    await gateways.create(SPACE, sleep_after="3600", ignore_user_agents="robot*")
    gateways.cluster.set_response("/readyz", build_json_response({}))
    assert await written_activity(gateways, call) == ""


async def test_a_request_that_the_cluster_refuses_is_no_activity(gateways: Gateways) -> None:
    await gateways.create(SPACE, sleep_after="3600")
    gateways.cluster.set_response(LIST_PODS, build_json_response({"kind": "Status"}, 403))
    assert await written_activity(gateways, build(SPACE)) == ""


def build_event(gateways: Gateways, path: str = LIST_PODS, code: int = 200, age: int = 5, **fields: Any) -> Object:
    """An audit event of an agent about a request to the space."""
    at = timestamp(datetime.fromtimestamp(gateways.now - age, UTC))
    return {
        "requestURI": f"/kubernetes/project/{NAMESPACE}/space/one{path}",
        "verb": "list",
        "user": {"username": "anna", "groups": ["team"]},
        "userAgent": KUBECTL,
        "objectRef": {"resource": "pods"},
        "responseStatus": {"code": code},
        "stageTimestamp": at,
        **fields,
    }


async def reported_activity(gateways: Gateways, event: Object, cluster: str = "c") -> str:
    gateways.handler.activity.note_reported(cluster, "", [event])
    await gateways.handler.activity.flush(everything=True)
    return gateways.note(SPACE, "last-activity")


@pytest.mark.parametrize(("age", "noted"), [(5, 5), (-600, 0)])
async def test_a_request_through_an_agent_is_activity(gateways: Gateways, age: int, noted: int) -> None:
    """At the time of the request; the clock of the agent may be ahead."""
    await gateways.create(SPACE, sleep_after="3600")
    before = gateways.now
    found = int(await reported_activity(gateways, build_event(gateways, age=age)))
    assert before - noted <= found <= gateways.now - noted
    assert '"user":"anna"' in gateways.note(SPACE, "last-activity-info")


@pytest.mark.parametrize(
    "fields",
    [
        {"verb": "watch"},
        {"code": 403},
        {"path": "/version", "objectRef": None},
        {"objectRef": {"resource": "selfsubjectaccessreviews"}},
        {"userAgent": "Prometheus/3.1.0"},
        {"userAgent": "robot/1"},
        {"user": {"username": "anna", "groups": ["robots"]}},
        {"requestURI": "/kubernetes/cluster/api/v1/pods"},
        {"requestURI": f"/kubernetes/project/{NAMESPACE}/space/another/api/v1/pods"},
        {"requestURI": ["one"]},
        {"stageTimestamp": "soon"},
    ],
    ids=str,
)
async def test_what_is_no_activity_through_an_agent(gateways: Gateways, fields: dict[str, Any]) -> None:
    await gateways.create(SPACE, sleep_after="3600", ignore_user_agents="robot*", ignore_groups="robots")
    assert await reported_activity(gateways, build_event(gateways, **fields)) == ""


async def test_an_agent_reports_activity_in_its_own_cluster_only(gateways: Gateways) -> None:
    await gateways.create(SPACE, sleep_after="3600")
    assert await reported_activity(gateways, build_event(gateways), "another") == ""


async def test_a_key_whose_requests_do_not_count(gateways: Gateways) -> None:
    await gateways.create(SPACE, sleep_after="3600")
    labels = {"sleepmode.service.sh/ignore-activity": "true"}
    await gateways.api.create("OwnedAccessKey", "k", metadata={"labels": labels}, spec={"user": "anna"})
    assert await written_activity(gateways, build(SPACE)) == ""


async def test_activity_is_written_once_in_a_while_and_at_once_before_a_sleep(gateways: Gateways) -> None:
    await gateways.create(SPACE, sleep_after="3600")
    await gateways.handler(build(SPACE))
    await gateways.handler.activity.flush()
    assert gateways.is_wake_requested(SPACE)
    await gateways.annotate(SPACE, last_activity="1")
    await gateways.handler(build(SPACE))
    await gateways.handler.activity.flush()
    assert gateways.note(SPACE, "last-activity") == "1"
    await gateways.annotate(SPACE, scheduled_sleep=str(gateways.now + 60))
    await asyncio.sleep(1.1)
    await gateways.handler.activity.flush()
    assert gateways.note(SPACE, "last-activity") != "1"


async def test_a_stream_counts_as_long_as_it_is_open(gateways: Gateways) -> None:
    await gateways.create(SPACE, sleep_after="4")
    path = "/api/v1/namespaces/mine/pods/web/log"
    gateways.cluster.set_response(path, build_json_response({"lines": "x" * 100_000}))
    reply = await gateways.handler(build(SPACE, f"{path}?follow=true", "get"))
    assert reply.stream is not None
    await gateways.handler.activity.flush(everything=True)
    await gateways.annotate(SPACE, last_activity="1")
    await asyncio.sleep(1.1)
    await gateways.handler.activity.flush()
    assert gateways.note(SPACE, "last-activity") != "1"
    for close in reply.on_close:
        close()
    await gateways.handler.activity.flush(everything=True)
    await gateways.annotate(SPACE, last_activity="1")
    await asyncio.sleep(1.1)
    await gateways.handler.activity.flush(everything=True)
    assert gateways.note(SPACE, "last-activity") == "1"
    async for _ in reply.stream:
        pass


@pytest.mark.parametrize("root", [SPACE, VIRTUAL_CLUSTER])
async def test_a_request_wakes_and_is_held_until_then(gateways: Gateways, root: str) -> None:
    await gateways.create(root, sleep_after="3600")
    await gateways.put_to_sleep(root)
    held = asyncio.create_task(gateways.handler(build(root)))
    await eventually(lambda: gateways.is_wake_requested(root))
    assert '"message":"woken up by anna"' in gateways.note(root, "last-activity-info")
    await asyncio.sleep(0.2)
    assert not held.done()
    assert gateways.cluster.request_lines() == []
    await gateways.finish_wake(root)
    reply = await held
    assert (reply.status, ("warning", '299 - "woken up by this request"') in reply.headers) == (200, True)
    assert gateways.cluster.request_lines() == [f"GET {LIST_PODS}"]


async def test_discovery_wakes_a_virtual_cluster(gateways: Gateways) -> None:
    """It is what kubectl asks first."""
    await gateways.create(VIRTUAL_CLUSTER, sleep_after="3600")
    await gateways.put_to_sleep(VIRTUAL_CLUSTER)
    held = asyncio.create_task(gateways.handler(build(VIRTUAL_CLUSTER, "/api", "get")))
    await eventually(lambda: gateways.is_wake_requested(VIRTUAL_CLUSTER))
    await gateways.finish_wake(VIRTUAL_CLUSTER)
    assert (await held).status == 200


async def test_a_hundred_requests_cause_one_wake_up_and_one_more_is_too_many(gateways: Gateways) -> None:
    await gateways.create(VIRTUAL_CLUSTER, sleep_after="3600")
    await gateways.put_to_sleep(VIRTUAL_CLUSTER)
    calls = [build(VIRTUAL_CLUSTER) for _ in range(waking.MAX_HELD)]
    for number, call in enumerate(calls):
        call.user = User(f"user-{number % 5}")  # one alone may not have so many
    held = [asyncio.create_task(gateways.handler(call)) for call in calls]
    await eventually(lambda: gateways.is_wake_requested(VIRTUAL_CLUSTER))
    requested = (gateways.api.get(KINDS[VIRTUAL_CLUSTER], "one") or {})["metadata"]["resourceVersion"]
    with pytest.raises(Unavailable) as refused:
        await gateways.handler(build(VIRTUAL_CLUSTER))
    assert refused.value.details.retry_after == waking.RETRY_AFTER_SECONDS
    assert (gateways.api.get(KINDS[VIRTUAL_CLUSTER], "one") or {})["metadata"]["resourceVersion"] == requested
    await gateways.finish_wake(VIRTUAL_CLUSTER)
    assert {reply.status for reply in await asyncio.gather(*held)} == {200}


async def test_one_user_does_not_take_the_places_of_others(gateways: Gateways) -> None:
    await gateways.create(VIRTUAL_CLUSTER, sleep_after="3600")
    await gateways.put_to_sleep(VIRTUAL_CLUSTER)
    calls = [build(VIRTUAL_CLUSTER) for _ in range(waking.MAX_HELD_PER_USER_AND_INSTANCE)]
    held = [asyncio.create_task(gateways.handler(call)) for call in calls]
    await eventually(lambda: gateways.is_wake_requested(VIRTUAL_CLUSTER))
    await asyncio.sleep(0.1)
    with pytest.raises(Unavailable, match="20 other requests of yours wait for it") as refused:
        await gateways.handler(build(VIRTUAL_CLUSTER))
    assert refused.value.details.retry_after == waking.RETRY_AFTER_SECONDS
    other = build(VIRTUAL_CLUSTER)
    other.user = User("ben")
    held.append(asyncio.create_task(gateways.handler(other)))
    await asyncio.sleep(0.1)
    await gateways.finish_wake(VIRTUAL_CLUSTER)
    assert {reply.status for reply in await asyncio.gather(*held)} == {200}
    assert not gateways.handler._waker._held


@pytest.mark.parametrize(
    ("limit", "user", "message"),
    [
        ("MAX_HELD_PER_USER", "anna", "3 other requests of yours wait for instances"),
        ("MAX_HELD_TOTAL", "ben", "3 other requests wait for instances"),
    ],
)
async def test_requests_held_for_all_instances_are_limited(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch, limit: str, user: str, message: str
) -> None:
    monkeypatch.setattr(waking, limit, 3)
    await gateways.create(VIRTUAL_CLUSTER, sleep_after="3600")
    await gateways.put_to_sleep(VIRTUAL_CLUSTER)
    held = [asyncio.create_task(gateways.handler(build(VIRTUAL_CLUSTER))) for _ in range(3)]
    await eventually(lambda: gateways.is_wake_requested(VIRTUAL_CLUSTER))
    await asyncio.sleep(0.1)
    call = build(VIRTUAL_CLUSTER)
    call.user = User(user)
    with pytest.raises(Unavailable, match=message):
        await gateways.handler(call)
    await gateways.finish_wake(VIRTUAL_CLUSTER)
    await asyncio.gather(*held)


async def test_programs_that_ask_by_themselves_do_not_wait_for_a_virtual_cluster(gateways: Gateways) -> None:
    await gateways.create(VIRTUAL_CLUSTER, sleep_after="3600")
    await gateways.set_status(VIRTUAL_CLUSTER, phase="Pending", sleep={"stage": "Starting"})
    async with asyncio.timeout(5):
        with pytest.raises(Unavailable, match="is waking up") as refused:
            await gateways.handler(build(VIRTUAL_CLUSTER, agent="Prometheus/3.1.0"))
    assert refused.value.details.retry_after == waking.RETRY_AFTER_SECONDS


async def test_a_space_whose_wake_up_fails_is_usable(gateways: Gateways) -> None:
    """Its API server is that of the cluster."""
    await gateways.create(SPACE, sleep_after="3600")
    await gateways.set_status(SPACE, phase="Pending", reason="WakeFailed", sleep={"stage": "WakingUp"})
    async with asyncio.timeout(5):
        assert (await gateways.handler(build(SPACE))).status == 200


async def test_a_request_does_not_end_a_sleep_that_a_person_has_just_requested(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "HOLD_SECONDS", 0.2)
    await gateways.create(VIRTUAL_CLUSTER, sleep_after="3600")
    await gateways.put_to_sleep(VIRTUAL_CLUSTER)
    call = build(VIRTUAL_CLUSTER)
    assert call.target.gateway is not None
    id = ("virtualclusterinstances", NAMESPACE, "one")
    seen = gateways.handler._sleep_states.find(id)
    await gateways.annotate(VIRTUAL_CLUSTER, force="true")
    with pytest.raises(Unavailable):
        await gateways.handler._waker.ensure_awake(id, seen, call, call.target.gateway, "it")
    assert gateways.note(VIRTUAL_CLUSTER, "force") == "true"
    assert not gateways.is_wake_requested(VIRTUAL_CLUSTER)


async def test_times_of_writes_are_forgotten(gateways: Gateways, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "MAX_WRITE_SECONDS", 1)
    await gateways.create(SPACE, sleep_after="3600")
    await gateways.handler(build(SPACE))
    await gateways.handler.activity.flush()
    assert gateways.handler.activity._written_at
    await asyncio.sleep(1.1)
    await gateways.handler.activity.flush()
    assert gateways.handler.activity._written_at == {}


async def test_a_request_that_waits_too_long_is_to_be_repeated(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "HOLD_SECONDS", 0.2)
    await gateways.create(VIRTUAL_CLUSTER, sleep_after="3600")
    await gateways.put_to_sleep(VIRTUAL_CLUSTER)
    with pytest.raises(Unavailable, match="is waking up") as refused:
        await gateways.handler(build(VIRTUAL_CLUSTER))
    assert refused.value.details.retry_after == waking.RETRY_AFTER_SECONDS


async def test_a_client_that_leaves_does_not_end_the_wait_of_others(gateways: Gateways) -> None:
    await gateways.create(VIRTUAL_CLUSTER, sleep_after="3600")
    await gateways.put_to_sleep(VIRTUAL_CLUSTER)
    first = asyncio.create_task(gateways.handler(build(VIRTUAL_CLUSTER)))
    await eventually(lambda: gateways.is_wake_requested(VIRTUAL_CLUSTER))
    second = asyncio.create_task(gateways.handler(build(VIRTUAL_CLUSTER)))
    await asyncio.sleep(0.1)
    first.cancel()
    await asyncio.sleep(0.1)
    await gateways.finish_wake(VIRTUAL_CLUSTER)
    assert (await second).status == 200


@pytest.mark.parametrize("sleep_type", ["forcedSleep", "forcedDurationSleep", "scheduledSleep"])
async def test_requests_wake_idle_sleep_only(gateways: Gateways, sleep_type: str) -> None:
    await gateways.create(VIRTUAL_CLUSTER, sleep_after="3600")
    await gateways.put_to_sleep(VIRTUAL_CLUSTER, sleep_type)
    with pytest.raises(Unavailable, match=r"wake it with `fairlead vcluster wake one --project [a-z]+`$") as refused:
        await gateways.handler(build(VIRTUAL_CLUSTER))
    assert refused.value.details.retry_after == 0
    assert not gateways.is_wake_requested(VIRTUAL_CLUSTER)


async def test_a_space_that_sleeps_on_is_still_readable(gateways: Gateways) -> None:
    await gateways.create(SPACE, sleep_after="3600")
    await gateways.put_to_sleep(SPACE, "forcedSleep")
    assert (await gateways.handler(build(SPACE))).status == 200
    assert not gateways.is_wake_requested(SPACE)


@pytest.mark.parametrize(
    "call",
    [
        build(VIRTUAL_CLUSTER, verb="watch", agent="k9s/v0.50"),
        build(VIRTUAL_CLUSTER, verb="watch"),
        build(VIRTUAL_CLUSTER, agent="Prometheus/3.1.0"),
        build(VIRTUAL_CLUSTER, "/version", "get"),
        build(VIRTUAL_CLUSTER, **{"x-sleep-mode-ignore": "true"}),
    ],
    ids=["k9s", "kubectl -w", "prometheus", "version", "header"],
)
async def test_programs_that_ask_by_themselves_wake_nothing(gateways: Gateways, call: Call) -> None:
    await gateways.create(VIRTUAL_CLUSTER, sleep_after="3600")
    await gateways.put_to_sleep(VIRTUAL_CLUSTER)
    with pytest.raises(Unavailable):
        await gateways.handler(call)
    assert not gateways.is_wake_requested(VIRTUAL_CLUSTER)


async def test_a_program_that_watched_before_does_not_wake_it_by_listing_again(gateways: Gateways) -> None:
    await gateways.create(VIRTUAL_CLUSTER, sleep_after="3600")
    await gateways.handler(build(VIRTUAL_CLUSTER, verb="watch", agent="k9s/v0.50"))
    await gateways.handler(build(VIRTUAL_CLUSTER, verb="watch"))
    await gateways.put_to_sleep(VIRTUAL_CLUSTER)
    for call in (
        build(VIRTUAL_CLUSTER, agent="k9s/v0.50"),
        build(VIRTUAL_CLUSTER, f"{LIST_PODS}?resourceVersion=7"),
    ):
        with pytest.raises(Unavailable, match="reconnects by itself"):
            await gateways.handler(call)
    assert not gateways.is_wake_requested(VIRTUAL_CLUSTER)
    # A person with the same client does.
    held = asyncio.create_task(gateways.handler(build(VIRTUAL_CLUSTER, f"{LIST_PODS}?limit=500")))
    await eventually(lambda: gateways.is_wake_requested(VIRTUAL_CLUSTER))
    await gateways.finish_wake(VIRTUAL_CLUSTER)
    assert (await held).status == 200


async def test_a_request_outside_of_the_space_wakes_nothing(gateways: Gateways) -> None:
    await gateways.create(SPACE, sleep_after="3600")
    await gateways.put_to_sleep(SPACE)
    with pytest.raises(Forbidden):
        await gateways.handler(build(SPACE, "/api/v1/namespaces/other/pods"))
    assert not gateways.is_wake_requested(SPACE)


async def test_a_quota_that_forbids_it_is_reported_to_the_user(gateways: Gateways) -> None:
    await gateways.create(VIRTUAL_CLUSTER, sleep_after="3600")
    await gateways.put_to_sleep(VIRTUAL_CLUSTER)

    async def refuse(change: Change, registry: Registry) -> None:
        if change.user.name == "anna":
            raise Forbidden("exceeded quota: project demo")

    refusing = gateways.api.with_rules(refuse)
    gateways.handler._waker._registry = refusing.registry
    with pytest.raises(Forbidden, match="exceeded quota"):
        await gateways.handler(build(VIRTUAL_CLUSTER))
