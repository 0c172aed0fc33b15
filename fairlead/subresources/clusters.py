"""The subresources of a cluster: `accesskey`, `agentconfig` and `agentreport` for its agent, and `health`.

An agent polls its configuration every few seconds, so most responses are 304. The configuration has the uids of the
users and teams that may `use` the cluster and each of its spaces, because the agent must also work while this server is
down. `authn/component_keys.py` stores the keys.

`health` shows the recent probes and those of the last day, from the compact histories in the status: the controller
that probes runs in one process only, and every process has the status.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import orjson

from fairlead.authn.component_keys import ComponentKeys
from fairlead.authn.principals import PrincipalDirectory, implicit_groups
from fairlead.core.call import MANAGEMENT, Decision, Reply, RequestInfo
from fairlead.core.clock import timestamp
from fairlead.core.errors import Conflict
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import User
from fairlead.domain.cluster_identity import find_identity_conflict
from fairlead.domain.probe_day import ProbeQuarter, decode_day
from fairlead.domain.probe_history import ProbeSample, decode_samples
from fairlead.domain.typed_objects import SpaceInstance
from fairlead.kinds.clusters.cluster import CLUSTER
from fairlead.kinds.instances.remote_instances import SPACE
from fairlead.registry.codec import decode
from fairlead.registry.informer import Derived
from fairlead.registry.kind import Kind
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest
from fairlead.server.audit.agent_reports import AgentReports
from fairlead.storage.view.view import View

CLUSTER_FIELD = "spec.clusterRef.cluster"

DECISIONS_PER_YIELD = 100
"""Authorization decisions between two yields to the event loop."""


class UseAuthorizer(Protocol):
    """The authorizer, with a generation for caching."""

    def authorize(self, user: User, target: RequestInfo) -> Decision: ...

    def generation(self) -> object:
        """A new value whenever permissions have changed."""


@dataclass(frozen=True, slots=True)
class _UsePermissions:
    """All active principals, and which of them may use an object, by its uid and generation."""

    principals: Sequence[User]
    allowed_uids: dict[tuple[str, int], list[str]]


class UsePermissionCache:
    """The principals that may `use` an object: those that the gateways of this server would allow.

    Checks all users and teams, which takes a while if there are many. So it yields to the event loop in between, and
    caches the result until permissions, users or teams change.
    """

    def __init__(self, view: View, directory: PrincipalDirectory, authorizer: UseAuthorizer) -> None:
        self._directory = directory
        self._authorizer = authorizer
        self._current = Derived(view, (authorizer.generation,), self._list_principals)

    async def allowed_uids(self, kind: Kind, obj: Object) -> list[str]:
        """The uids of the users and teams that may use an object."""
        permissions = self._current.get()
        # Owner and access entries only change with the object's generation; its status changes all the time.
        key = metadata(obj)["uid"], metadata(obj).get("generation", 0)
        uids = permissions.allowed_uids.get(key)
        if uids is None:
            # If permissions change meanwhile, the result is stored in an outdated cache, where nothing finds it.
            uids = await self._compute_uids(_use_target(kind, obj), permissions.principals)
            permissions.allowed_uids[key] = uids
        return uids

    async def _compute_uids(self, target: RequestInfo, principals: Sequence[User]) -> list[str]:
        uids = list[str]()
        for count, user in enumerate(principals, 1):
            if self._authorizer.authorize(user, target).allowed:
                uids.append(user.uid)
            if count % DECISIONS_PER_YIELD == 0:
                await asyncio.sleep(0)
        return uids

    def _list_principals(self) -> _UsePermissions:
        users = [user for _, user in self._directory.list_users()]
        return _UsePermissions([*users, *map(self._directory.build_team, self._directory.list_teams())], {})


def _use_target(kind: Kind, obj: Object) -> RequestInfo:
    meta = metadata(obj)
    return kind.request("use", meta.get("namespace", ""), meta["name"], root=MANAGEMENT)


@dataclass(frozen=True, slots=True)
class AgentBootstrapInfo:
    """What agents need to know about this server. `url` is also the issuer of tokens."""

    url: str
    instance_id: Callable[[], str]
    api_group: str
    namespace_prefix: str
    identity_prefix: str
    """The prefix of user and group names in clusters."""
    ca_certificate: Callable[[], str]
    """The CA certificate of this server as PEM; empty for a public CA."""


class AgentConfigBuilder:
    """The handler of `agentconfig`. `token_keys` returns the public keys of direct tokens as JWKs.

    `authorizer` decides which principals may use the cluster and its spaces; agents reject all others.
    """

    def __init__(
        self,
        registry: Registry,
        directory: PrincipalDirectory,
        token_keys: Callable[[], Awaitable[Sequence[Object]]],
        installation: AgentBootstrapInfo,
        authorizer: UseAuthorizer,
    ) -> None:
        self._clusters = registry.resource(installation.api_group, CLUSTER.plural)
        self._spaces = registry.resource(installation.api_group, SPACE.plural)
        self._directory = directory
        self._use_permissions = UsePermissionCache(registry.view, directory, authorizer)
        self._token_keys = token_keys
        self._installation = installation
        self._identities = Derived(registry.view, (directory.generation,), self._encode_identities)

    async def __call__(self, request: ActionRequest) -> Reply:
        cluster = decode(await self._clusters.get("", request.name))
        if "deletionTimestamp" in metadata(cluster):
            raise Conflict.of(
                CLUSTER.plural, self._installation.api_group, request.name, "it is being deleted; stop its agent"
            )
        if conflict := find_identity_conflict(cluster):
            raise Conflict.of(CLUSTER.plural, self._installation.api_group, request.name, conflict)
        config = {
            **request.build_response(),
            **await self._payload(cluster),
            "jwks": {"keys": list(await self._token_keys())},
        }
        identities, digest = self._identities.get()
        etag = f'"{hashlib.sha256(orjson.dumps(config) + digest).hexdigest()[:32]}"'
        if etag in request.call.headers.get("if-none-match", ""):
            return Reply(304, headers=[("etag", etag)])
        body = orjson.dumps({**config, "identities": orjson.Fragment(identities)})
        return Reply(200, body, headers=[("etag", etag)])

    async def _payload(self, cluster: Object) -> Object:
        installation = self._installation
        spaces = [await self._space_payload(space) for space in self._list_spaces(name_of(cluster))]
        return {
            "cluster": name_of(cluster),
            "clusterUID": metadata(cluster)["uid"],
            "issuer": installation.url,
            "apiGroup": installation.api_group,
            "projectNamespacePrefix": installation.namespace_prefix,
            "clusterIdentityPrefix": installation.identity_prefix,
            "serviceHost": installation.url,
            "serviceInstanceID": installation.instance_id(),
            "allowed": await self._use_permissions.allowed_uids(self._clusters.kind, cluster),
            "spaces": sorted(spaces, key=lambda each: (each["project"], each["name"])),
        }

    async def _space_payload(self, space: SpaceInstance) -> Object:
        return {
            "project": space.namespace.removeprefix(self._installation.namespace_prefix),
            "name": space.name,
            "uid": space.uid,
            "namespace": space.remote_namespace,
            "allowed": await self._use_permissions.allowed_uids(self._spaces.kind, space.raw),
        }

    def _list_spaces(self, cluster: str) -> list[SpaceInstance]:
        """The usable spaces in a cluster. A list, not a generator: the caller awaits for each, and the view changes."""
        prefix = self._installation.namespace_prefix
        entries = self._spaces.view.entries(self._spaces.kind.group, SPACE.plural)
        spaces = [SpaceInstance(decode(entry)) for entry in entries if entry.fields.get(CLUSTER_FIELD) == cluster]
        usable = [each for each in spaces if each.is_usable(allow_unreachable=True)]
        return [each for each in usable if each.namespace.startswith(prefix)]

    def _encode_identities(self) -> tuple[bytes, bytes]:
        """All users and teams as JSON, encoded once for all agents, and the digest of it."""
        encoded = orjson.dumps(_build_identities(self._directory))
        return encoded, hashlib.sha256(encoded).digest()


def _build_identities(directory: PrincipalDirectory) -> Object:
    """All users and teams by uid, without names: an agent learns names from tokens, and must not learn all others."""
    users = [
        {
            "uid": user.uid,
            "generation": get_path(obj, "spec.tokenGeneration") or 0,
            "groups": [group for group in user.groups if group not in implicit_groups(user.name)],
        }
        for obj, user in directory.list_users()
    ]
    return {"users": users, "teams": [{"uid": metadata(team)["uid"]} for team in directory.list_teams()]}


def agent_handlers(
    installation: AgentBootstrapInfo,
    keys: ComponentKeys,
    configs: AgentConfigBuilder,
    reports: AgentReports,
    note_activity: Callable[[str, Sequence[Object]], None],
) -> dict[ActionPath, ActionHandler]:
    """The handlers. `reports` records the audit events that agents report, and `note_activity` gets them as well, with
    the cluster: they are use of its spaces."""

    async def access_key(request: ActionRequest) -> Object:
        key = await keys.get_or_create(request.name)
        server = {"serviceHost": installation.url, "insecure": False, "caCert": installation.ca_certificate()}
        return request.build_response(accessKey=key, **server)

    async def report(request: ActionRequest) -> Object:
        spec: Any = request.body.get("spec") or {}
        if request.dry_run:
            return request.build_response(status={"recorded": 0})
        recorded = await reports.record(request.name, spec)
        note_activity(request.name, spec.get("events") or ())
        return request.build_response(status={"recorded": recorded})

    group = installation.api_group
    return {
        (group, CLUSTER.plural, "accesskey"): access_key,
        (group, CLUSTER.plural, "agentconfig"): configs,
        (group, CLUSTER.plural, "agentreport"): report,
    }


_COPIED_FIELDS = ("online", "version", "latencyMilliseconds", "lastProbeTime")


def health_handlers(api_group: str, registry: Registry) -> dict[ActionPath, ActionHandler]:
    clusters = registry.resource(api_group, CLUSTER.plural)

    async def health(request: ActionRequest) -> Object:
        status = decode(await clusters.get("", request.name)).get("status") or {}  # raises NotFound
        return request.kind.build(
            {"name": request.name},
            **{field: status[field] for field in _COPIED_FIELDS if field in status},
            samples=[_build_sample(each) for each in decode_samples(status.get("probeHistory"))],
            day=[_build_quarter(each) for each in decode_day(status.get("probeDay"))],
        )

    return {(api_group, CLUSTER.plural, "health"): health}


def _build_sample(sample: ProbeSample) -> Object:
    latency = {} if sample.latency is None else {"latencyMilliseconds": sample.latency}
    reason = {"reason": sample.reason} if sample.reason else {}
    time = timestamp(datetime.fromtimestamp(sample.time, UTC))
    return {"time": time, **latency, "ok": not sample.reason, **reason}


def _build_quarter(quarter: ProbeQuarter) -> Object:
    built = {
        "time": timestamp(datetime.fromtimestamp(quarter.time, UTC)),
        "probes": quarter.probes,
        "failed": quarter.failed,
    }
    if quarter.mean_latency is None:
        return built
    return {**built, "latencyMilliseconds": quarter.mean_latency, "maxLatencyMilliseconds": quarter.max_latency}
