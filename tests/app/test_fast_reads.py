"""The fast path of reads answers as the pipeline does, or leaves the request to it: `server/fast_reads.py`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from fairlead.app.default_objects import ensure_default_objects
from fairlead.app.drain import Drain
from fairlead.app.http import build_app
from fairlead.authn.bootstrap import ensure_admin
from fairlead.client.admin_kubeconfig import MANAGEMENT_PATH
from fairlead.core.call import Call, Reply
from fairlead.core.objects import Object
from fairlead.kinds.clusters.config import CONFIG_NAME
from fairlead.server.audit.log import AuditLog
from fairlead.server.audit.policy import METADATA, Policy, PolicyRule
from fairlead.server.audit.stage import AuditStage
from fairlead.server.fast_reads import NOT_SERVED, FastReads, KnownHeaders
from fairlead.server.http.asgi import AsgiApp, AsgiScope
from fairlead.server.http.origins import ClientConnection, ClientConnections, Origins, TrustedProxies
from fairlead.server.http.unsent import MAX_SMALL_BYTES, ClientMemoryLimiter
from fairlead.settings import Settings
from fairlead.storage.memory import MemoryStore
from tests.harness.audit import BASICS, EVERYTHING, OK, open_audit
from tests.harness.services import ServicesFixture, open_services
from tests.harness.virtual_time import on_virtual_time

API = f"{MANAGEMENT_PATH}/apis/management.service.sh/v1"
RBAC = f"{MANAGEMENT_PATH}/apis/rbac.authorization.k8s.io/v1"
CORE = f"{MANAGEMENT_PATH}/api/v1"
MERGE_PATCH = "application/merge-patch+json"
PROXY = "192.0.2.1"
Pairs = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass(slots=True)
class FastServer:
    """A server on no port, with two applications: `plain` has no fast path, and the same pipeline.

    `fast` has the requests that the fast path has answered.
    """

    services: ServicesFixture
    app: AsgiApp
    plain: AsgiApp
    memory: ClientMemoryLimiter
    connections: ClientConnections
    answer_fast: Callable[[AsgiScope], tuple[Call, Reply] | None]
    admin: str = ""
    fast: list[Call] = field(default_factory=list)

    async def read(self, path: str, headers: Pairs, **scope: Any) -> Answer:
        """The answer of the fast path, or what it leaves to the pipeline. Both were seen to be the same."""
        answers = [
            await send(app, "GET", path, headers, **scope) for app in (self.plain, self.app, self.plain, self.app)
        ]
        assert [answers[0]] * 4 == answers
        return answers[0]

    async def is_read_fast(self, path: str, headers: Pairs, **scope: Any) -> bool:
        before = len(self.fast)
        await self.read(path, headers, **scope)
        return len(self.fast) == before + 2

    async def write(self, method: str, path: str, obj: Object, media_type: str = "application/json") -> Object:
        content = [(b"content-type", media_type.encode())]
        answer = await send(self.app, method, path, [*key_headers(self.admin), *content], orjson.dumps(obj))
        assert answer.status in (200, 201), answer
        found: Object = orjson.loads(answer.body)
        return found

    async def create(self, plural: str, kind: str, name: str, root: str = API, **content: Any) -> Object:
        version = root.rpartition("/apis/")[2] if "/apis/" in root else "v1"
        metadata = {"name": name, **content.pop("metadata", {})}
        obj = {"apiVersion": version, "kind": kind, "metadata": metadata, **content}
        return await self.write("POST", f"{root}/{plural}", obj)

    async def add_key(self, name: str, user: str, **spec: Any) -> Pairs:
        """The headers of a new key."""
        key = await self.create("ownedaccesskeys", "OwnedAccessKey", name, spec={"user": user, **spec})
        return key_headers(key["spec"]["key"])


def key_headers(key: str, accept: bytes = b"application/json") -> Pairs:
    return [(b"host", b"localhost"), (b"authorization", b"Bearer " + key.encode()), (b"accept", accept)]


def build_scope(method: str, path: str, headers: Pairs, client: str = "127.0.0.1", query: str = "") -> AsgiScope:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": headers,
        "client": (client, 40000),
    }


async def send(
    app: AsgiApp, method: str, path: str, headers: Pairs, body: bytes = b"", client: str = "127.0.0.1", query: str = ""
) -> Answer:
    length = [(b"content-length", str(len(body)).encode())] if body else []
    path, _, query = path.partition("?") if "?" in path else (path, "", query)
    scope = build_scope(method, path, [*headers, *length], client, query)
    sent = list[dict[str, Any]]()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def keep(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, keep)
    await asyncio.sleep(0)  # flow control counts the time of an iteration of the event loop
    kept = tuple(pair for pair in sent[0]["headers"] if pair[0] != b"audit-id")
    return Answer(sent[0]["status"], kept, b"".join(message["body"] for message in sent[1:]))


@asynccontextmanager
async def open_server(data: Path, audit: AuditStage | None = None) -> AsyncIterator[FastServer]:
    async with open_services(Settings(data=data)) as fixture:
        log = None if audit is None else cast("AuditLog", SimpleNamespace(stage=audit))
        services, memory, connections = replace(fixture.services, audit=log), ClientMemoryLimiter(), ClientConnections()
        origins = Origins(TrustedProxies([f"{PROXY}/32"]), connections)
        registry, auth = services.registry, services.auth
        await ensure_default_objects(registry, services.api_group, update_roles=True)
        app = build_app(services, fixture.features, memory, None, Drain(), origins)
        plain = AsgiApp(app._handle, services.settings.body_limit, memory, origins)
        answer_fast = app._answer_fast
        assert answer_fast is not None
        server = FastServer(fixture, app, plain, memory, connections, answer_fast)

        def answer(scope: AsgiScope) -> tuple[Call, Reply] | None:
            found = answer_fast(scope)
            if found is not None:
                server.fast.append(found[0])
            return found

        app._answer_fast = answer
        key = await ensure_admin(services.store, registry.view, auth.pepper, services.api_group, registry.clock)
        assert key
        server.admin = key
        await registry.view.wait_current()
        await server.create("users", "User", "ada", spec={"username": "ada"})
        await server.create("apps", "App", "shop", spec={"displayName": "Shop"})
        yield server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FastServer]:
    async with open_server(tmp_path) as opened:
        yield opened


SHOP = f"{API}/apps/shop"
CLUSTER_ROLE = f"{RBAC}/clusterroles/reads-shop"


def read_rule(resource: str, group: str) -> Object:
    """A rule of a scope."""
    return {"verbs": ["get"], "resources": [{"group": group, "resources": [resource]}]}


async def allow_reads(server: FastServer, name: str, *names: str) -> None:
    """A ClusterRole and its binding to ada."""
    rule = {"apiGroups": ["management.service.sh"], "resources": ["apps"], "verbs": ["get"], "resourceNames": [*names]}
    await server.create("clusterroles", "ClusterRole", name, RBAC, rules=[rule])
    subject = {"kind": "User", "name": "ada", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    await server.create("clusterrolebindings", "ClusterRoleBinding", name, RBAC, subjects=[subject], roleRef=role)


async def test_a_read_is_answered_at_once_once_its_key_is_known(server: FastServer) -> None:
    headers = key_headers(server.admin)
    assert (await send(server.app, "GET", SHOP, headers)).status == 200
    assert len(server.fast) == 0 or server.fast[0].user is not None
    assert await server.is_read_fast(SHOP, headers)
    call = server.fast[-1]
    assert (call.target.verb, call.target.resource, call.target.name) == ("get", "apps", "shop")
    assert call.decision is not None
    assert call.decision.allowed


PLAIN_HEADERS: Pairs = [(b"user-agent", b"fairlead/1"), (b"accept-encoding", b"gzip"), (b"x-request-id", b"1")]
OTHER_HEADERS = {
    "a table": [(b"accept", b"application/json;as=Table;v=v1;g=meta.k8s.io, application/json")],
    "YAML": [(b"accept", b"application/yaml")],
    "nothing acceptable": [(b"accept", b"image/png")],
    "curl": [(b"user-agent", b"curl/8")],
    "another user": [(b"impersonate-user", b"ada")],
    "a group of another user": [(b"impersonate-group", b"x")],
    "a body": [(b"content-length", b"2")],
    "a chunked body": [(b"transfer-encoding", b"chunked")],
    "two hosts": [(b"host", b"localhost")],
    "two keys": [(b"authorization", b"Bearer fairlead_x")],
    "an invalid encoding": [(b"transfer-encoding", b"gzip")],
    "large headers": [(b"x-large", b"x" * 70_000)],
    "many headers": [(b"x-many", b"")] * 40,
    "a cookie": [(b"cookie", b"__Host-service_access_key=x")],
    "a credential for a proxy": [(b"proxy-authorization", b"Basic x")],
}


@pytest.mark.parametrize("name", OTHER_HEADERS)
async def test_other_headers_are_left_to_the_pipeline(server: FastServer, name: str) -> None:
    other = OTHER_HEADERS[name]
    usual = [pair for pair in key_headers(server.admin) if pair[0] != b"accept" or other[0][0] != b"accept"]
    assert not await server.is_read_fast(SHOP, [*usual, *other])
    assert await server.is_read_fast(SHOP, [*key_headers(server.admin), *PLAIN_HEADERS])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"host", b"localhost")],
        [(b"host", b"local host"), (b"authorization", b"Bearer KEY")],
        [(b"authorization", b"Bearer KEY")],
        [(b"host", b"localhost"), (b"authorization", b"Bearer fairlead_unknown")],
        [(b"host", b"localhost"), (b"authorization", b"Basic KEY")],
        [(b"host", b"localhost"), (b"authorization", b"Bearer \xff")],
        [(b"host", b"localhost"), (b"authorization", b"Bearer " + b"x" * 5_000)],
        [(b"host", b"localhost"), (b"cookie", b"__Host-service_access_key=KEY")],
    ],
)
async def test_without_a_key_in_its_header_nothing_is_read_fast(server: FastServer, headers: Pairs) -> None:
    sent = [(name, value.replace(b"KEY", server.admin.encode())) for name, value in headers]
    assert not await server.is_read_fast(SHOP, sent)


PATHS = (
    *(SHOP, CLUSTER_ROLE, f"{API}/users/ada", f"{CORE}/namespaces/service-system"),
    *(f"{API}/apps", f"{API}/apps/none", f"{API}/apps/shop/status", f"{API}/apps/shop/none", f"{API}/nothings/shop"),
    *(f"{API}/apps/shop/", f"{API}/apps/..", f"{API}/namespaces/none/apps/shop", f"{CORE}/namespaces/none"),
    *(f"{MANAGEMENT_PATH}/version", "/version", "/healthz", "/", f"{API}/users/ada/profile"),
    *("/kubernetes/cluster/none/api/v1/namespaces/x", f"{MANAGEMENT_PATH}//apis/management.service.sh/v1/apps/shop"),
    f"{CORE}/namespaces/service-system/secrets/none",
)


async def test_each_path_is_answered_alike_for_each_key(server: FastServer) -> None:
    """`read` compares the fast path with the pipeline."""
    await allow_reads(server, "reads-shop", "shop")
    scope = {"rules": [read_rule("apps", "management.service.sh")]}
    keys = [
        key_headers(server.admin),
        await server.add_key("of-ada", "ada"),
        await server.add_key("of-admin-scoped", "admin", scope=scope),
    ]
    statuses = [[(await server.read(path, headers)).status for path in PATHS] for headers in keys]
    assert statuses[0][:3] == [200, 200, 200]
    assert statuses[1][0] == 200
    assert 403 in statuses[1]
    assert {call.user.name for call in server.fast if call.user is not None} >= {"admin", "ada"}


@pytest.mark.parametrize("query", ["pretty=true", "resourceVersion=0", "export=true", "x=y", "timeout=x"])
async def test_a_query_is_left_to_the_pipeline(server: FastServer, query: str) -> None:
    assert not await server.is_read_fast(SHOP, key_headers(server.admin), query=query)


async def delete_key(server: FastServer) -> None:
    await server.write("DELETE", f"{API}/ownedaccesskeys/of-ada", {})


async def disable_key(server: FastServer) -> None:
    await server.write("PATCH", f"{API}/ownedaccesskeys/of-ada", {"spec": {"disabled": True}}, MERGE_PATCH)


async def disable_user(server: FastServer) -> None:
    await server.write("PATCH", f"{API}/users/ada", {"spec": {"disabled": True}}, MERGE_PATCH)


async def scope_key(server: FastServer) -> None:
    scope = {"rules": [read_rule("secrets", "")]}
    await server.write("PATCH", f"{API}/ownedaccesskeys/of-ada", {"spec": {"scope": scope}}, MERGE_PATCH)


async def delete_binding(server: FastServer) -> None:
    await server.write("DELETE", f"{RBAC}/clusterrolebindings/reads-shop", {})


async def change_role(server: FastServer) -> None:
    await server.write("PATCH", f"{RBAC}/clusterroles/reads-shop", {"rules": []}, MERGE_PATCH)


async def delete_object(server: FastServer) -> None:
    await server.write("DELETE", SHOP, {})


async def change_object(server: FastServer) -> None:
    await server.write("PATCH", SHOP, {"spec": {"displayName": "Another"}}, MERGE_PATCH)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (delete_key, 401),
        (disable_key, 401),
        (disable_user, 401),
        (scope_key, 403),
        (delete_binding, 403),
        (change_role, 403),
        (delete_object, 404),
        (change_object, 200),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_change_takes_effect_with_the_next_request(server: FastServer, change: Any, status: int) -> None:
    await allow_reads(server, "reads-shop", "shop")
    headers = await server.add_key("of-ada", "ada")
    assert await server.is_read_fast(SHOP, headers)
    before = await send(server.app, "GET", SHOP, headers)
    await change(server)
    after = await send(server.app, "GET", SHOP, headers)
    assert after.status == status
    assert after.body != before.body
    assert await server.read(SHOP, headers) == after


@pytest.mark.parametrize("slides", [False, True])
@on_virtual_time
async def test_a_key_that_expires_is_rejected_then(tmp_path: Path, slides: bool) -> None:
    async with open_server(tmp_path) as server:
        await check_expiry(server, slides)


async def check_expiry(server: FastServer, slides: bool) -> None:
    headers = await server.add_key("of-ada", "ada", ttl=60, ttlAfterLastActivity=slides)
    path = f"{API}/users/ada"
    assert await server.is_read_fast(path, headers)
    await asyncio.sleep(59.5)
    assert await server.is_read_fast(path, headers)
    await asyncio.sleep(1)
    assert (await server.read(path, headers)).status == (200 if slides else 401)
    await asyncio.sleep(61)
    assert (await server.read(path, headers)).status == 401


async def test_custom_headers_are_left_to_the_pipeline(server: FastServer) -> None:
    headers = key_headers(server.admin)
    assert await server.is_read_fast(SHOP, headers)
    raw = "auth:\n  customHttpHeaders:\n    x-from: us\n"
    config = {"apiVersion": "management.service.sh/v1", "kind": "Config", "metadata": {"name": CONFIG_NAME}}
    patch = {**config, "spec": {"raw": raw}}
    await server.write("PATCH", f"{API}/configs/{CONFIG_NAME}?fieldManager=test", patch, "application/apply-patch+yaml")
    answer = await server.read(SHOP, headers)
    assert (b"x-from", b"us") in answer.headers


async def test_a_large_object_is_left_to_the_pipeline(server: FastServer) -> None:
    note = {"note": "x" * MAX_SMALL_BYTES}
    await server.create("apps", "App", "large", metadata={"annotations": note}, spec={"displayName": "Large"})
    headers = key_headers(server.admin)
    assert await server.is_read_fast(SHOP, headers)
    assert not await server.is_read_fast(f"{API}/apps/large", headers)


async def test_other_connections_are_left_to_the_pipeline(server: FastServer) -> None:
    """Those with client certificates, and those that are closed."""
    headers = key_headers(server.admin)
    server.connections["relayed"] = ClientConnection("192.0.2.7", 1)
    for client, expected in {"127.0.0.1": True, "relayed": False, "/run/x": False, "": False, PROXY: True}.items():
        assert await server.is_read_fast(SHOP, headers, client=client) == expected, client


async def test_the_client_behind_a_proxy_is_known(server: FastServer) -> None:
    headers = [*key_headers(server.admin), (b"x-forwarded-for", b"198.51.100.9")]
    assert await server.is_read_fast(SHOP, headers, client=PROXY)
    assert server.fast[-1].source == "198.51.100.9:0"
    assert await server.is_read_fast(SHOP, headers)
    assert server.fast[-1].source == "127.0.0.1:40000"


@on_virtual_time
async def test_reads_count_as_those_of_the_pipeline(tmp_path: Path) -> None:
    """In the metrics of requests and of flow control, and as a use of the key."""
    async with open_server(tmp_path) as server:
        await check_counts(server)


async def check_counts(server: FastServer) -> None:
    headers = key_headers(server.admin)
    await server.read(SHOP, headers)
    services = server.services.services
    key = server.fast[-1].user.key if server.fast[-1].user is not None else ""
    counted = []
    for app in (server.plain, server.app):
        before = count_requests(server)
        first_use = services.auth.last_used.last_use(key)
        await asyncio.sleep(1)  # uses at the same time count as one
        for _ in range(5):
            await send(app, "GET", SHOP, headers)
        counted.append(tuple(after - earlier for after, earlier in zip(count_requests(server), before, strict=True)))
        assert services.auth.last_used.last_use(key) != first_use
    assert counted == [(5, 5, 5, 5)] * 2


def count_requests(server: FastServer) -> tuple[int, int, int, int]:
    requests = server.services.services.requests
    flow = server.services.services.flow.clients.metrics.values()
    labels = [label for label in requests.counters if label[0].resource == "apps" and label[0].verb == "GET"]
    durations = sum(sum(requests.durations[label[:2]].counts) for label in labels)
    observed = sum(sum(each.execution_seconds.counts) for each in flow)
    return (
        sum(requests.counters[label].count for label in labels),
        durations,
        sum(each.dispatched for each in flow),
        observed,
    )


async def test_reads_wait_if_the_server_is_busy(server: FastServer) -> None:
    headers = key_headers(server.admin)
    assert await server.is_read_fast(SHOP, headers)
    control = server.services.services.flow.control
    control.spent = control.budget
    before = len(server.fast)
    await send(server.app, "GET", SHOP, headers)
    assert len(server.fast) == before


def find_kept(server: FastServer) -> list[KnownHeaders]:
    """The headers that the fast path has in memory."""
    answer = server.answer_fast
    assert isinstance(answer, MethodType)
    assert isinstance(answer.__self__, FastReads)
    return list(answer.__self__._known.values())


async def test_no_key_is_kept(server: FastServer) -> None:
    headers = key_headers(server.admin)
    assert await server.is_read_fast(SHOP, headers)
    await server.read(SHOP, [*headers, (b"cookie", b"__Host-service_access_key=" + server.admin.encode())])
    kept = [pair for known in find_kept(server) for pair in known.headers.pairs]
    assert (b"accept", b"application/json") in kept
    assert not [value for _, value in kept if server.admin.encode() in value]


async def test_no_headers_of_anonymous_clients_are_kept(server: FastServer) -> None:
    """Nor are those which the fast path does not serve: nothing but that it does not."""
    for number in range(20):
        other = (b"x-number", b"%d" % number)
        await server.read(SHOP, [*key_headers("fairlead_unknown"), other])
        await server.read(SHOP, [(b"host", b"localhost"), (b"cookie", b"a=b"), other])
    assert all(known is NOT_SERVED for known in find_kept(server))


@pytest.mark.parametrize("newest", [1, None], ids=["behind", "unknown"])
async def test_a_worker_that_may_not_have_seen_the_newest_change_reads_nothing_fast(
    server: FastServer, newest: int | None
) -> None:
    """Whether the user may read the object or not: another worker may have acknowledged that they no longer may."""
    ada, view = await server.add_key("of-ada", "ada"), server.services.services.registry.view
    paths = [(SHOP, key_headers(server.admin)), (SHOP, ada), (f"{API}/apps/none", key_headers(server.admin))]
    for path, headers in paths:
        await server.read(path, headers)
    assert server.fast
    view._local_revision = lambda: None if newest is None else view.revision + newest
    scopes = [build_scope("GET", path, headers) for path, headers in paths]
    assert [server.answer_fast(scope) for scope in scopes] == [None] * 3


async def test_attempts_that_serve_nothing_are_accounted_for(server: FastServer) -> None:
    ada, control = await server.add_key("of-ada", "ada"), server.services.services.flow.control
    for headers in (key_headers(server.admin), ada):
        await server.read(SHOP, headers)
    before = control.spent
    assert server.answer_fast(build_scope("GET", SHOP, ada)) is None, "ada may not read it"
    assert control.spent > before


async def test_different_headers_are_never_taken_for_the_same(server: FastServer) -> None:
    """Names and values of which one is the end of the other, in any order."""
    parts = [(b"x-a", b"b"), (b"x-ab", b""), (b"x-a", b""), (b"x", b"-ab")]
    for first, second in product(parts, repeat=2):
        headers = [*key_headers(server.admin), first, second]
        assert (await server.read(SHOP, headers)).status == 200
        assert server.fast[-1].headers.get(first[0].decode()) == first[1].decode()


TIMES = ("requestReceivedTimestamp", "stageTimestamp")
LATENCY = "service.sh/latency"


@pytest.mark.parametrize("policy", [BASICS, EVERYTHING], ids=["metadata", "bodies"])
async def test_the_audit_log_has_the_same_of_a_fast_read(tmp_path: Path, policy: Policy) -> None:
    async with open_audit(OK, policy) as audited, open_server(tmp_path, audited.audit) as server:
        assert await server.is_read_fast(SHOP, key_headers(server.admin))
    events = [event for event in audited.completed_events() if event["requestURI"] == SHOP]
    assert len({event.pop("auditID") for event in events}) == len(events) == 4
    for event in events:
        assert all(event.pop(name) for name in TIMES)
        assert float(event["annotations"].pop(LATENCY).rstrip("s")) > 0
    assert [events[0]] * 4 == events
    assert ("responseObject" in events[0]) == (policy is EVERYTHING)


async def test_a_policy_that_records_requests_before_they_begin_is_left_to_the_pipeline(tmp_path: Path) -> None:
    policy = Policy((PolicyRule(METADATA),))
    async with open_audit(OK, policy) as audited, open_server(tmp_path, audited.audit) as server:
        assert not await server.is_read_fast(SHOP, key_headers(server.admin))
    assert sum(event["requestURI"] == SHOP for event in audited.events) == 8


async def test_a_store_of_several_replicas_has_no_fast_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "local_revision", lambda store: None)
    async with open_services(Settings(data=tmp_path)) as fixture:
        app = build_app(fixture.services, fixture.features, ClientMemoryLimiter(), None, Drain(), Origins())
    assert app._answer_fast is None
