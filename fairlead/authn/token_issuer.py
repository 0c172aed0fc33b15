"""Issues direct tokens: JWTs for direct access to clusters, without the gateway.

Implements `POST directclusterendpointtokens`; the request is already authorized. A token has no wider scope and no
longer lifetime than the key it was requested with (`domain/key_delegation.py`). Scoped tokens have a different
audience: a kube-apiserver that trusts the issuer would honour their groups but not enforce the scope. The groups are
those that are valid in clusters; the verifier adds the prefixes of groups and user name.

Every token is bound to clusters: its audience lists them by the uids of their Cluster objects, so that a token
presented to one cluster cannot be replayed at another one. A scope names clusters by name, so the token also maps these
names to uids: it is not valid for a later cluster with the same name.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.authn.direct_tokens import AUDIENCE, NOWHERE, PRIVATE, SCOPED_AUDIENCE, cluster_audience
from fairlead.authn.principals import TEAMS, USERS
from fairlead.authn.reachable_clusters import reachable_clusters
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.core.call import MANAGEMENT, Target, Verdict
from fairlead.core.clock import timestamp
from fairlead.core.cluster_identity import cluster_groups, refuse_reserved
from fairlead.core.crypto import signing
from fairlead.core.errors import Details, Forbidden, Invalid, Problem, qualified
from fairlead.core.objects import Object, dig, metadata
from fairlead.core.scope import ANY, Scope
from fairlead.core.user import TEAM_GROUP, USER_GROUP, User
from fairlead.domain.key_delegation import Covers, Holder, holder_of, overreach
from fairlead.domain.key_lifetime import end_of
from fairlead.kinds.access.direct_token import DIRECT_CLUSTER_ENDPOINT_TOKEN as KIND
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry

CLUSTERS = "clusters"
ID_BYTES = 16
MOST_CLUSTERS = 100
"""Maximum number of clusters per token: it lists all of them and is sent with every request."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The default and the maximum lifetime of tokens in seconds."""

    default: int = 24 * 3600
    maximum: int = 90 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Issuing:
    """The issuer URL, and the lifetimes of tokens, which may change at run time."""

    issuer: str
    lifetimes: Callable[[], Lifetimes]


@dataclass(frozen=True, slots=True)
class Rights:
    """The scope comparison and the authorizer of `authz`."""

    covers: Covers
    may: Callable[[User, Target], Verdict]


@dataclass(frozen=True, slots=True)
class Minted:
    """A new token. The value is returned once, in the response, and never logged."""

    id: str
    issued: datetime
    ttl: int
    value: str = field(repr=False)


class DirectMinting:
    """Issues direct tokens."""

    def __init__(
        self, registry: Registry, api_group: str, keys: SigningKeyStore, issuing: Issuing, rights: Rights
    ) -> None:
        self._registry = registry
        self._group = api_group
        self._keys = keys
        self._issuing = issuing
        self._rights = rights

    @property
    def longest(self) -> int:
        """The maximum lifetime of a token in seconds."""
        return self._issuing.lifetimes().maximum

    async def mint(self, user: User, spec: Object, *, rehearsing: bool = False) -> Minted | None:
        """Issues a token for the requester. A dry run makes all checks and returns None."""
        refuse_reserved(user.name)
        now, lifetimes = self._registry.clock.now(), self._issuing.lifetimes()
        holder = holder_of(user, self._registry.resource(self._group, ACCESS_KEYS))
        subject = self._subject(user)
        ttl = self._ttl(holder, spec.get("ttl") or 0, lifetimes, now)
        scope = self._scope(holder, spec)
        self._refuse_overreach(holder, ttl, scope, now)
        named = dict(self._clusters(user, scope)) if scope is not None else {}
        clusters = await self._meant(user, scope, named)
        if rehearsing:
            return None
        if scope is not None:
            subject |= {"scope": scope, "clusters": named}
        claims = self._claims(user, subject, ttl, now) | {"aud": _audiences(clusters, is_scoped=scope is not None)}
        key = (await self._keys.for_signing(lifetimes.maximum)).active
        return Minted(claims["jti"], now, ttl, signing.sign(key, claims))

    def _claims(self, user: User, subject: Object, ttl: int, now: datetime) -> Object:
        begin = int(now.timestamp())
        if user.impersonator is not None:
            subject["originalRequester"] = user.impersonator.name
        return {
            "iss": self._issuing.issuer,
            "sub": user.name,
            "iat": begin,
            "nbf": begin,
            "exp": begin + ttl,
            "jti": secrets.token_hex(ID_BYTES),
            "groups": list(cluster_groups(user.groups)),
            PRIVATE: subject,
        }

    def _subject(self, user: User) -> Object:
        """The principal of the token. Its uid is looked up: that of an impersonated user may come from the request."""
        team = user.name.removeprefix(TEAM_GROUP)
        if f"{USER_GROUP}{user.name}" in user.groups and (found := self._found(USERS, user.name)):
            return _subject("User", user.name, metadata(found).get("uid"), dig(found, "spec.tokenGeneration"))
        if team != user.name and user.name in user.groups and (found := self._found(TEAMS, team)):
            return _subject("Team", team, metadata(found).get("uid"))
        if user.is_admin:
            return _subject("ServiceAdmin", user.name)
        raise self._refusal(
            f'a direct token is for a user, a team or an administrator, and "{user.name}" is none of them; '
            "use the access key of a user or team"
        )

    def _found(self, plural: str, name: str) -> Object | None:
        entry = self._registry.resource(self._group, plural).peek("", name)
        return None if entry is None else decode(entry)

    def _clusters(self, user: User, scope: Object) -> Iterator[tuple[str, str]]:
        """The names and uids of the clusters that a scope names, if the user may read them."""
        kind = self._registry.resource(self._group, CLUSTERS).kind
        parsed = Scope.of(scope) or Scope()
        for name in dict.fromkeys((*parsed.clusters, *(rule.cluster for rule in parsed.rules if rule.cluster))):
            found = self._found(CLUSTERS, name)
            target = Target("get", "", MANAGEMENT, kind.group, kind.version, kind.plural, name=name)
            if found is not None and self._rights.may(user, target).allowed:
                yield name, metadata(found)["uid"]

    async def _meant(self, user: User, scope: Object | None, named: Mapping[str, str]) -> list[str]:
        """The uids of the clusters in the token's audience: those that its scope names, else those where the user may
        use anything now. A cluster that is added later needs a new token."""
        if scope is not None and _names_all(Scope.of(scope) or Scope()):
            return list(named.values())
        found = [uid async for uid in reachable_clusters(self._registry, self._group, partial(self._rights.may, user))]
        if len(found) > MOST_CLUSTERS:
            why = (
                f"you may use {len(found)} clusters, and a token is for {MOST_CLUSTERS} at most: list those that it "
                "should be for"
            )
            raise Invalid.of(KIND.name, self._group, "", [Problem.required("spec.scope.clusters", why)])
        return found

    def _ttl(self, holder: Holder, asked: int, lifetimes: Lifetimes, now: datetime) -> int:
        """The requested lifetime, else the default, capped by the remaining lifetime of the key in use."""
        if asked > lifetimes.maximum:
            why = f"must be at most {lifetimes.maximum} seconds"
            raise Invalid.of(KIND.name, self._group, "", [Problem.invalid("spec.ttl", asked, why)])
        if asked:
            return asked
        limit = end_of(holder.key, now) if holder.key is not None else None
        left = lifetimes.default if limit is None else int((limit - now).total_seconds())
        return max(1, min(lifetimes.default, lifetimes.maximum, left))

    def _scope(self, holder: Holder, spec: Object) -> Object | None:
        """The requested scope, else the one of the key in use."""
        asked: Object | None = spec.get("scope")
        return asked if asked is not None else dig(holder.key or {}, "spec.scope")

    def _refuse_overreach(self, holder: Holder, ttl: int, scope: Object | None, now: datetime) -> None:
        """Applies the checks for a new access key of the same owner, lifetime and scope."""
        owner, name = holder.owner
        begin = {"creationTimestamp": timestamp(now)}
        reason = overreach(
            holder, {"metadata": begin, "spec": {owner: name, "ttl": ttl, "scope": scope}}, self._rights.covers, now
        )
        if reason is not None:
            raise self._refusal(reason)

    def _refusal(self, reason: str) -> Forbidden:
        message = f"{qualified(KIND.plural, self._group)} is forbidden: {reason}"
        return Forbidden(message, Details("", self._group, KIND.plural))


def _subject(kind: str, name: str, uid: str | None = "", generation: int | None = 0) -> Object:
    return {"uid": uid or "", "name": name, "kind": kind, "gen": generation or 0}


def _names_all(scope: Scope) -> bool:
    """Whether a scope names every cluster that it allows. Entries for spaces and most rules may be for any cluster."""
    elsewhere = scope.projects or scope.spaces or scope.virtual_clusters or ANY in scope.clusters
    return not elsewhere and all(rule.cluster for rule in scope.rules)


def _audiences(clusters: Iterable[str], *, is_scoped: bool) -> list[str]:
    meant = [cluster_audience(uid, is_scoped=is_scoped) for uid in clusters]
    nowhere = cluster_audience(NOWHERE, is_scoped=is_scoped)
    return [SCOPED_AUDIENCE if is_scoped else AUDIENCE, *(meant or [nowhere])]
