"""An agent in this process, with a fake control plane, a fake cluster, and tokens."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from fairlead.agent.config_cache import CacheOptions, ConfigCache
from fairlead.agent.control_plane import ControlPlaneError
from fairlead.agent.endpoint import DirectEndpoint, EndpointDependencies
from fairlead.agent.reports import ReportQueue
from fairlead.agent.tokens import DirectTokenAuthenticator
from fairlead.authn.direct_tokens import SCOPED_AUDIENCE
from fairlead.core.call import Call, Reply
from fairlead.core.objects import Object
from fairlead.server.api.routing import parse_api_path
from fairlead.server.pipeline import Pipeline
from fairlead.upstream.dial import DirectDialer, resolve_host
from fairlead.upstream.kubeconfig import parse_kubeconfig
from fairlead.upstream.local_cluster import LIMITS
from fairlead.upstream.upstream import dialled_upstream
from tests.fake_cluster.server import FakeCluster
from tests.harness.calls import call
from tests.harness.clock import ManualClock
from tests.harness.direct_tokens import ISSUER, KEY, PRIVATE_CLAIMS, VALID_TOKEN, token_with_claims
from tests.harness.signing_keys import jwks

CLUSTER, CLUSTER_UID = "berlin", "uid-of-berlin"
ADA = {"uid": "uid-of-ada", "generation": 3, "groups": ["service:team:ops"]}


def build_configuration(**changes: Any) -> Object:
    """Returns the configuration of cluster `berlin`, which has the space `s` of project `web`."""
    config: Object = {
        "kind": "ClusterAgentConfig",
        "cluster": CLUSTER,
        "clusterUID": CLUSTER_UID,
        "issuer": ISSUER,
        "jwks": jwks(KEY),
        "apiGroup": "management.service.sh",
        "projectNamespacePrefix": "service-p-",
        "clusterIdentityPrefix": "fairlead:",
        "allowed": ["uid-of-ada", "uid-of-ops"],
        "spaces": [{"project": "web", "name": "s", "namespace": "web-s", "allowed": ["uid-of-ada"]}],
        "identities": {"users": [ADA], "teams": [{"uid": "uid-of-ops"}]},
    }
    return {**config, **changes}


def configuration_without_ada() -> Object:
    return build_configuration(identities={"users": [], "teams": []})


def sign_scoped_token(scope: Object, clusters: dict[str, str] | None = None) -> str:
    """Returns a token of ada with this scope."""
    bound = {CLUSTER: CLUSTER_UID} if clusters is None else clusters
    aud = [SCOPED_AUDIENCE, f"{SCOPED_AUDIENCE}/{CLUSTER_UID}"]
    return token_with_claims(aud=aud, **{"service.sh": {**PRIVATE_CLAIMS, "scope": scope, "clusters": bound}})


class FakeControlPlane:
    """Returns `config`, raises `error` if it is set, and records requests."""

    def __init__(self, config: Object | None = None) -> None:
        self.config = build_configuration() if config is None else config
        self.error: ControlPlaneError | None = None
        self.requested_etags: list[str] = []
        self.reports: list[Object] = []

    @property
    def etag(self) -> str:
        return f'"{hash(orjson.dumps(self.config))}"'

    async def get_config(self, etag: str) -> tuple[str, bytes] | None:
        self.requested_etags.append(etag)
        if self.error is not None:
            raise self.error
        return None if etag == self.etag else (self.etag, orjson.dumps(self.config))

    async def send_report(self, spec: Object) -> None:
        if self.error is not None:
            raise self.error
        self.reports.append(orjson.loads(orjson.dumps(spec)))


class AgentFixture:
    def __init__(self, folder: Path, cluster: FakeCluster, control_plane: FakeControlPlane | None = None) -> None:
        self.clock = ManualClock()
        self.control_plane = control_plane or FakeControlPlane()
        self.config_cache = ConfigCache(
            self.control_plane, CacheOptions(CLUSTER, folder / "agent-config.json", 3600), self.clock
        )
        self.reports = ReportQueue(self.clock)
        endpoint = parse_kubeconfig(cluster.build_kubeconfig())
        self.upstream = dialled_upstream(endpoint, DirectDialer(endpoint, resolve_host), LIMITS)
        dependencies = EndpointDependencies(
            self.config_cache,
            DirectTokenAuthenticator(self.clock),
            self.reports,
            lambda: self.upstream,
            parse_api_path,
            lambda call: None,
        )
        self.endpoint = DirectEndpoint(dependencies)
        self.last_call: Call = call()

    async def send(self, path: str, token: str | None = VALID_TOKEN, method: str = "GET", **headers: str) -> Reply:
        bearer = {} if token is None else {"authorization": f"Bearer {token}"}
        request = call(path.partition("?")[0], path.partition("?")[2], method=method, headers={**bearer, **headers})
        request.raw_target = path
        self.last_call = request
        return await Pipeline((), self.endpoint)(self.last_call)


@asynccontextmanager
async def open_agent(folder: Path, cluster: FakeCluster) -> AsyncIterator[AgentFixture]:
    fixture = AgentFixture(folder, cluster)
    await fixture.config_cache.refresh()
    try:
        yield fixture
    finally:
        await fixture.upstream.close()


def parse_body(reply: Reply) -> Object:
    body: Object = orjson.loads(reply.body)
    return body
