"""What stands below a cluster's path for its agent: its key, what it needs to know, and where it reports.

`server/api/actions.py` calls these; `authn/component_keys.py` has the keys. An agent asks for its configuration every few seconds,
so most answers are that nothing has changed.
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

# DOC-MERGED server/agent_uses
# Who may `use` a cluster, and each of the spaces in it: told to its agent, which lets in nobody else.
#
# An agent works while this server is down, so it cannot ask about whoever comes. It is told the answers before: the uids
# of those users and teams whom the gateways here would let through. Everybody is asked about, which takes a while where
# there are many, so others get their turn meanwhile, and the answers are kept until rights or people have changed.
# `cluster_agents.py` calls.


AT_ONCE = 100
"""How many are asked about before others get their turn."""


class Permissions(Protocol):
    """What `authz` knows of everybody."""

    def decide(self, user: User, target: Target) -> Verdict: ...

    def generation(self) -> object:
        """Another value whenever anybody's permissions have changed."""


class Uses:
    """The answers about all objects, kept while they hold."""

    def __init__(self, people: People, permissions: Permissions) -> None:
        self._people = people
        self._permissions = permissions
        self._generation: object = None
        self._everybody: list[User] = []
        self._kept: dict[tuple[str, int], list[str]] = {}

    async def of(self, kind: Kind, obj: Object) -> list[str]:
        """The uids of those who may use an object."""
        self._refresh(self._permissions.generation())
        # Whose an object is, and with whom it is shared, changes with its generation; its status changes all the time.
        place = metadata(obj)["uid"], metadata(obj).get("generation", 0)
        found = self._kept.get(place)
        if found is None:
            found = await self._asked(_use(kind, obj), place)
        return found

    async def _asked(self, target: Target, place: tuple[str, int]) -> list[str]:
        generation, found = self._generation, list[str]()
        for count, user in enumerate(self._everybody, 1):
            if self._permissions.decide(user, target).allowed:
                found.append(user.uid)
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)
        if self._generation == generation:  # what is old already is told once more, and then no longer
            self._kept[place] = found
        return found

    def _refresh(self, generation: object) -> None:
        if generation != self._generation:
            users = [user for _, user in self._people.all_users()]
            self._everybody = [*users, *map(self._people.as_team, self._people.all_teams())]
            self._generation, self._kept = generation, {}


def _use(kind: Kind, obj: Object) -> Target:
    meta = metadata(obj)
    place = {"namespace": meta.get("namespace", ""), "name": meta["name"]}
    return Target("use", "", MANAGEMENT, kind.group, kind.version, kind.plural, **place)


CLUSTERS, SPACES = "clusters", "spaceinstances"
IN_CLUSTER = "spec.clusterRef.cluster"


@dataclass(frozen=True, slots=True)
class AgentBootstrapInfo:
    """What agents are told of this server. `url` is also what it issues tokens as."""

    url: str
    instance: str
    api_group: str
    namespace_prefix: str
    identity_prefix: str
    """What names of users and groups have in front at clusters."""
    authority: Callable[[], str]
    """PEM of the authority of this server's certificate; empty for a public one."""


class AgentConfigs:
    """Puts together what agents need. `token_keys` are the public keys of direct tokens as a JWKS lists them.

    `permissions` say who may use what; without them agents let nobody in.
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
        told = {**_envelope(asked), **await self._told(cluster), "jwks": {"keys": list(await self._token_keys())}}
        self._refresh()
        etag = f'"{hashlib.sha256(orjson.dumps(told) + self._digest).hexdigest()[:32]}"'
        if etag in asked.call.headers.get("if-none-match", ""):
            return Reply(304, headers=[("etag", etag)])
        body = orjson.dumps({**told, "identities": orjson.Fragment(self._identities)})
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
        """All of them at once: there is waiting while each is told of, and the view goes on meanwhile."""
        prefix = self._installation.namespace_prefix
        entries = self._spaces.view.entries(self._spaces.kind.group, SPACES)
        spaces = [decode(entry) for entry in entries if entry.fields.get(IN_CLUSTER) == cluster]
        return [each for each in spaces if _is_made(each) and metadata(each)["namespace"].startswith(prefix)]

    def _refresh(self) -> None:
        """Everybody, encoded once for all agents until somebody changes."""
        generation = self._people.generation()
        if generation != self._generation:
            self._identities = orjson.dumps(_identities(self._people))
            self._digest = hashlib.sha256(self._identities).digest()
            self._generation = generation


def _is_made(space: Object) -> bool:
    """Whether a space has its namespace. Until then, one that it names may be somebody else's. One that was made stays
    so while this server cannot reach the cluster: its agent can, and goes on letting people in."""
    status = space.get("status")
    is_known = (find_condition(status, "SpaceReady") or {}).get("status") == UNKNOWN
    made = is_true(status, "SpaceSynced") or is_known
    named = bool(dig(space, "spec.clusterRef.namespace"))
    return named and made and "deletionTimestamp" not in metadata(space)


def _identities(people: People) -> Object:
    """By uid, without names: an agent knows those of whoever comes, and is not to learn everybody else's."""
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
    """`reports` takes what agents have seen."""

    async def access_key(asked: Asked) -> Object:
        key = await keys.of(asked.name)
        facts = {"serviceHost": installation.url, "insecure": False, "caCert": installation.authority()}
        return {**_envelope(asked), "accessKey": key, **facts}

    async def report(asked: Asked) -> Object:
        spec: Any = asked.body.get("spec") or {}
        recorded = 0 if asked.dry_run else reports.record(asked.name, spec)
        return {**_envelope(asked), "status": {"recorded": recorded}}

    group = installation.api_group
    return {
        (group, CLUSTERS, "accesskey"): access_key,
        (group, CLUSTERS, "agentconfig"): configs,
        (group, CLUSTERS, "agentreport"): report,
    }


def _envelope(asked: Asked) -> Object:
    kind = asked.kind
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": {"creationTimestamp": None}}
