"""What the agent has learnt from its server: fetched again and again, kept on disk, and trusted for a while without it.

While the server is down the agent goes on with what it knows, for a day by default: somebody who keeps the two apart
would otherwise keep revoked tokens alive. A server that dismisses the agent ends its work at once.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
import orjson
import structlog

from fairlead.core.clock import Clock
from fairlead.core.errors import Details, Unavailable
from fairlead.core.files import read_file, write_file
from fairlead.gateway.direct.home import Dismissed, Home, HomeProblem
from fairlead.gateway.direct.state import BadState, State

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
