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

from fairlead.agent.control_plane import Dismissed, Home, HomeProblem
from fairlead.authz.scope import ScopeNames
from fairlead.core.clock import Clock
from fairlead.core.cluster_identity import ClusterNames, check_prefix, cluster_groups
from fairlead.core.errors import Details, Unavailable
from fairlead.core.files import read_file, write_file
from fairlead.core.objects import Object

EVERY_SECONDS, SPREAD = 20.0, 0.2
"""Polling interval and its jitter, so that agents do not poll in lockstep."""
CATCH_UP_SECONDS = 5.0
"""Minimum interval of refreshes outside of polling, triggered by tokens unknown to the cached configuration."""
PATIENCE_SECONDS = 2.0
"""How long a request waits for such a refresh. Short, because forged tokens trigger it, too."""
SAVE_SECONDS = 600.0
"""Interval of writing the cache file if only the time of confirmation has changed."""
STARTING_SECONDS = 1
"""Retry-After until the server's first response. Other errors have none: kubectl would retry silently, ten times, and
its user would not see the error."""

log = structlog.get_logger(__name__)


class BadState(ValueError):
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


class _Config(msgspec.Struct):
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
class Person:
    """Current state of a user. Tokens of an earlier generation are revoked; groups are those valid in clusters."""

    generation: int
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class Place:
    """A space: its namespace in this cluster, and the uids of the users and teams who may use it."""

    namespace: str
    allowed: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """The agent's configuration, parsed."""

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
    """Maps users to their identities in the cluster."""

    @staticmethod
    def read(content: bytes, cluster: str) -> "State":
        """Raises InvalidAgentConfig for an incomplete document, or that of another cluster."""
        try:
            config = msgspec.json.decode(content, type=_Config)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            advice = "update the server first if this agent is newer"
            raise BadState(f"invalid agent configuration: {error}; {advice}") from None
        if config.cluster != cluster or not config.clusterUID or not config.issuer:
            raise BadState("the agent configuration is incomplete, or that of another cluster")
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
    """One instance per set of names, because compiled scopes are cached by it. No kinds: behind gateways they are not
    ours."""
    return ScopeNames(api_group, namespace_prefix, {})


class _Kept(msgspec.Struct):
    """The cache file: the configuration, its ETag, and when the server last confirmed it."""

    etag: str
    confirmed: datetime
    config: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Keeping:
    """The agent's cluster, the cache file, and how long the configuration is valid without the server."""

    cluster: str
    file: Path
    offline_seconds: float


class Knowledge:
    """Polls and caches the agent's configuration."""

    def __init__(self, home: Home, keeping: Keeping, clock: Clock) -> None:
        self._home = home
        self._keeping = keeping
        self._clock = clock
        self._state: State | None = None
        self._etag, self._content = "", b""
        self._confirmed: datetime | None = None
        self._saved = self._asked = float("-inf")
        self._asking = asyncio.Lock()
        self._trouble = ""

    @property
    def state(self) -> State:
        """The current configuration. Raises Unavailable if there is none, or if it is too old."""
        if self._state is None or self._confirmed is None:
            is_starting = not self._trouble
            reason = self._trouble or "no response yet"
            message = f"this endpoint has no configuration from its server ({reason}); try again, or use the server"
            raise Unavailable(message, Details(retry_after=STARTING_SECONDS if is_starting else 0))
        if (self._clock.now() - self._confirmed).total_seconds() > self._keeping.offline_seconds:
            raise Unavailable("this endpoint has been without contact to its server for too long; use the server")
        return self._state

    def load(self) -> None:
        """Loads the cache file of an earlier run. Ignores an invalid file."""
        content = read_file(self._keeping.file)
        if content is None:
            return
        try:
            cached = msgspec.json.decode(content, type=_Kept)
            self._state = State.read(bytes(cached.config), self._keeping.cluster)
        except (msgspec.DecodeError, msgspec.ValidationError, BadState):
            log.warning("the cached agent configuration is invalid and will be fetched again")
            return
        self._etag, self._content = cached.etag, bytes(cached.config)
        # If the clock was set back, an old configuration must not become valid for longer.
        self._confirmed = min(cached.confirmed, self._clock.now())

    async def run(self) -> None:
        """Polls the server until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(EVERY_SECONDS * random.uniform(1 - SPREAD, 1 + SPREAD))

    async def catch_up(self) -> None:
        """Refreshes outside of polling, unless a refresh was just made. Concurrent callers share one refresh."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS), self._asking:
                if self._clock.monotonic() - self._asked >= CATCH_UP_SECONDS:
                    await self._ask()

    async def refresh(self) -> None:
        async with self._asking:
            await self._ask()

    async def _ask(self) -> None:
        self._asked = self._clock.monotonic()
        try:
            response = await self._home.configuration(self._etag)
            if response is not None:
                etag, content = response
                self._state = State.read(content, self._keeping.cluster)
                self._etag, self._content = etag, content
        except Dismissed as error:
            self._forget()
            self._tell(str(error))
        except (HomeProblem, BadState) as error:
            self._tell(str(error))
        else:
            self._confirmed = self._clock.now()
            self._tell("")
            self._save(changed=response is not None)

    def _save(self, changed: bool) -> None:
        if not changed and self._clock.monotonic() - self._saved < SAVE_SECONDS:
            return
        document = {"etag": self._etag, "confirmed": self._confirmed, "config": orjson.Fragment(self._content)}
        write_file(self._keeping.file, orjson.dumps(document))
        self._saved = self._clock.monotonic()

    def _forget(self) -> None:
        """Clears the configuration and deletes the cache file, so that a restart does not load it again."""
        self._state, self._etag, self._content, self._confirmed = None, "", b"", None
        self._saved = float("-inf")
        self._keeping.file.unlink(missing_ok=True)

    def _tell(self, trouble: str) -> None:
        """Logs each new error once, and its end."""
        if trouble and trouble != self._trouble:
            log.warning("cannot fetch the agent configuration", reason=trouble, known=self._state is not None)
        elif self._trouble and not trouble:
            log.info("the server responds again")
        self._trouble = trouble
