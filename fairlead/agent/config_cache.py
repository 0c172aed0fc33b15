"""The agent's configuration: polled from the server, cached on disk, and valid for a limited time without the server.

It is the response of `clusters/<name>/agentconfig`, with everything that is needed to authorize a token. While the
server is unreachable, the agent uses the cached configuration, for a day by default: an attacker who blocks the
connection must not keep revoked tokens valid forever. If the server rejects the agent, the cache is cleared
immediately.
"""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

import msgspec
import orjson
import structlog

from fairlead.agent.control_plane import AgentRejected, ControlPlane, ControlPlaneError
from fairlead.authz.scope import ScopeNaming
from fairlead.core.clock import Clock
from fairlead.core.errors import Details, Unavailable
from fairlead.core.files import read_file, write_file
from fairlead.core.objects import Object
from fairlead.domain.cluster_identity import ClusterIdentityMapper, cluster_groups
from fairlead.settings.declarations import check_identity_prefix

REFRESH_SECONDS, REFRESH_JITTER = 20.0, 0.2
"""Polling interval and its jitter, so that agents do not poll in lockstep."""
MIN_REFRESH_SECONDS = 5.0
"""Minimum interval of refreshes outside of polling, triggered by tokens unknown to the cached configuration."""
REFRESH_TIMEOUT = 2.0
"""How long a request waits for such a refresh. Short, because forged tokens trigger it, too."""
SAVE_SECONDS = 600.0
"""Interval of writing the cache file if only the time of confirmation has changed."""
STARTUP_RETRY_SECONDS = 1
"""Retry-After until the server's first response. Other errors have none: kubectl would retry silently, ten times, and
its user would not see the error."""

log = structlog.get_logger(__name__)


class InvalidAgentConfig(ValueError):
    """The document is not a valid agent configuration."""


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


class _AgentConfigDocument(msgspec.Struct):
    """The parts of the document that are used. All are required: a missing part would change who gets access."""

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
class UserState:
    """Current state of a user. Tokens of an earlier generation are revoked; groups are those valid in clusters."""

    generation: int
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class SpaceState:
    """A space: its namespace in this cluster, and the uids of the users and teams who may use it."""

    namespace: str
    allowed_uids: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class AgentConfig:
    """The agent's configuration, parsed."""

    cluster: str
    cluster_uid: str
    issuer: str
    jwks: Object
    scope_names: ScopeNaming
    allowed_uids: frozenset[str]
    """The uids of users and teams who may use the cluster."""
    spaces: Mapping[tuple[str, str], SpaceState]
    """The spaces in this cluster, by project and name."""
    users: Mapping[str, UserState]
    """By uid."""
    teams: frozenset[str]
    """Uids."""
    cluster_names: ClusterIdentityMapper
    """Maps users to their identities in the cluster."""

    @staticmethod
    def parse(content: bytes, cluster: str) -> "AgentConfig":
        """Raises InvalidAgentConfig for an incomplete document, or that of another cluster."""
        try:
            config = msgspec.json.decode(content, type=_AgentConfigDocument)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            advice = "update the server first if this agent is newer"
            raise InvalidAgentConfig(f"invalid agent configuration: {error}; {advice}") from None
        if config.cluster != cluster or not config.clusterUID or not config.issuer:
            raise InvalidAgentConfig("the agent configuration is incomplete, or that of another cluster")
        if wrong := check_identity_prefix(config.clusterIdentityPrefix):
            raise InvalidAgentConfig(f"clusterIdentityPrefix {wrong}")
        identities = config.identities
        return AgentConfig(
            cluster=config.cluster,
            cluster_uid=config.clusterUID,
            issuer=config.issuer,
            jwks=config.jwks,
            scope_names=_scope_names(config.apiGroup, config.projectNamespacePrefix),
            allowed_uids=frozenset(config.allowed),
            spaces={
                (each.project, each.name): SpaceState(each.namespace, frozenset(each.allowed)) for each in config.spaces
            },
            users={
                each.uid: UserState(each.generation, frozenset(cluster_groups(each.groups)))
                for each in identities.users
            },
            teams=frozenset(each.uid for each in identities.teams),
            cluster_names=ClusterIdentityMapper(config.clusterIdentityPrefix),
        )


@lru_cache(maxsize=8)
def _scope_names(api_group: str, namespace_prefix: str) -> ScopeNaming:
    """One instance per set of names, because compiled scopes are cached by it. No kinds: behind gateways they are not
    ours."""
    return ScopeNaming(api_group, namespace_prefix, {})


class _CacheFile(msgspec.Struct):
    """The cache file: the configuration, its ETag, and when the server last confirmed it."""

    etag: str
    confirmed: datetime
    config: msgspec.Raw


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """The agent's cluster, the cache file, and how long the configuration is valid without the server."""

    cluster: str
    file: Path
    offline_seconds: float


class ConfigCache:
    """Polls and caches the agent's configuration."""

    def __init__(self, control_plane: ControlPlane, options: CacheOptions, clock: Clock) -> None:
        self._control_plane = control_plane
        self._options = options
        self._clock = clock
        self._config: AgentConfig | None = None
        self._etag, self._content = "", b""
        self._confirmed_at: datetime | None = None
        self._last_saved = self._last_fetch = float("-inf")
        self._refresh_lock = asyncio.Lock()
        self._error = ""

    @property
    def config(self) -> AgentConfig:
        """The current configuration. Raises Unavailable if there is none, or if it is too old."""
        if self._config is None or self._confirmed_at is None:
            is_starting = not self._error
            reason = self._error or "no response yet"
            message = f"this endpoint has no configuration from its server ({reason}); try again, or use the server"
            raise Unavailable(message, Details(retry_after=STARTUP_RETRY_SECONDS if is_starting else 0))
        if (self._clock.now() - self._confirmed_at).total_seconds() > self._options.offline_seconds:
            raise Unavailable("this endpoint has been without contact to its server for too long; use the server")
        return self._config

    def load(self) -> None:
        """Loads the cache file of an earlier run. Ignores an invalid file."""
        content = read_file(self._options.file)
        if content is None:
            return
        try:
            cached = msgspec.json.decode(content, type=_CacheFile)
            self._config = AgentConfig.parse(bytes(cached.config), self._options.cluster)
        except (msgspec.DecodeError, msgspec.ValidationError, InvalidAgentConfig):
            log.warning("the cached agent configuration is invalid and will be fetched again")
            return
        self._etag, self._content = cached.etag, bytes(cached.config)
        # If the clock was set back, an old configuration must not become valid for longer.
        self._confirmed_at = min(cached.confirmed, self._clock.now())

    async def run(self) -> None:
        """Polls the server until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_SECONDS * random.uniform(1 - REFRESH_JITTER, 1 + REFRESH_JITTER))

    async def refresh_now(self) -> None:
        """Refreshes outside of polling, unless a refresh was just made. Concurrent callers share one refresh."""
        with suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_TIMEOUT), self._refresh_lock:
                if self._clock.monotonic() - self._last_fetch >= MIN_REFRESH_SECONDS:
                    await self._fetch()

    async def refresh(self) -> None:
        async with self._refresh_lock:
            await self._fetch()

    async def _fetch(self) -> None:
        self._last_fetch = self._clock.monotonic()
        try:
            response = await self._control_plane.get_config(self._etag)
            if response is not None:
                etag, content = response
                self._config = AgentConfig.parse(content, self._options.cluster)
                self._etag, self._content = etag, content
        except AgentRejected as error:
            self._clear()
            self._log_state(str(error))
        except (ControlPlaneError, InvalidAgentConfig) as error:
            self._log_state(str(error))
        else:
            self._confirmed_at = self._clock.now()
            self._log_state("")
            self._save(changed=response is not None)

    def _save(self, changed: bool) -> None:
        if not changed and self._clock.monotonic() - self._last_saved < SAVE_SECONDS:
            return
        document = {"etag": self._etag, "confirmed": self._confirmed_at, "config": orjson.Fragment(self._content)}
        write_file(self._options.file, orjson.dumps(document))
        self._last_saved = self._clock.monotonic()

    def _clear(self) -> None:
        """Clears the configuration and deletes the cache file, so that a restart does not load it again."""
        self._config, self._etag, self._content, self._confirmed_at = None, "", b"", None
        self._last_saved = float("-inf")
        self._options.file.unlink(missing_ok=True)

    def _log_state(self, error: str) -> None:
        """Logs each new error once, and its end."""
        if error and error != self._error:
            log.warning("cannot fetch the agent configuration", reason=error, known=self._config is not None)
        elif self._error and not error:
            log.info("the server responds again")
        self._error = error
