"""The subresources of a cluster for its agent: `accesskey`, `agentconfig` and `agentreport`.

An agent polls its configuration every few seconds, so most responses are 304. The configuration has the uids of the
users and teams that may `use` the cluster and each of its spaces, because the agent must also work while this server is
down. `authn/component_keys.py` stores the keys.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from fairlead.authn.component_keys import ComponentKeys
from fairlead.authn.principals import People, own_groups
from fairlead.core.call import MANAGEMENT, Reply, Target, Verdict
from fairlead.core.errors import Conflict
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import User
from fairlead.registry.codec import decode
from fairlead.registry.conditions import UNKNOWN, find_condition, is_true
from fairlead.registry.kind import Kind
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import Asked, Handler, Place
from fairlead.server.audit.agent_reports import ClusterReports

CLUSTERS, SPACES = "clusters", "spaceinstances"
IN_CLUSTER = "spec.clusterRef.cluster"

AT_ONCE = 100
"""Authorization decisions between two yields to the event loop."""


class Permissions(Protocol):
    """The authorizer, with a generation for caching."""

    def decide(self, user: User, target: Target) -> Verdict: ...

    def generation(self) -> object:
        """A new value whenever permissions have changed."""


class Uses:
    """The principals that may `use` an object: those that the gateways of this server would allow.

    Checks all users and teams, which takes a while if there are many. So it yields to the event loop in between, and
    caches the result until permissions, users or teams change.
    """

    def __init__(self, people: People, permissions: Permissions) -> None:
        self._people = people
        self._permissions = permissions
        self._generation: object = None
        self._everybody: list[User] = []
        self._kept: dict[tuple[str, int], list[str]] = {}

    async def of(self, kind: Kind, obj: Object) -> list[str]:
        """The uids of the users and teams that may use an object."""
        self._refresh(self._permissions.generation())
        # Owner and access entries only change with the object's generation; its status changes all the time.
        key = metadata(obj)["uid"], metadata(obj).get("generation", 0)
        uids = self._kept.get(key)
        if uids is None:
            uids = await self._asked(_use(kind, obj), key)
        return uids

    async def _asked(self, target: Target, place: tuple[str, int]) -> list[str]:
        generation, uids = self._generation, list[str]()
        for count, user in enumerate(self._everybody, 1):
            if self._permissions.decide(user, target).allowed:
                uids.append(user.uid)
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)
        if self._generation == generation:  # do not cache a result that is already outdated
            self._kept[place] = uids
        return uids

    def _refresh(self, generation: object) -> None:
        if generation != self._generation:
            users = [user for _, user in self._people.all_users()]
            self._everybody = [*users, *map(self._people.as_team, self._people.all_teams())]
            self._generation, self._kept = generation, {}


def _use(kind: Kind, obj: Object) -> Target:
    meta = metadata(obj)
    object_name = {"namespace": meta.get("namespace", ""), "name": meta["name"]}
    return Target("use", "", MANAGEMENT, kind.group, kind.version, kind.plural, **object_name)


@dataclass(frozen=True, slots=True)
class AgentBootstrapInfo:
    """What agents need to know about this server. `url` is also the issuer of tokens."""

    url: str
    instance: str
    api_group: str
    namespace_prefix: str
    identity_prefix: str
    """The prefix of user and group names in clusters."""
    authority: Callable[[], str]
    """The CA certificate of this server as PEM; empty for a public CA."""


class AgentConfigs:
    """The handler of `agentconfig`. `token_keys` returns the public keys of direct tokens as JWKs.

    `authorizer` decides which principals may use the cluster and its spaces; agents reject all others.
    """

    def __init__(
        self,
        registry: Registry,
        people: People,
        token_keys: Callable[[], Awaitable[Sequence[Object]]],
        installation: AgentBootstrapInfo,
        permissions: Permissions,
    ) -> None:
        self._clusters = registry.resource(installation.api_group, CLUSTERS)
        self._spaces = registry.resource(installation.api_group, SPACES)
        self._people = people
        self._uses = Uses(people, permissions)
        self._token_keys = token_keys
        self._installation = installation
        self._generation: object = None
        self._identities = self._digest = b""

    async def __call__(self, asked: Asked) -> Reply:
        cluster = decode(await self._clusters.get("", asked.name))
        if "deletionTimestamp" in metadata(cluster):
            raise Conflict.of(CLUSTERS, self._installation.api_group, asked.name, "it is being deleted; stop its agent")
        config = {**_envelope(asked), **await self._told(cluster), "jwks": {"keys": list(await self._token_keys())}}
        self._refresh()
        etag = f'"{hashlib.sha256(orjson.dumps(config) + self._digest).hexdigest()[:32]}"'
        if etag in asked.call.headers.get("if-none-match", ""):
            return Reply(304, headers=[("etag", etag)])
        body = orjson.dumps({**config, "identities": orjson.Fragment(self._identities)})
        return Reply(200, body, headers=[("etag", etag)])

    async def _told(self, cluster: Object) -> Object:
        installation = self._installation
        spaces = [await self._told_of(space) for space in self._spaces_in(name_of(cluster))]
        return {
            "cluster": name_of(cluster),
            "clusterUID": metadata(cluster)["uid"],
            "issuer": installation.url,
            "apiGroup": installation.api_group,
            "projectNamespacePrefix": installation.namespace_prefix,
            "clusterIdentityPrefix": installation.identity_prefix,
            "serviceHost": installation.url,
            "serviceInstanceID": installation.instance,
            "allowed": await self._uses.of(self._clusters.kind, cluster),
            "spaces": sorted(spaces, key=lambda each: (each["project"], each["name"])),
        }

    async def _told_of(self, space: Object) -> Object:
        meta = metadata(space)
        return {
            "project": meta["namespace"].removeprefix(self._installation.namespace_prefix),
            "name": meta["name"],
            "uid": meta["uid"],
            "namespace": dig(space, "spec.clusterRef.namespace"),
            "allowed": await self._uses.of(self._spaces.kind, space),
        }

    def _spaces_in(self, cluster: str) -> list[Object]:
        """A list, not a generator: the caller awaits for each space, and the view changes meanwhile."""
        prefix = self._installation.namespace_prefix
        entries = self._spaces.view.entries(self._spaces.kind.group, SPACES)
        spaces = [decode(entry) for entry in entries if entry.fields.get(IN_CLUSTER) == cluster]
        return [each for each in spaces if _is_made(each) and metadata(each)["namespace"].startswith(prefix)]

    def _refresh(self) -> None:
        """Encodes all users and teams once for all agents, until one of them changes."""
        generation = self._people.generation()
        if generation != self._generation:
            self._identities = orjson.dumps(_identities(self._people))
            self._digest = hashlib.sha256(self._identities).digest()
            self._generation = generation


def _is_made(space: Object) -> bool:
    """Whether the namespace of a space exists and belongs to it. Before that, it may belong to another space.

    SpaceReady is Unknown while this server cannot reach the cluster. The agent can, and keeps serving the space.
    """
    status = space.get("status")
    is_unreachable = (find_condition(status, "SpaceReady") or {}).get("status") == UNKNOWN
    is_synced = is_true(status, "SpaceSynced") or is_unreachable
    has_name = bool(dig(space, "spec.clusterRef.namespace"))
    return has_name and is_synced and "deletionTimestamp" not in metadata(space)


def _identities(people: People) -> Object:
    """All users and teams by uid, without names: an agent learns names from tokens, and must not learn all others."""
    users = [
        {
            "uid": user.uid,
            "generation": dig(obj, "spec.tokenGeneration") or 0,
            "groups": [group for group in user.groups if group not in own_groups(user.name)],
        }
        for obj, user in people.all_users()
    ]
    return {"users": users, "teams": [{"uid": metadata(team)["uid"]} for team in people.all_teams()]}


def agent_handlers(
    installation: AgentBootstrapInfo, keys: ComponentKeys, configs: AgentConfigs, reports: ClusterReports
) -> dict[Place, Handler]:
    """The handlers. `reports` records the audit events that agents report."""

    async def access_key(request: Asked) -> Object:
        key = await keys.of(request.name)
        server = {"serviceHost": installation.url, "insecure": False, "caCert": installation.authority()}
        return {**_envelope(request), "accessKey": key, **server}

    async def report(request: Asked) -> Object:
        spec: Any = request.body.get("spec") or {}
        recorded = 0 if request.dry_run else reports.record(request.name, spec)
        return {**_envelope(request), "status": {"recorded": recorded}}

    group = installation.api_group
    return {
        (group, CLUSTERS, "accesskey"): access_key,
        (group, CLUSTERS, "agentconfig"): configs,
        (group, CLUSTERS, "agentreport"): report,
    }


def _envelope(asked: Asked) -> Object:
    kind = asked.kind
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": {"creationTimestamp": None}}
