"""Authenticates direct tokens against the current agent configuration.

`authn/direct_tokens.py` verifies the token itself. This module applies what has changed since it was issued: deleted or
disabled users, revoked generations, lost group memberships, and recreated clusters of the same name. Results are
cached until the configuration changes, because every request needs them.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fairlead.agent.config_cache import AgentConfig
from fairlead.authn.direct_tokens import MAX_SKEW_SECONDS, Claims, InvalidToken, cluster_audience, verify
from fairlead.authn.principals import implicit_groups
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.clock import Clock
from fairlead.core.scope import ANY, Scope
from fairlead.core.user import AUTHENTICATED, AUTHENTICATED_GROUPS, TEAM_GROUP_PREFIX, User
from fairlead.domain.cluster_identity import cluster_groups

TOKEN_ID_EXTRA = "service.sh/direct-token"
"""Key in the user's `extra`: the id of the token, for audit logs."""

TOKEN_CACHE_SIZE = 8192


class UnknownSubject(InvalidToken):
    """The token's user or team is not in the configuration. It may be newer than the configuration."""


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """The user of a valid token, and the token's id and expiry."""

    user: User
    token_id: str
    expires_at: int


class DirectTokenAuthenticator:
    """Authenticates tokens, with a cache by digest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._config: AgentConfig | None = None
        self._cache: BoundedCache[bytes, TokenIdentity] = BoundedCache(TOKEN_CACHE_SIZE)

    def authenticate(self, token: str, config: AgentConfig) -> TokenIdentity:
        """Raises InvalidToken. Its message is for the log, and contains no part of the token."""
        if config is not self._config:
            self._config = config
            self._cache.clear()
        digest = hashlib.sha256(token.encode()).digest()
        identity = self._cache.get(digest)
        now = self._clock.now()
        if identity is None:
            audiences = tuple(cluster_audience(config.cluster_uid, is_scoped=each) for each in (False, True))
            claims = verify(token, config.jwks, issuer=config.issuer, audience=audiences, now=now)
            identity = self._cache[digest] = _build_identity(claims, config)
        elif identity.expires_at <= now.timestamp() - MAX_SKEW_SECONDS:
            raise InvalidToken("it has expired")
        return identity


def _build_identity(claims: Claims, config: AgentConfig) -> TokenIdentity:
    user = User(
        claims.user,
        _current_groups(claims, config),
        claims.uid,
        scope=_scope_for_cluster(claims, config),
        impersonator=User(claims.original_requester) if claims.original_requester else None,
        extra=((TOKEN_ID_EXTRA, (claims.id,)),),
    )
    return TokenIdentity(user, claims.id, claims.expires_at)


def _current_groups(claims: Claims, config: AgentConfig) -> tuple[str, ...]:
    """The token's groups that the user or team still has. Raises InvalidToken if it no longer exists."""
    return tuple(dict.fromkeys((*_retained_groups(claims, config, cluster_groups(claims.groups)), AUTHENTICATED)))


def _retained_groups(claims: Claims, config: AgentConfig, groups: Iterable[str]) -> Iterable[str]:
    if claims.kind == "User":
        user = config.users.get(claims.uid)
        if user is None or claims.user != claims.name:
            raise UnknownSubject("its user is disabled, deleted or not known yet")
        if claims.generation < user.generation:
            raise InvalidToken("its user has revoked all tokens of this generation")
        implicit = implicit_groups(claims.name)
        return [group for group in groups if group in user.groups or group in implicit]
    if claims.kind == "Team":
        group = f"{TEAM_GROUP_PREFIX}{claims.name}"
        if claims.uid not in config.teams or claims.user != group:
            raise UnknownSubject("its team is disabled, deleted or not known yet")
        return [each for each in groups if each in (group, *AUTHENTICATED_GROUPS)]
    return groups


def _scope_for_cluster(claims: Claims, config: AgentConfig) -> Scope | None:
    """The token's scope, restricted to this cluster. Ignores entries for an earlier cluster of the same name."""
    scope = Scope.parse(claims.scope)
    if scope is None:
        return None
    is_this_cluster = _names_this_cluster(claims.clusters, config)

    def applies(name: str) -> bool:
        return name == ANY or (name == config.cluster and is_this_cluster)

    rules = tuple(rule for rule in scope.rules if not rule.cluster or applies(rule.cluster))
    return replace(scope, clusters=tuple(filter(applies, scope.clusters)), rules=rules)


def _names_this_cluster(clusters: Mapping[str, str], config: AgentConfig) -> bool:
    return clusters.get(config.cluster) == config.cluster_uid
