"""Issues direct tokens: JWTs for direct access to clusters, without the gateway.

Implements `POST directclusterendpointtokens`; the request is already authorized. A token has no wider scope and no
longer lifetime than the key it was requested with (`domain/key_delegation.py`). Scoped tokens have a different
audience: a kube-apiserver that trusts the issuer would honour their groups but not enforce the scope. The groups are
those that are valid in clusters; the verifier adds the prefixes of groups and user name.

Every token is bound to clusters: its audience lists them by the uids of their Cluster objects, so that a token
presented to one cluster cannot be replayed at another one. A scope names clusters by name, so the token also maps these
names to uids: it is not valid for a later cluster with the same name.

A token whose scope does not name its clusters is bound to those in which its user may use anything: the whole cluster,
or a space in it (`reachable_clusters`). That is computed when a token is issued, not per request. It yields to the
event loop in between, since there may be many spaces.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.authn.direct_tokens import AUDIENCE, NO_CLUSTER, PRIVATE_CLAIM, SCOPED_AUDIENCE, cluster_audience
from fairlead.authn.principals import TEAMS, USERS
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.core.call import MANAGEMENT, Authorize, RequestInfo
from fairlead.core.clock import timestamp
from fairlead.core.crypto import signing
from fairlead.core.errors import Details, Forbidden, Invalid, Problem, qualified_resource
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.scope import ANY, Scope
from fairlead.core.suggestions import did_you_mean, near_names
from fairlead.core.user import TEAM_GROUP_PREFIX, USER_GROUP_PREFIX, User
from fairlead.domain.cluster_identity import check_not_reserved, cluster_groups
from fairlead.domain.key_delegation import Delegator, ScopeCovers, delegation_problem, delegator_for
from fairlead.domain.key_lifetime import expires_at
from fairlead.kinds.access.direct_token import DIRECT_CLUSTER_ENDPOINT_TOKEN as KIND
from fairlead.kinds.clusters.cluster import CLUSTER
from fairlead.kinds.instances.remote_instances import SPACE
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry

CLUSTER_REF_FIELD = "spec.clusterRef.cluster"
YIELD_INTERVAL = 100
"""Checks before yielding to the event loop."""
TOKEN_ID_BYTES = 16
MAX_CLUSTERS = 100
"""Maximum number of clusters per token: it lists all of them and is sent with every request."""


async def reachable_clusters(
    registry: Registry, api_group: str, is_allowed: Callable[[RequestInfo], bool]
) -> AsyncIterator[str]:
    """Yields the uid of each cluster once. `is_allowed` decides about a request of the user."""
    clusters = registry.resource(api_group, CLUSTER.plural)
    spaces = registry.resource(api_group, SPACE.plural)
    others: dict[str, str] = {}
    for count, entry in enumerate(registry.view.entries(api_group, CLUSTER.plural), 1):
        uid, name = str(metadata(decode(entry))["uid"]), entry.key[3]
        if is_allowed(clusters.kind.request("use", name=name, root=MANAGEMENT)):
            yield uid
        else:
            others[name] = uid
        if count % YIELD_INTERVAL == 0:
            await asyncio.sleep(0)
    for count, entry in enumerate(registry.view.entries(api_group, SPACE.plural) if others else (), 1):
        cluster = entry.selectable.get(CLUSTER_REF_FIELD, "")
        if cluster in others and is_allowed(spaces.kind.request("use", *entry.key[2:], root=MANAGEMENT)):
            yield others.pop(cluster)
        if count % YIELD_INTERVAL == 0:
            await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The default and the maximum lifetime of tokens in seconds."""

    default: int = 24 * 3600
    maximum: int = 90 * 24 * 3600


@dataclass(frozen=True, slots=True)
class IssuerConfig:
    """The issuer URL, and the lifetimes of tokens, which may change at run time."""

    issuer: str
    lifetimes: Callable[[], Lifetimes]


@dataclass(frozen=True, slots=True)
class DelegationChecks:
    """The scope comparison and the authorizer of `authz`."""

    covers: ScopeCovers
    authorize: Authorize


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token. The value is returned once, in the response, and never logged."""

    id: str
    issued_at: datetime
    ttl: int
    value: str = field(repr=False)


class DirectTokenIssuer:
    """Issues direct tokens."""

    def __init__(
        self, registry: Registry, api_group: str, keys: SigningKeyStore, config: IssuerConfig, checks: DelegationChecks
    ) -> None:
        self._registry = registry
        self._group = api_group
        self._keys = keys
        self._config = config
        self._checks = checks

    @property
    def max_ttl(self) -> int:
        """The maximum lifetime of a token in seconds."""
        return self._config.lifetimes().maximum

    async def issue(self, user: User, spec: Object, *, dry_run: bool = False) -> IssuedToken | None:
        """Issues a token for the requester. A dry run makes all checks and returns None."""
        check_not_reserved(user.name)
        now = self._registry.clock.now()
        lifetimes = self._config.lifetimes()
        delegator = delegator_for(user, self._registry.resource(self._group, ACCESS_KEYS))
        subject = self._resolve_principal(user)
        ttl = self._choose_ttl(delegator, spec.get("ttl") or 0, lifetimes, now)
        scope = self._choose_scope(delegator, spec)
        self._check_delegation(delegator, ttl, scope, now)
        named = dict(self._scope_clusters(user, scope)) if scope is not None else {}
        self._check_scope_clusters(user, spec.get("scope"), named)
        clusters = await self._audience_clusters(user, scope, named)
        if dry_run:
            return None
        if scope is not None:
            subject |= {"scope": scope, "clusters": named}
        claims = self._build_claims(user, subject, ttl, now) | {
            "aud": _build_audiences(clusters, is_scoped=scope is not None)
        }
        key = (await self._keys.active_key(lifetimes.maximum)).active
        return IssuedToken(claims["jti"], now, ttl, signing.sign(key, claims))

    def _build_claims(self, user: User, subject: Object, ttl: int, now: datetime) -> Object:
        begin = int(now.timestamp())
        if user.impersonator is not None:
            subject["originalRequester"] = user.impersonator.name
        return {
            "iss": self._config.issuer,
            "sub": user.name,
            "iat": begin,
            "nbf": begin,
            "exp": begin + ttl,
            "jti": secrets.token_hex(TOKEN_ID_BYTES),
            "groups": list(cluster_groups(user.groups)),
            PRIVATE_CLAIM: subject,
        }

    def _resolve_principal(self, user: User) -> Object:
        """The principal of the token. Its uid is looked up: that of an impersonated user may come from the request."""
        team = user.name.removeprefix(TEAM_GROUP_PREFIX)
        if f"{USER_GROUP_PREFIX}{user.name}" in user.groups and (found := self._find_object(USERS, user.name)):
            return _principal_claim(
                "User", user.name, metadata(found).get("uid"), get_path(found, "spec.tokenGeneration")
            )
        if team != user.name and user.name in user.groups and (found := self._find_object(TEAMS, team)):
            return _principal_claim("Team", team, metadata(found).get("uid"))
        if user.is_admin:
            return _principal_claim("ServiceAdmin", user.name)
        raise self._forbidden(
            f'a direct token is for a user, a team or an administrator, and "{user.name}" is none of them; '
            "use the access key of a user or team"
        )

    def _find_object(self, plural: str, name: str) -> Object | None:
        entry = self._registry.resource(self._group, plural).get_cached("", name)
        return None if entry is None else decode(entry)

    def _scope_clusters(self, user: User, scope: Object) -> Iterator[tuple[str, str]]:
        """The names and uids of the clusters that a scope names, if the user may read or use them."""
        parsed = Scope.parse(scope) or Scope()
        for name in dict.fromkeys((*parsed.clusters, *(rule.cluster for rule in parsed.rules if rule.cluster))):
            found = self._find_object(CLUSTER.plural, name)
            if found is not None and self._may_know_cluster(user, name):
                yield name, metadata(found)["uid"]

    def _may_know_cluster(self, user: User, name: str) -> bool:
        kind = self._registry.resource(self._group, CLUSTER.plural).kind
        resource = (kind.group, kind.version, kind.plural)
        targets = (RequestInfo(verb, "", MANAGEMENT, *resource, name=name) for verb in ("get", "use"))
        return any(self._checks.authorize(user, target).allowed for target in targets)

    def _check_scope_clusters(self, user: User, requested: Object | None, named: Mapping[str, str]) -> None:
        """Rejects a token for clusters that do not exist: it could not be used anywhere. The message is the same for
        clusters that the requester may neither read nor use."""
        for index, name in enumerate((Scope.parse(requested) or Scope()).clusters):
            if name not in (ANY, *named):
                suggestion = did_you_mean(self._suggest_cluster(user, name))
                why = f"there is no such cluster that you can read or use{suggestion}"
                problem = Problem.invalid(f"spec.scope.clusters[{index}].cluster", name, why)
                raise Invalid.of(KIND.name, self._group, "", [problem])

    def _suggest_cluster(self, user: User, name: str) -> str:
        existing = (entry.key[3] for entry in self._registry.view.entries(self._group, CLUSTER.plural)[:MAX_CLUSTERS])
        return next((each for each in near_names(name, existing) if self._may_know_cluster(user, each)), "")

    async def _audience_clusters(
        self, user: User, scope: Object | None, scope_clusters: Mapping[str, str]
    ) -> list[str]:
        """The uids of the clusters in the token's audience: those that its scope names, else those where the user may
        use anything now. A cluster that is added later needs a new token."""
        if scope is not None and _names_all_clusters(Scope.parse(scope) or Scope()):
            return list(scope_clusters.values())

        def is_allowed(target: RequestInfo) -> bool:
            return self._checks.authorize(user, target).allowed

        found = [uid async for uid in reachable_clusters(self._registry, self._group, is_allowed)]
        if len(found) > MAX_CLUSTERS:
            why = (
                f"you may use {len(found)} clusters, and a token is for {MAX_CLUSTERS} at most: list those that it "
                "should be for"
            )
            raise Invalid.of(KIND.name, self._group, "", [Problem.required("spec.scope.clusters", why)])
        return found

    def _choose_ttl(self, delegator: Delegator, requested: int, lifetimes: Lifetimes, now: datetime) -> int:
        """The requested lifetime, else the default, capped by the remaining lifetime of the key in use."""
        if requested > lifetimes.maximum:
            why = f"must be at most {lifetimes.maximum} seconds"
            raise Invalid.of(KIND.name, self._group, "", [Problem.invalid("spec.ttl", requested, why)])
        if requested:
            return requested
        limit = expires_at(delegator.key, now) if delegator.key is not None else None
        left = lifetimes.default if limit is None else int((limit - now).total_seconds())
        return max(1, min(lifetimes.default, lifetimes.maximum, left))

    def _choose_scope(self, delegator: Delegator, spec: Object) -> Object | None:
        """The requested scope, else the one of the key in use."""
        requested: Object | None = spec.get("scope")
        return requested if requested is not None else get_path(delegator.key or {}, "spec.scope")

    def _check_delegation(self, delegator: Delegator, ttl: int, scope: Object | None, now: datetime) -> None:
        """Applies the checks for a new access key of the same owner, lifetime and scope."""
        owner, name = delegator.owner
        begin = {"creationTimestamp": timestamp(now)}
        reason = delegation_problem(
            delegator, {"metadata": begin, "spec": {owner: name, "ttl": ttl, "scope": scope}}, self._checks.covers, now
        )
        if reason is not None:
            raise self._forbidden(reason)

    def _forbidden(self, reason: str) -> Forbidden:
        message = f"{qualified_resource(KIND.plural, self._group)} is forbidden: {reason}"
        return Forbidden(message, Details("", self._group, KIND.plural))


def _principal_claim(kind: str, name: str, uid: str | None = "", generation: int | None = 0) -> Object:
    return {"uid": uid or "", "name": name, "kind": kind, "gen": generation or 0}


def _names_all_clusters(scope: Scope) -> bool:
    """Whether a scope names every cluster that it allows. Entries for spaces and most rules may be for any cluster."""
    elsewhere = scope.projects or scope.spaces or scope.virtual_clusters or ANY in scope.clusters
    return not elsewhere and all(rule.cluster for rule in scope.rules)


def _build_audiences(clusters: Iterable[str], *, is_scoped: bool) -> list[str]:
    meant = [cluster_audience(uid, is_scoped=is_scoped) for uid in clusters]
    nowhere = cluster_audience(NO_CLUSTER, is_scoped=is_scoped)
    return [SCOPED_AUDIENCE if is_scoped else AUDIENCE, *(meant or [nowhere])]
