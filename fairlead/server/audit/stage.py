"""The two stages that keep the audit log. `app` puts them into the pipeline.

`recorded` stands outside of everything that can fail, so that it sees the answer to every request, and has what became
of it written: exactly one ResponseComplete each. `accountable` stands where it is known who asks for what and nothing
has been done yet: there a request is refused that could not be recorded, and announced if the policy asks for that.
"""

import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

from fairlead.core.call import Call, Reply, Socket, Upgrade
from fairlead.core.clock import Clock
from fairlead.registry.catalog import Catalog
from fairlead.server.audit.event import Exchange
from fairlead.server.audit.intake import READS, Logs
from fairlead.server.audit.policy import REQUEST, Policy
from fairlead.server.audit.recorder import Kept, Recorder
from fairlead.server.audit.trail import Trail
from fairlead.server.failures import failures
from fairlead.server.health import HEALTH_PATHS
from fairlead.server.pipeline import Proceed

ROOM_SECONDS = 10.0
"""How long a request waits for room in a full queue before it is sent away."""

_BODILESS = ("GET", "HEAD")


class Audit:
    """The audit log of one server. `mount` is where the management API hangs."""

    def __init__(self, policy: Policy, logs: Logs, catalog: Catalog, clock: Clock, mount: str) -> None:
        self._policy = policy
        self._trail = logs.people
        self._clock = clock
        self._recorder = Recorder(policy, logs, catalog, clock)
        self._health = frozenset(root + path for root in ("", mount) for path in HEALTH_PATHS)
        self._under_way: dict[int, Exchange] = {}
        self._streams: dict[Exchange, tuple[int, Trail]] = {}

    def record_at_least(self, level: Callable[[], int]) -> None:
        """From now on, whatever is recorded is recorded at this level or the policy's, whichever has more."""
        self._recorder.at_least = level

    @property
    def suppressed(self) -> Mapping[str, int]:
        """By sort, how many requests were counted and not recorded whole."""
        return self._recorder.intake.suppressed

    def recorded(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        if self._trail.is_full:
            return self._recorded_with_room(call, proceed)
        exchange = Exchange(call, self._clock.now(), self._clock.monotonic())
        kept = Kept(call) if call.method not in _BODILESS and self._keeps_bodies() else None
        if self._policy.announces:
            self._under_way[id(call)] = exchange
        try:
            answer = proceed(call)
        except BaseException:
            self._cut_off(exchange)
            raise
        if isinstance(answer, Reply):
            return self._complete(exchange, answer, kept)
        return self._recorded_later(exchange, answer, kept)

    async def _recorded_later(self, exchange: Exchange, answer: Awaitable[Reply], kept: Kept | None) -> Reply:
        try:
            reply = await answer
        except BaseException:
            self._cut_off(exchange)
            raise
        return self._complete(exchange, reply, kept)

    async def _recorded_with_room(self, call: Call, proceed: Proceed) -> Reply:
        """Waits before anything is done."""
        if call.path in self._health:
            return await proceed(call)  # whoever asks how the server is must be told
        if not await self._trail.room(ROOM_SECONDS):
            return await failures(call, self._refuse)
        return await self.recorded(call, proceed)

    def _keeps_bodies(self) -> bool:
        return self._policy.highest >= REQUEST or self._recorder.at_least() >= REQUEST

    def _complete(self, exchange: Exchange, reply: Reply, kept: Kept | None) -> Reply:
        if self._under_way:
            self._under_way.pop(id(exchange.call), None)
        if self._recorder.is_recorded(exchange):
            if reply.stream is None and reply.upgrade is None:
                self._recorder.answered(exchange, reply, kept)
            else:
                self._begin(exchange, reply, kept)
        return reply

    def _cut_off(self, exchange: Exchange) -> None:
        self._under_way.pop(id(exchange.call), None)
        if self._recorder.is_recorded(exchange):
            self._recorder.cut_off(exchange)

    def accountable(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        if self._trail.failure and (call.target.verb not in READS or self._recorder.credentials.concern(call.target)):
            raise self._trail.unavailable()
        if self._under_way:
            exchange = self._under_way.get(id(call))
            if exchange is not None and self._recorder.is_recorded(exchange):
                self._recorder.received(exchange)
        return proceed(call)

    def finish(self) -> None:
        """For the end of the server: streams that nobody has ended are over now, and summaries are due."""
        for exchange in list(self._streams):
            self._end(exchange)
        self._recorder.intake.flush()

    def _begin(self, exchange: Exchange, reply: Reply, kept: Kept | None) -> None:
        """Notes an answer that goes on, and follows it to its end. To a HEAD, nothing is sent of it."""
        if reply.upgrade is None and exchange.call.method == "HEAD":
            self._recorder.answered(exchange, reply, kept)
            return
        # What goes on as a WebSocket is a command or a tunnel, and recorded whatever the rate.
        trail = self._trail if reply.upgrade is not None else self._recorder.intake.admit(exchange, reply.status)
        if trail is None:
            return
        self._recorder.started(exchange, reply.status, trail)
        self._streams[exchange] = reply.status, trail
        if reply.upgrade is not None:
            reply.upgrade = self._accompanied(exchange, reply.upgrade)
        elif reply.stream is not None:
            reply.stream = self._followed(exchange, reply.stream)
            # One that is never begun never ends by itself either; it is only forgotten.
            weakref.finalize(reply.stream, self._end, exchange).atexit = False

    async def _followed(self, exchange: Exchange, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            self._end(exchange)
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    def _accompanied(self, exchange: Exchange, upgrade: Upgrade) -> Upgrade:
        async def run(socket: Socket) -> None:
            try:
                await upgrade.run(socket)
            finally:
                self._end(exchange)

        return Upgrade(upgrade.protocol, run)

    def _end(self, exchange: Exchange) -> None:
        """However many ways a stream ends in, it is written once."""
        begun = self._streams.pop(exchange, None)
        if begun is not None:
            self._recorder.ended(exchange, *begun)

    async def _refuse(self, call: Call) -> Reply:
        raise self._trail.unavailable()
