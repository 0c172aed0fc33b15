"""The two stages that keep the audit log. `app` puts them into the pipeline.

`recorded` stands outside of everything that can fail, so that it sees the answer to every request, and has what became
of it written: exactly one ResponseComplete each. `accountable` stands where it is known who asks for what and nothing
has been done yet: there a request is refused that could not be recorded, and announced if the policy asks for that.
"""

import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from fairlead.core.call import Call, Reply, Socket, Upgrade
from fairlead.core.clock import Clock
from fairlead.registry.catalog import Catalog
from fairlead.server.audit.event import Exchange
from fairlead.server.audit.policy import REQUEST, Policy
from fairlead.server.audit.recorder import Kept, Record, Recorder
from fairlead.server.audit.trail import Trail
from fairlead.server.failures import failures
from fairlead.server.health import HEALTH_PATHS
from fairlead.server.pipeline import Proceed

ROOM_SECONDS = 10.0
"""How long a request waits for room in a full queue before it is sent away."""

_READS = frozenset({"get", "list", "watch", "head", "options"})


class Audit:
    """The audit log of one server. `mount` is where the management API hangs."""

    def __init__(self, policy: Policy, trail: Trail, catalog: Catalog, clock: Clock, mount: str) -> None:
        self._policy = policy
        self._trail = trail
        self._clock = clock
        self._recorder = Recorder(policy, trail, catalog, clock)
        self._health = frozenset(root + path for root in ("", mount) for path in HEALTH_PATHS)
        self._under_way: dict[int, Exchange] = {}
        self._streams: dict[Record, int] = {}

    def record_at_least(self, level: Callable[[], int]) -> None:
        """From now on, whatever is recorded is recorded at this level or the policy's, whichever has more."""
        self._recorder.at_least = level

    async def recorded(self, call: Call, proceed: Proceed) -> Reply:
        if self._trail.is_full:
            if call.path in self._health:
                return await proceed(call)  # whoever asks how the server is must be told
            if not await self._trail.room(ROOM_SECONDS):
                return await failures(call, self._refuse)
        exchange = Exchange(call, self._clock.now(), self._clock.monotonic())
        kept = Kept(call) if max(self._policy.highest, self._recorder.at_least()) >= REQUEST else None
        if self._policy.announces:
            self._under_way[id(call)] = exchange
        try:
            reply = await proceed(call)
        except BaseException:
            if record := self._recorder.record(exchange):
                self._recorder.cut_off(record)
            raise
        finally:
            self._under_way.pop(id(call), None)
        if record := self._recorder.record(exchange):
            self._note(record, reply, kept)
        return reply

    def accountable(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        if self._trail.failure and (call.target.verb not in _READS or self._recorder.credentials.concern(call.target)):
            raise self._trail.unavailable()
        if (exchange := self._under_way.get(id(call))) and (record := self._recorder.record(exchange)):
            self._recorder.received(record)
        return proceed(call)

    def finish(self) -> None:
        """For the end of the server: streams that nobody has ended are over now."""
        for record in list(self._streams):
            self._end(record)

    def _note(self, record: Record, reply: Reply, kept: Kept | None) -> None:
        if reply.upgrade is not None:
            self._recorder.started(record, reply.status)
            self._streams[record] = reply.status
            reply.upgrade = self._accompanied(record, reply.upgrade)
            return
        if reply.stream is None or record.exchange.call.method == "HEAD":
            self._recorder.answered(record, reply, kept)
            return
        self._recorder.started(record, reply.status)
        self._streams[record] = reply.status
        reply.stream = self._followed(record, reply.stream)
        # One that is never begun never ends by itself either; it is only forgotten.
        weakref.finalize(reply.stream, self._end, record).atexit = False

    async def _followed(self, record: Record, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            self._end(record)
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    def _accompanied(self, record: Record, upgrade: Upgrade) -> Upgrade:
        async def run(socket: Socket) -> None:
            try:
                await upgrade.run(socket)
            finally:
                self._end(record)

        return Upgrade(upgrade.protocol, run)

    def _end(self, record: Record) -> None:
        """However many ways a stream ends in, it is written once."""
        status = self._streams.pop(record, None)
        if status is not None:
            self._recorder.ended(record, status)

    async def _refuse(self, call: Call) -> Reply:
        raise self._trail.unavailable()
