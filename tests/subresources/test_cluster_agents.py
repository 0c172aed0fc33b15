"""The handlers of the subresources of clusters for their agents. Over HTTP: `tests/live/test_agent.py`."""

from collections.abc import Callable, Sequence
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
from fairlead.core.errors import Conflict, NotFound, Unavailable
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.kinds.clusters.cluster import AGENT, CLUSTER
from fairlead.registry.informer import Informer
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import server_write_options
from fairlead.server.api.actions import ActionHandler, ActionRequest
from fairlead.server.audit.agent_reports import AgentReports
from fairlead.server.audit.log_writer import AuditLogWriter
from fairlead.subresources.clusters import AgentBootstrapInfo, AgentConfigBuilder, agent_handlers
from tests.harness.calls import ADMIN, call
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.virtual_time import on_virtual_time

PEPPER = Pepper(b"p" * 32)
URL = "https://fairlead.example.com"
SYNCED = {"conditions": [{"type": "SpaceSynced", "status": "True"}]}
UNREACHABLE = {
    "conditions": [
        {"type": "SpaceSynced", "status": "False", "reason": "Unreachable"},
        {"type": "SpaceReady", "status": "Unknown", "reason": "Unreachable"},
    ]
}
CONFLICT = {
    "conditions": [{**each, "status": "False", "reason": "NamespaceConflict"} for each in UNREACHABLE["conditions"]]
}
NEVER_REACHED = {"conditions": UNREACHABLE["conditions"][:1]}
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


class FakeLogWriter:
    def __init__(self) -> None:
        self.is_full, self.failure, self.lines = False, "", list[bytes]()

    def add(self, line: bytes) -> None:
        self.lines.append(line)

    def unavailable_error(self) -> Unavailable:
        return Unavailable("full")


class UseAuthorizer:
    """Allows the verb `use` to the given names of users, by resource and name."""

    def __init__(self, **names: set[str]) -> None:
        self.names = names
        self.changes = self.authorize_calls = 0

    def authorize(self, user: User, target: RequestInfo) -> Decision:
        self.authorize_calls += 1
        assert (target.verb, target.group, target.version, target.path) == ("use", GROUP, "v1", "")
        return Decision(user.name in self.names.get(f"{target.resource}_{target.name}", ()))

    def generation(self) -> object:
        return self.changes


def _note_nothing(cluster: str, events: Sequence[Object]) -> None:
    pass


def build_handler(
    api: RegistryFixture,
    action: str,
    log_writer: Any = None,
    authorizer: UseAuthorizer | None = None,
    note_activity: Callable[[str, Sequence[Object]], None] | None = None,
) -> ActionHandler:
    async def token_keys() -> Sequence[Object]:
        return [{"kid": "k"}]

    rotator = KeyRotator(api.registry, GROUP, PEPPER, lambda outer, inner: True)
    keys = ComponentKeys(api.registry, GROUP, AGENT, "demo", PEPPER, rotator)
    installation = AgentBootstrapInfo(URL, lambda: "instance", GROUP, "service-p-", "fairlead:", lambda: "PEM")
    principals = PrincipalDirectory(Informer(api.view, GROUP, "users"), Informer(api.view, GROUP, "teams"))
    configs = AgentConfigBuilder(api.registry, principals, token_keys, installation, authorizer or UseAuthorizer())
    audit_log: AuditLogWriter | None = log_writer
    reports = AgentReports(audit_log, SystemClock())
    return agent_handlers(installation, keys, configs, reports, note_activity or _note_nothing)[
        GROUP, "clusters", action
    ]


def action_request(action: str, body: Object | None = None, *, dry_run: bool = False, etag: str = "") -> ActionRequest:
    kind = next(each.kind for each in CLUSTER.actions if each.name == action)
    assert kind is not None
    return ActionRequest(ADMIN, kind, "get", "", "c", body or {}, dry_run, call(headers={"if-none-match": etag}))


def with_status(space: Object, status: Object) -> Object:
    return {**space, "status": status}


async def fetch_config(handler: ActionHandler, etag: str = "") -> tuple[Object, str]:
    reply = await handler(action_request("agentconfig", etag=etag))
    assert isinstance(reply, Reply)
    body: Object = orjson.loads(reply.body) if reply.body else {"status": reply.status}
    return body, dict(reply.headers)["etag"]


@on_virtual_time
async def test_the_config_has_the_keys_of_tokens_and_the_installation() -> None:
    async with open_registry() as api:
        cluster = await api.create("Cluster", "c")
        config, _ = await fetch_config(build_handler(api, "agentconfig"))
        assert config["kind"] == "ClusterAgentConfig" and config["jwks"] == {"keys": [{"kid": "k"}]}
        assert (config["cluster"], config["clusterUID"]) == ("c", cluster["metadata"]["uid"])
        assert (config["issuer"], config["serviceHost"], config["serviceInstanceID"]) == (URL, URL, "instance")
        assert (config["apiGroup"], config["projectNamespacePrefix"]) == (GROUP, "service-p-")
        assert config["clusterIdentityPrefix"] == "fairlead:"


@on_virtual_time
async def test_an_agent_gets_no_config_while_another_installation_uses_the_same_names() -> None:
    async with open_registry() as api:
        await api.create("Cluster", "c")
        status = {"identity": {"prefix": "fairlead:", "otherInstallation": "id-1"}}
        await api.patch("Cluster", "c", lambda each: each.update(status=status), server_write_options("status"))
        with pytest.raises(Conflict, match="another Fairlead"):
            await fetch_config(build_handler(api, "agentconfig"))


@on_virtual_time
async def test_the_config_has_active_users_only_and_its_etag_follows_changes() -> None:
    async with open_registry() as api:
        await api.create("Cluster", "c")
        created = await api.create("User", "ada", spec={"username": "ada", "tokenGeneration": 7, "groups": ["x"]})
        await api.create("User", "bob", spec={"username": "bob", "disabled": True})
        await api.create("Team", "ops", spec={"users": ["ada"]})
        handler = build_handler(api, "agentconfig")
        config, etag = await fetch_config(handler)
        (ada,) = config["identities"]["users"]
        assert ada == {"uid": created["metadata"]["uid"], "generation": 7, "groups": ["x", "service:team:ops"]}
        assert len(config["identities"]["teams"]) == 1
        assert await fetch_config(handler, etag) == ({"status": 304}, etag)
        await api.create("User", "cal", spec={"username": "cal"})
        config, after = await fetch_config(handler, etag)
        assert after != etag and len(config["identities"]["users"]) == 2


@on_virtual_time
async def test_the_config_has_the_spaces_with_a_namespace_in_this_cluster() -> None:
    async with open_registry() as api:
        await api.create("Cluster", "c")
        await api.submit("Namespace", api.build_object("Namespace", "service-p-web"), server_write_options())
        spaces: tuple[tuple[str, str, Object], ...] = (
            *(("s", "c", SYNCED), ("elsewhere", "d", SYNCED), ("waiting", "c", {})),
            *(("taken", "c", CONFLICT), ("away", "c", UNREACHABLE), ("never-reached", "c", NEVER_REACHED)),
        )
        for name, cluster, status in spaces:
            spec = {"clusterRef": {"cluster": cluster, "namespace": f"web-{name}"}}
            await api.create("SpaceInstance", name, "service-p-web", spec=spec)
            edit = partial(with_status, status=status)
            await api.resource("SpaceInstance").modify("service-p-web", name, edit, server_write_options("status"))
        config, _ = await fetch_config(build_handler(api, "agentconfig"))
        unreachable, space = config["spaces"]
        assert unreachable["name"] == "away", "a created space stays while the server cannot reach the cluster"
        assert (space["project"], space["name"], space["namespace"]) == ("web", "s", "web-s")


async def create_space(api: RegistryFixture) -> None:
    await api.submit("Namespace", api.build_object("Namespace", "service-p-web"), server_write_options())
    spec = {"clusterRef": {"cluster": "c", "namespace": "web-s"}}
    await api.create("SpaceInstance", "s", "service-p-web", spec=spec)
    edit = partial(with_status, status=SYNCED)
    await api.resource("SpaceInstance").modify("service-p-web", "s", edit, server_write_options("status"))


@on_virtual_time
async def test_t13_the_config_has_the_users_of_the_cluster_and_of_each_space() -> None:
    async with open_registry() as api:
        await api.create("Cluster", "c")
        await create_space(api)
        uids = {}
        for kind, name in (("User", "ada"), ("User", "bob"), ("Team", "ops")):
            spec = {"username": name} if kind == "User" else {}
            uids[name] = (await api.create(kind, name, spec=spec))["metadata"]["uid"]
        authorizer = UseAuthorizer(clusters_c={"ada", "service:team:ops"}, spaceinstances_s={"bob"})
        handler = build_handler(api, "agentconfig", authorizer=authorizer)
        config, etag = await fetch_config(handler)
        assert config["allowed"] == [uids["ada"], uids["ops"]]
        assert [space["allowed"] for space in config["spaces"]] == [[uids["bob"]]]
        count = authorizer.authorize_calls
        assert await fetch_config(handler, etag) == ({"status": 304}, etag)
        assert authorizer.authorize_calls == count, "nothing changed, so that nothing is authorized again"
        authorizer.names, authorizer.changes = {"clusters_c": {"bob"}}, 1
        await api.create("ClusterRole", "r")  # permissions change with a write of an object
        config, after = await fetch_config(handler, etag)
        assert after != etag and config["allowed"] == [uids["bob"]] and config["spaces"][0]["allowed"] == []


@on_virtual_time
async def test_a_change_of_the_access_entries_is_authorized_again() -> None:
    async with open_registry() as api:
        await api.create("Cluster", "c")
        uid = (await api.create("User", "ada", spec={"username": "ada"}))["metadata"]["uid"]
        authorizer = UseAuthorizer()
        handler = build_handler(api, "agentconfig", authorizer=authorizer)
        assert (await fetch_config(handler))[0]["allowed"] == []
        authorizer.names = {"clusters_c": {"ada"}}
        spec = {"access": [{"name": "people", "users": ["ada"], "verbs": ["use"]}]}
        await api.resource("Cluster").modify("", "c", lambda cluster: {**cluster, "spec": spec}, server_write_options())
        assert (await fetch_config(handler))[0]["allowed"] == [uid]


@on_virtual_time
async def test_without_permissions_the_config_has_no_allowed_users() -> None:
    async with open_registry() as api:
        await api.create("Cluster", "c")
        await create_space(api)
        await api.create("User", "ada", spec={"username": "ada", "groups": ["system:masters"]})
        config, _ = await fetch_config(build_handler(api, "agentconfig"))
        assert config["allowed"] == [] and config["spaces"][0]["allowed"] == []


@on_virtual_time
async def test_the_subresources_of_a_missing_cluster_are_not_found() -> None:
    async with open_registry() as api:
        for action in ("agentconfig", "accesskey"):
            with pytest.raises(NotFound, match="not found"):
                await build_handler(api, action)(action_request(action))


@on_virtual_time
async def test_reported_events_are_written_with_the_name_of_the_cluster() -> None:
    async with open_registry() as api:
        log_writer = FakeLogWriter()
        body = {"spec": {"events": [EVENT, {"no": "event"}], "dropped": 2, "activity": [{"user": "ada"}]}}
        reply = await build_handler(api, "agentreport", log_writer)(action_request("agentreport", body))
        assert isinstance(reply, dict) and reply["status"] == {"recorded": 1}
        line, dropped = log_writer.lines
        assert orjson.loads(dropped)["annotations"]["service.sh/summary-count"] == "3"
        event = orjson.loads(line)
        assert event["annotations"] == {"service.sh/agent": "c"} and "requestObject" not in event
        assert (event["user"]["username"], event["level"], event["responseStatus"]["code"]) == ("ada", "Metadata", 200)


@on_virtual_time
async def test_reported_events_are_use_of_the_cluster() -> None:
    async with open_registry() as api:
        noted: list[tuple[str, Sequence[Object]]] = []
        handler = build_handler(
            api, "agentreport", note_activity=lambda cluster, events: noted.append((cluster, events))
        )
        body = {"spec": {"events": [EVENT]}}
        await handler(action_request("agentreport", body, dry_run=True))
        assert noted == []
        await handler(action_request("agentreport", body))
        assert noted == [("c", [EVENT])]


@on_virtual_time
async def test_a_dry_run_and_a_full_log_write_nothing() -> None:
    async with open_registry() as api:
        log_writer = FakeLogWriter()
        body = {"spec": {"events": [EVENT]}}
        handler = build_handler(api, "agentreport", log_writer)
        await handler(action_request("agentreport", body, dry_run=True))
        log_writer.is_full = True
        with pytest.raises(Unavailable):
            await handler(action_request("agentreport", body))
        assert log_writer.lines == []


@on_virtual_time
async def test_without_an_audit_log_the_reply_says_that_nothing_was_recorded() -> None:
    async with open_registry() as api:
        reply = await build_handler(api, "agentreport")(action_request("agentreport", {"spec": {"events": [EVENT]}}))
        assert isinstance(reply, dict) and reply["status"] == {"recorded": 0}
