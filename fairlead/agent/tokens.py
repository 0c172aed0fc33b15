"""Authenticates direct tokens against the current agent configuration.

`authn/direct_tokens.py` verifies the token itself. This module applies what has changed since it was issued: deleted or
disabled users, revoked generations, lost group memberships, and recreated clusters of the same name. Results are
cached until the configuration changes, because every request needs them.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fairlead.agent.config_cache import State
from fairlead.authn.direct_tokens import MAX_SKEW, Claims, InvalidToken, cluster_audience, verify
from fairlead.authn.principals import own_groups
from fairlead.core.clock import Clock
from fairlead.core.cluster_identity import cluster_groups
from fairlead.core.scope import ANY, Scope
from fairlead.core.user import AUTHENTICATED, EVERYBODY, TEAM_GROUP, User

TOKEN_ID = "service.sh/direct-token"
"""Key in the user's `extra`: the id of the token, for audit logs."""

KEPT = 8192


class NotKnownYet(InvalidToken):
    """The token's user or team is not in the configuration. It may be newer than the configuration."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The user of a valid token, and the token's id and expiry."""

    user: User
    token: str
    expires: int


class Holders:
    """Authenticates tokens, with a cache by digest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._state: State | None = None
        self._kept: dict[bytes, Holder] = {}

    def of(self, token: str, state: State) -> Holder:
        """Raises InvalidToken. Its message is for the log, and contains no part of the token."""
        if state is not self._state or len(self._kept) >= KEPT:
            self._state, self._kept = state, {}
        digest = hashlib.sha256(token.encode()).digest()
        identity = self._kept.get(digest)
        now = self._clock.now()
        if identity is None:
            audiences = tuple(cluster_audience(state.cluster_uid, is_scoped=each) for each in (False, True))
            claims = verify(token, state.jwks, issuer=state.issuer, audience=audiences, now=now)
            identity = self._kept[digest] = _holder(claims, state)
        elif identity.expires <= now.timestamp() - MAX_SKEW:
            raise InvalidToken("it has expired")
        return identity


def _holder(claims: Claims, state: State) -> Holder:
    user = User(
        claims.user,
        _groups(claims, state),
        claims.uid,
        scope=_bound(claims, state),
        impersonator=User(claims.original_requester) if claims.original_requester else None,
        extra=((TOKEN_ID, (claims.id,)),),
    )
    return Holder(user, claims.id, claims.expires)


def _groups(claims: Claims, state: State) -> tuple[str, ...]:
    """The token's groups that the user or team still has. Raises InvalidToken if it no longer exists."""
    return tuple(dict.fromkeys((*_held(claims, state, cluster_groups(claims.groups)), AUTHENTICATED)))


def _held(claims: Claims, state: State, groups: Iterable[str]) -> Iterable[str]:
    if claims.kind == "User":
        user = state.users.get(claims.uid)
        if user is None or claims.user != claims.name:
            raise NotKnownYet("its user is disabled, deleted or not known yet")
        if claims.generation < user.generation:
            raise InvalidToken("its user has revoked all tokens of this generation")
        implicit = own_groups(claims.name)
        return [group for group in groups if group in user.groups or group in implicit]
    if claims.kind == "Team":
        group = f"{TEAM_GROUP}{claims.name}"
        if claims.uid not in state.teams or claims.user != group:
            raise NotKnownYet("its team is disabled, deleted or not known yet")
        return [each for each in groups if each in (group, *EVERYBODY)]
    return groups


def _bound(claims: Claims, state: State) -> Scope | None:
    """The token's scope, restricted to this cluster. Ignores entries for an earlier cluster of the same name."""
    scope = Scope.of(claims.scope)
    if scope is None:
        return None
    is_this_cluster = _is_ours(claims.clusters, state)

    def applies(name: str) -> bool:
        return name == ANY or (name == state.cluster and is_this_cluster)

    rules = tuple(rule for rule in scope.rules if not rule.cluster or applies(rule.cluster))
    return replace(scope, clusters=tuple(filter(applies, scope.clusters)), rules=rules)


def _is_ours(clusters: Mapping[str, str], state: State) -> bool:
    return clusters.get(state.cluster) == state.cluster_uid
