"""What the agent has learnt from its server: fetched again and again, kept on disk, and trusted for a while without it.

While the server is down the agent goes on with what it knows, for a day by default: somebody who keeps the two apart
would otherwise keep revoked tokens alive. A server that dismisses the agent ends its work at once.
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

# DOC-MERGED gateway/direct/state
# What an agent knows of its server, as a value: everything that deciding about a token takes.
#
# It is what `clusters/<name>/agentconfig` answers with. `config_cache.py` fetches and keeps it.


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


EVERY_SECONDS, SPREAD = 20.0, 0.2
"""Between two questions, give or take a part of it, so that many agents do not all ask at once."""
CATCH_UP_SECONDS = 5.0
"""Between two questions that are asked out of turn, because a token says something that is not known here yet."""
PATIENCE_SECONDS = 2.0
"""How long somebody waits for such an answer: those who come with a forged token, too."""
SAVE_SECONDS = 600.0
"""How often it is written down that nothing has changed."""
STARTING_SECONDS = 1
"""When to come again while the server is being asked for the first time. In every other trouble clients are told
nothing of that sort: kubectl would wait silently, ten times over, and its user would not learn what is wrong."""

log = structlog.get_logger(__name__)


class _Kept(msgspec.Struct):
    """The file. What the server said, when it last said so, and by which name it knows it."""

    etag: str
    confirmed: datetime
    config: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Keeping:
    """Whose knowledge it is, the file it is kept in, and how many seconds it is trusted without the server."""

    cluster: str
    file: Path
    offline_seconds: float


class Knowledge:
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
        """Raises Unavailable while nothing is known, or nothing that could still be trusted."""
        if self._state is None or self._confirmed is None:
            is_starting = not self._trouble
            why = self._trouble or "it has not been asked yet"
            message = f"this endpoint knows nothing of its server ({why}); try again, or go through the server"
            raise Unavailable(message, Details(retry_after=STARTING_SECONDS if is_starting else 0))
        if (self._clock.now() - self._confirmed).total_seconds() > self._keeping.offline_seconds:
            raise Unavailable("this endpoint has not heard from its server for too long; go through the server")
        return self._state

    def load(self) -> None:
        """Takes up what an earlier run has left. What cannot be read is as good as nothing."""
        content = read_file(self._keeping.file)
        if content is None:
            return
        try:
            kept = msgspec.json.decode(content, type=_Kept)
            self._state = State.read(bytes(kept.config), self._keeping.cluster)
        except (msgspec.DecodeError, msgspec.ValidationError, BadState):
            log.warning("what an earlier run knew cannot be read, and is asked for again")
            return
        self._etag, self._content = kept.etag, bytes(kept.config)
        # A clock that was set back must not make old knowledge new.
        self._confirmed = min(kept.confirmed, self._clock.now())

    async def run(self) -> None:
        """Keeps asking until it is cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(EVERY_SECONDS * random.uniform(1 - SPREAD, 1 + SPREAD))

    async def catch_up(self) -> None:
        """Asks out of turn, together with whoever else wants that, unless it was asked just now."""
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
            answer = await self._home.configuration(self._etag)
            if answer is not None:
                etag, content = answer
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
            self._save(changed=answer is not None)

    def _save(self, changed: bool) -> None:
        if not changed and self._clock.monotonic() - self._saved < SAVE_SECONDS:
            return
        kept = {"etag": self._etag, "confirmed": self._confirmed, "config": orjson.Fragment(self._content)}
        write_file(self._keeping.file, orjson.dumps(kept))
        self._saved = self._clock.monotonic()

    def _forget(self) -> None:
        """On disk, too: another start must not take up what is over."""
        self._state, self._etag, self._content, self._confirmed = None, "", b"", None
        self._saved = float("-inf")
        self._keeping.file.unlink(missing_ok=True)

    def _tell(self, trouble: str) -> None:
        """Once for each trouble, and once when it is over."""
        if trouble and trouble != self._trouble:
            log.warning("the server was asked in vain", reason=trouble, known=self._state is not None)
        elif self._trouble and not trouble:
            log.info("the server answers again")
        self._trouble = trouble
