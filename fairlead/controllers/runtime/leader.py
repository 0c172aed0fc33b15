"""Which of several replicas works: the one that holds a Lease. Run by the composition root on a store that is shared.

The lease is an ordinary object, `kubectl get lease -n service-system` shows who holds it, and it changes hands by
compare-and-swap only. Nobody believes anybody's clock: whoever wants the lease measures, on a monotonic clock of its
own, for how long it has not been renewed. The holder stops, by its own clock, well before that is as long as the lease.

    renewal begun          holder stops at the latest              others may take it
    0 s ────── 2 s ─ next renewal ───── 6 s ────────────────────── 10 s after they have seen the renewal

That keeps two replicas from working at once as long as both of them run. A process that stands still and wakes up later
does not stop in time; its writes are refused by the fence (`storage/fenced.py`) that every renewal moves.
"""

import asyncio
import secrets
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import orjson
import structlog

from fairlead.controllers.runtime.multi_watch import Ears
from fairlead.core.clock import Clock, micro_timestamp
from fairlead.core.errors import ApiError, Conflict, NotFound
from fairlead.core.objects import Object, dig, metadata
from fairlead.registry.codec import decode
from fairlead.registry.resource import Edit, Resource
from fairlead.registry.write_options import by_the_server
from fairlead.storage.fenced import Fence
from fairlead.storage.view.view import Entry

LEASE_NAME = "fairlead-controllers"

Work = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """In seconds. `deadline`: for how long after the beginning of its last renewal a holder goes on working."""

    duration: int = 10
    renew: float = 2.0
    deadline: float = 6.0
    retry: float = 0.5
    give_up: float = 2.0


def new_identity() -> str:
    """Of this process: another one of the same machine, or the same after a restart, is somebody else."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


class Leader:
    """This replica's part in the race. `fence` is for what it does while it leads."""

    def __init__(
        self, leases: Resource, namespace: str, clock: Clock, identity: str, timing: Timing | None = None
    ) -> None:
        self._leases = leases
        self._namespace = namespace
        self._clock = clock
        self._timing = timing or Timing()
        self._good_until = 0.0
        self._seen, self._seen_at = -1, 0.0
        self.identity = identity
        self.fence = Fence(leases.kind.key(namespace, LEASE_NAME))

    @property
    def leading(self) -> bool:
        return self.fence.held

    async def run(self, work: Work) -> None:
        """Has the work done whenever this replica leads, until it is cancelled or the server stops."""
        while await self._won():
            await self._lead(work)

    async def _won(self) -> bool:
        """Waits for the lease. False: the server stops."""
        while True:
            ears = self._listen()
            try:
                if ears.ended:
                    return False
                entry = self._peek()
                left = self._time_left(entry)
                if left <= 0 and await self._take(entry):
                    return True
                await ears.wait(max(left, self._timing.retry))
            finally:
                ears.close()

    def _time_left(self, entry: Entry | None) -> float:
        """Until the lease may be taken, going by when we have first seen it as it is."""
        now, revision = self._clock.monotonic(), entry.revision if entry is not None else 0
        if revision != self._seen:
            self._seen, self._seen_at = revision, now
        if entry is None:
            return 0.0
        lease = decode(entry)
        if _holder(lease) in ("", self.identity):
            return 0.0
        duration: float = dig(lease, "spec.leaseDurationSeconds") or self._timing.duration
        return self._seen_at + duration - now

    async def _take(self, entry: Entry | None) -> bool:
        """Whether the lease is ours now. If anybody has touched it meanwhile, it is not."""
        begun = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._timing.deadline):
                revision = await (self._create() if entry is None else self._write(self._taking(entry)))
        except (ApiError, TimeoutError) as error:
            if not isinstance(error, Conflict):
                log.info("the lease could not be taken; trying again", reason=str(error) or "no answer in time")
            return False
        self._renewed(begun, revision)
        log.info("leading now: controllers work in this replica", identity=self.identity)
        return True

    async def _lead(self, work: Work) -> None:
        task = asyncio.create_task(work(), name="leading")
        # Work ends only through a fault of ours, and that is not to be found out at the next renewal.
        task.add_done_callback(lambda _: self.fence.doubted.set())
        try:
            why = await self._hold(task)
            log.warning("not leading any more: controllers rest in this replica", reason=why)
        finally:
            self.fence.drop()
            await _surely(self._end(task))
        if not task.cancelled():
            task.result()

    async def _end(self, task: "asyncio.Task[None]") -> None:
        """The lease goes to others when the work has really ended."""
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._give_up()

    async def _hold(self, task: "asyncio.Task[None]") -> str:
        """Renews the lease for as long as it can be, and says why it no longer can."""
        while True:
            if await self._pause():
                return "the server stops"
            if task.done():
                return "the work has ended"
            if lost := await self._renew():
                return lost

    async def _pause(self) -> bool:
        """Until the next renewal is due, or needed; True if the server stops."""
        due = self._clock.monotonic() + self._timing.renew
        ears = self._listen()
        try:
            while not ears.ended and not self.fence.doubted.is_set():
                left = due - self._clock.monotonic()
                if left <= 0 or not self._still_ours():
                    break
                for _ in ears.drain():
                    continue  # what it was, the view shows
                if ears.overflowed:
                    break
                await ears.wait(left, self.fence.doubted)
            return ears.ended
        finally:
            ears.close()

    async def _renew(self) -> str:
        """Empty if it worked: otherwise why not."""
        while True:
            begun = self._clock.monotonic()
            try:
                async with asyncio.timeout(self._good_until - begun):
                    self._renewed(begun, await self._write(self._renewing))
                    return ""
            except TimeoutError:
                return "the store has not answered in time"
            except (Conflict, NotFound):
                return "somebody else has the lease"
            except ApiError as error:
                log.info("the lease could not be renewed; trying again", reason=error.message)
                await asyncio.sleep(self._timing.retry)

    def _renewed(self, begun: float, revision: int) -> None:
        self._good_until = begun + self._timing.deadline
        self.fence.move(revision)

    async def _give_up(self) -> None:
        """So that others need not wait. They do if this fails."""
        try:
            async with asyncio.timeout(self._timing.give_up):
                await self._write(self._giving_up)
        except (Conflict, NotFound):
            return  # somebody else has it already
        except (ApiError, TimeoutError) as error:
            log.info("the lease could not be given up; it will run out", reason=str(error) or "no answer in time")

    def _peek(self) -> Entry | None:
        return self._leases.peek(self._namespace, LEASE_NAME)

    def _still_ours(self) -> bool:
        entry = self._peek()
        return entry is not None and _holder(decode(entry)) == self.identity

    def _listen(self) -> Ears:
        kind = self._leases.kind
        return Ears(self._leases.view, ((kind.group, kind.plural),))

    async def _create(self) -> int:
        kind = self._leases.kind
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": LEASE_NAME}}
        spec = {**self._claim(), "acquireTime": self._now(), "leaseTransitions": 0}
        return _revision(await self._leases.create({**body, "spec": spec}, self._namespace, by_the_server()))

    async def _write(self, edit: Edit) -> int:
        return _revision(await self._leases.modify(self._namespace, LEASE_NAME, edit, by_the_server()))

    def _taking(self, entry: Entry) -> Edit:
        def taken(lease: Object) -> Object:
            spec = lease.get("spec") or {}
            count = (spec.get("leaseTransitions") or 0) + 1
            spec = {**spec, **self._claim(), "acquireTime": self._now(), "leaseTransitions": count}
            # The version that we have seen for so long, and no other: a renewal in the last moment wins.
            return {**lease, "metadata": {**metadata(lease), "resourceVersion": str(entry.revision)}, "spec": spec}

        return taken

    def _renewing(self, lease: Object) -> Object:
        return {**lease, "spec": {**self._ours(lease), **self._claim()}}

    def _giving_up(self, lease: Object) -> Object:
        return {**lease, "spec": {**self._ours(lease), "holderIdentity": "", "renewTime": self._now()}}

    def _ours(self, lease: Object) -> Object:
        if _holder(lease) != self.identity:
            raise Conflict.of(self._leases.kind.plural, self._leases.kind.group, LEASE_NAME, "it has another holder")
        spec: Object = lease["spec"]
        return spec

    def _claim(self) -> Object:
        claim = {"holderIdentity": self.identity, "leaseDurationSeconds": self._timing.duration}
        return {**claim, "renewTime": self._now()}

    def _now(self) -> str:
        return micro_timestamp(self._clock.now())


async def _surely(ending: Coroutine[Any, Any, None]) -> None:
    """Finishes it even if we are cancelled meanwhile: a server that stops cancels what is ending already."""
    task = asyncio.create_task(ending)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _holder(lease: Object) -> str:
    return str(dig(lease, "spec.holderIdentity") or "")


def _revision(body: bytes) -> int:
    return int(orjson.loads(body)["metadata"]["resourceVersion"])
