"""What stands below a cluster's path for its agent, as handlers answer it. Over HTTP: `tests/live/test_agent.py`."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson
import pytest

from fairlead.authn.access_keys import Pepper
from fairlead.authn.component_keys import ComponentKeys
from fairlead.authn.key_rotation import KeyRotator
from fairlead.authn.principals import PrincipalDirectory
from fairlead.core.call import Decision, Reply, RequestInfo
from fairlead.core.clock import SystemClock
from fairlead.core.errors import NotFound, Unavailable
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.kinds.clusters.cluster import AGENT, CLUSTER
from fairlead.registry.informer import Informer
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import server_write_options
from fairlead.server.api.actions import ActionHandler, ActionRequest
from fairlead.server.audit.agent_reports import AgentReports
from fairlead.server.audit.log_writer import AuditLogWriter
from fairlead.subresources.cluster_agents import AgentBootstrapInfo, AgentConfigBuilder, agent_handlers
from tests.harness.calls import ADMIN, call
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.virtual_time import on_virtual_time

PEPPER = Pepper(b"p" * 32)
URL = "https://fairlead.example.com"
MADE = {"conditions": [{"type": "SpaceSynced", "status": "True"}]}
AWAY = {
    "conditions": [
        {"type": "SpaceSynced", "status": "False", "reason": "Unreachable"},
        {"type": "SpaceReady", "status": "Unknown", "reason": "Unreachable"},
    ]
}
TAKEN = {"conditions": [{**each, "status": "False", "reason": "NamespaceConflict"} for each in AWAY["conditions"]]}
NEVER_REACHED = {"conditions": AWAY["conditions"][:1]}
EVENT = {
    "auditID": "1",
    "stage": "ResponseComplete",
    "requestURI": "/kubernetes/cluster/api/v1/pods",
    "verb": "list",
    "user": {"username": "ada", "groups": ["service:user:ada"]},
    "requestReceivedTimestamp": "2026-01-02T03:04:05.000006Z",
    "stageTimestamp": "2026-01-02T03:04:05.000007Z",
    "responseStatus": {"metadata": {}, "code": 200},
    "annotations": {"service.sh/agent": "another"},
    "requestObject": {"data": "x"},
}


class FakeTrail:
    def __init__(self) -> None:
        self.is_full, self.failure, self.lines = False, "", list[bytes]()

    def add(self, line: bytes) -> None:
        self.lines.append(line)

    def unavailable_error(self) -> Unavailable:
        return Unavailable("full")


class Granting:
    """Permissions by what may be used: the names of those who may."""

    def __init__(self, **names: set[str]) -> None:
        self.names = names
        self.changes = self.asked = 0

    def authorize(self, user: User, target: RequestInfo) -> Decision:
        self.asked += 1
        assert (target.verb, target.group, target.version, target.path) == ("use", GROUP, "v1", "")
        return Decision(user.name in self.names.get(f"{target.resource}_{target.name}", ()))

    def generation(self) -> object:
        return self.changes


def handler(api: RegistryFixture, action: str, trail: Any = None, permissions: Granting | None = None) -> ActionHandler:
    async def token_keys() -> Sequence[Object]:
        return [{"kid": "k"}]

    rotation = KeyRotator(api.registry, GROUP, PEPPER, lambda outer, inner: True)
    keys = ComponentKeys(api.registry, GROUP, AGENT, "demo", PEPPER, rotation)
    installation = AgentBootstrapInfo(URL, "instance", GROUP, "service-p-", "fairlead:", lambda: "PEM")
    people = PrincipalDirectory(Informer(api.view, GROUP, "users"), Informer(api.view, GROUP, "teams"))
    configs = AgentConfigBuilder(api.registry, people, token_keys, installation, permissions or Granting())
    given: AuditLogWriter | None = trail
    reports = AgentReports(given, SystemClock())
    return agent_handlers(installation, keys, configs, reports)[GROUP, "clusters", action]


def asked(action: str, body: Object | None = None, *, dry_run: bool = False, etag: str = "") -> ActionRequest:
    kind = next(each.kind for each in CLUSTER.actions if each.name == action)
    assert kind is not None
    return ActionRequest(ADMIN, kind, "get", "", "c", body or {}, dry_run, call(headers={"if-none-match": etag}))


def with_status(space: Object, status: Object) -> Object:
    return {**space, "status": status}


async def configuration(answer: ActionHandler, etag: str = "") -> tuple[Object, str]:
    reply = await answer(asked("agentconfig", etag=etag))
    assert isinstance(reply, Reply)
    told: Object = orjson.loads(reply.body) if reply.body else {"status": reply.status}
    return told, dict(reply.headers)["etag"]


@on_virtual_time
async def test_an_agent_learns_what_tokens_are_verified_with() -> None:
    async with open_registry() as api:
        cluster = await api.create("Cluster", "c")
        told, _ = await configuration(handler(api, "agentconfig"))
        assert told["kind"] == "ClusterAgentConfig" and told["jwks"] == {"keys": [{"kid": "k"}]}
        assert (told["cluster"], told["clusterUID"]) == ("c", cluster["metadata"]["uid"])
        assert (told["issuer"], told["serviceHost"], told["serviceInstanceID"]) == (URL, URL, "instance")
        assert (told["apiGroup"], told["projectNamespacePrefix"]) == (GROUP, "service-p-")
        assert told["clusterIdentityPrefix"] == "fairlead:"


@on_virtual_time
async def test_only_who_is_in_force_is_in_it_and_a_change_changes_the_etag() -> None:
    async with open_registry() as api:
        await api.create("Cluster", "c")
        made = await api.create("User", "ada", spec={"username": "ada", "tokenGeneration": 7, "groups": ["x"]})
        await api.create("User", "bob", spec={"username": "bob", "disabled": True})
        await api.create("Team", "ops", spec={"users": ["ada"]})
        answer = handler(api, "agentconfig")
        told, etag = await configuration(answer)
        (ada,) = told["identities"]["users"]
        assert ada == {"uid": made["metadata"]["uid"], "generation": 7, "groups": ["x", "service:team:ops"]}
        assert len(told["identities"]["teams"]) == 1
        assert await configuration(answer, etag) == ({"status": 304}, etag)
        await api.create("User", "cal", spec={"username": "cal"})
        told, after = await configuration(answer, etag)
        assert after != etag and len(told["identities"]["users"]) == 2


@on_virtual_time
async def test_spaces_are_those_that_have_their_namespace_in_this_cluster() -> None:
    async with open_registry() as api:
        await api.create("Cluster", "c")
        await api.submit("Namespace", api.body("Namespace", "service-p-web"), server_write_options())
        spaces: tuple[tuple[str, str, Object], ...] = (
            *(("s", "c", MADE), ("elsewhere", "d", MADE), ("waiting", "c", {})),
            *(("taken", "c", TAKEN), ("away", "c", AWAY), ("never-reached", "c", NEVER_REACHED)),
        )
        for name, cluster, status in spaces:
            spec = {"clusterRef": {"cluster": cluster, "namespace": f"web-{name}"}}
            await api.create("SpaceInstance", name, "service-p-web", spec=spec)
            edit = partial(with_status, status=status)
            await api.of("SpaceInstance").modify("service-p-web", name, edit, server_write_options("status"))
        told, _ = await configuration(handler(api, "agentconfig"))
        away, space = told["spaces"]
        assert away["name"] == "away", "what was made stays while this server cannot reach the cluster"
        assert (space["project"], space["name"], space["namespace"]) == ("web", "s", "web-s")


async def a_space(api: RegistryFixture) -> None:
    await api.submit("Namespace", api.body("Namespace", "service-p-web"), server_write_options())
    spec = {"clusterRef": {"cluster": "c", "namespace": "web-s"}}
    await api.create("SpaceInstance", "s", "service-p-web", spec=spec)
    edit = partial(with_status, status=MADE)
    await api.of("SpaceInstance").modify("service-p-web", "s", edit, server_write_options("status"))


@on_virtual_time
async def test_t13_an_agent_learns_who_may_use_its_cluster_and_each_space() -> None:
    async with open_registry() as api:
        await api.create("Cluster", "c")
        await a_space(api)
        uids = {}
        for kind, name in (("User", "ada"), ("User", "bob"), ("Team", "ops")):
            spec = {"username": name} if kind == "User" else {}
            uids[name] = (await api.create(kind, name, spec=spec))["metadata"]["uid"]
        granting = Granting(clusters_c={"ada", "service:team:ops"}, spaceinstances_s={"bob"})
        answer = handler(api, "agentconfig", permissions=granting)
        told, etag = await configuration(answer)
        assert told["allowed"] == [uids["ada"], uids["ops"]]
        assert [space["allowed"] for space in told["spaces"]] == [[uids["bob"]]]
        count = granting.asked
        assert await configuration(answer, etag) == ({"status": 304}, etag)
        assert granting.asked == count, "nothing has changed that it would have to be asked about"
        granting.names, granting.changes = {"clusters_c": {"bob"}}, 1
        await api.create("ClusterRole", "r")  # permissions change with an object
        told, after = await configuration(answer, etag)
        assert after != etag and told["allowed"] == [uids["bob"]] and told["spaces"][0]["allowed"] == []


@on_virtual_time
async def test_who_may_use_an_object_that_is_shared_otherwise_is_asked_again() -> None:
    async with open_registry() as api:
        await api.create("Cluster", "c")
        uid = (await api.create("User", "ada", spec={"username": "ada"}))["metadata"]["uid"]
        granting = Granting()
        answer = handler(api, "agentconfig", permissions=granting)
        assert (await configuration(answer))[0]["allowed"] == []
        granting.names = {"clusters_c": {"ada"}}
        shared = {"access": [{"name": "people", "users": ["ada"], "verbs": ["use"]}]}
        await api.of("Cluster").modify("", "c", lambda cluster: {**cluster, "spec": shared}, server_write_options())
        assert (await configuration(answer))[0]["allowed"] == [uid]


@on_virtual_time
async def test_without_permissions_to_ask_nobody_may_use_anything() -> None:
    async with open_registry() as api:
        await api.create("Cluster", "c")
        await a_space(api)
        await api.create("User", "ada", spec={"username": "ada", "groups": ["system:masters"]})
        told, _ = await configuration(handler(api, "agentconfig"))
        assert told["allowed"] == [] and told["spaces"][0]["allowed"] == []


@on_virtual_time
async def test_a_cluster_that_does_not_exist_has_no_agent() -> None:
    async with open_registry() as api:
        for action in ("agentconfig", "accesskey"):
            with pytest.raises(NotFound, match="not found"):
                await handler(api, action)(asked(action))


@on_virtual_time
async def test_reported_events_are_written_with_the_cluster_that_they_are_from() -> None:
    async with open_registry() as api:
        trail = FakeTrail()
        body = {"spec": {"events": [EVENT, {"no": "event"}], "dropped": 2, "activity": [{"user": "ada"}]}}
        told = await handler(api, "agentreport", trail)(asked("agentreport", body))
        assert isinstance(told, dict) and told["status"] == {"recorded": 1}
        line, lost = trail.lines
        assert orjson.loads(lost)["annotations"]["service.sh/summary-count"] == "3"
        event = orjson.loads(line)
        assert event["annotations"] == {"service.sh/agent": "c"} and "requestObject" not in event
        assert (event["user"]["username"], event["level"], event["responseStatus"]["code"]) == ("ada", "Metadata", 200)


@on_virtual_time
async def test_a_rehearsal_writes_nothing_and_neither_does_a_log_that_is_full() -> None:
    async with open_registry() as api:
        trail = FakeTrail()
        body = {"spec": {"events": [EVENT]}}
        answer = handler(api, "agentreport", trail)
        await answer(asked("agentreport", body, dry_run=True))
        trail.is_full = True
        with pytest.raises(Unavailable):
            await answer(asked("agentreport", body))
        assert trail.lines == []


@on_virtual_time
async def test_without_an_audit_log_nothing_is_recorded_and_that_is_said() -> None:
    async with open_registry() as api:
        told = await handler(api, "agentreport")(asked("agentreport", {"spec": {"events": [EVENT]}}))
        assert isinstance(told, dict) and told["status"] == {"recorded": 0}
