"""What an agent knows of its server, as a value: everything that deciding about a token takes.

It is what `clusters/<name>/agentconfig` answers with. `knowledge.py` fetches and keeps it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from fairlead.authz.scope import ScopeNames
from fairlead.core.cluster_identity import ClusterNames, check_prefix, cluster_groups
from fairlead.core.objects import Object


class BadState(ValueError):
    """What came is no configuration of an agent."""


class _Space(msgspec.Struct):
    project: str
    name: str
    namespace: str
    allowed: list[str]


class _User(msgspec.Struct):
    uid: str
    generation: int = 0
    groups: list[str] = []


class _Team(msgspec.Struct):
    uid: str


class _Identities(msgspec.Struct):
    users: list[_User]
    teams: list[_Team]


class _Config(msgspec.Struct):
    """The parts of the document that count. None of them may be missing: what is left out would be let in or out."""

    cluster: str
    clusterUID: str
    issuer: str
    jwks: Object
    apiGroup: str
    projectNamespacePrefix: str
    clusterIdentityPrefix: str
    allowed: list[str]
    spaces: list[_Space]
    identities: _Identities


@dataclass(frozen=True, slots=True)
class Person:
    """A user as of now: tokens of an earlier generation are void, and groups that it has left mean nothing.

    Groups are those that count at clusters, as in tokens."""

    generation: int
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class Place:
    """A space: its namespace in this cluster, and the uids of those who may use it."""

    namespace: str
    allowed: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class State:
    cluster: str
    cluster_uid: str
    issuer: str
    jwks: Object
    names: ScopeNames
    allowed: frozenset[str]
    """The uids of users and teams who may use the cluster."""
    spaces: Mapping[tuple[str, str], Place]
    """The spaces in this cluster, by project and name."""
    users: Mapping[str, Person]
    """By uid."""
    teams: frozenset[str]
    """Uids."""
    cluster_names: ClusterNames
    """What identities are called at the cluster."""

    @staticmethod
    def read(content: bytes, cluster: str) -> "State":
        """Raises BadState for a document that is not whole, or is another cluster's."""
        try:
            config = msgspec.json.decode(content, type=_Config)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            advice = "update the server first if this agent is newer"
            raise BadState(f"it is no configuration of an agent: {error}; {advice}") from None
        if config.cluster != cluster or not config.clusterUID or not config.issuer:
            raise BadState("it is the configuration of another cluster, or not whole")
        if wrong := check_prefix(config.clusterIdentityPrefix):
            raise BadState(f"clusterIdentityPrefix {wrong}")
        identities = config.identities
        return State(
            config.cluster,
            config.clusterUID,
            config.issuer,
            config.jwks,
            _names(config.apiGroup, config.projectNamespacePrefix),
            frozenset(config.allowed),
            {(each.project, each.name): Place(each.namespace, frozenset(each.allowed)) for each in config.spaces},
            {each.uid: Person(each.generation, frozenset(cluster_groups(each.groups))) for each in identities.users},
            frozenset(each.uid for each in identities.teams),
            ClusterNames(config.clusterIdentityPrefix),
        )


@lru_cache(maxsize=8)
def _names(api_group: str, namespace_prefix: str) -> ScopeNames:
    """One value for the same names, because scopes are kept laid out by it. Behind gateways it takes no more of them:
    the kinds there are not ours."""
    return ScopeNames(api_group, namespace_prefix, {})
