"""Leader election by a Lease: of several replicas on a shared store, one runs the controllers.

The Lease is an ordinary object (`kubectl get lease -n service-system` shows the holder) and is updated by
compare-and-swap only. No replica trusts the clock of another: a candidate measures on its own monotonic clock how long
the Lease was not renewed. The holder stops, by its own clock, well before the lease duration is over.

    renewal started        holder stops at the latest              others may acquire it
    0 s ────── 2 s ─ next renewal ───── 6 s ────────────────────── 10 s after they observed the renewal

So two running replicas never work at the same time. A process that was suspended and resumes later does not stop in
time; its writes are rejected by the fence (`storage/wrapper.py`), which every renewal advances.
"""

import asyncio
import secrets
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import orjson
import structlog

from fairlead.controllers.runtime.multi_watch import MultiWatch
from fairlead.core.clock import Clock, micro_timestamp
from fairlead.core.errors import ApiError, Conflict, NotFound
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.waiting import end_tasks, run_to_end
from fairlead.kinds.core.server_objects import CONTROLLERS_LEASE
from fairlead.registry.codec import decode
from fairlead.registry.resource import Edit, Resource
from fairlead.registry.write_options import server_write_options
from fairlead.storage.view.view import Entry
from fairlead.storage.wrapper import Fence

LEASE_NAME = CONTROLLERS_LEASE

Work = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """In seconds. `renew_deadline`: how long after the start of its last renewal a holder continues to work."""

    lease_duration: int = 10
    renew_interval: float = 2.0
    renew_deadline: float = 6.0
    retry_period: float = 0.5
    release_timeout: float = 2.0


def new_identity() -> str:
    """Identifies this process: another one on the same host, or this one after a restart, gets another identity."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


class LeaderElector:
    """The candidacy of this replica. `fence` guards the writes that it makes as the leader."""

    def __init__(
        self, leases: Resource, namespace: str, clock: Clock, identity: str, timing: LeaseTiming | None = None
    ) -> None:
        self._leases = leases
        self._namespace = namespace
        self._clock = clock
        self._timing = timing or LeaseTiming()
        self._lease_deadline = 0.0
        self._observed_revision, self._observed_at = -1, 0.0
        self._former_holder = ""
        self.identity = identity
        self.fence = Fence(leases.kind.key(namespace, LEASE_NAME))

    @property
    def is_leader(self) -> bool:
        return self.fence.is_held

    def ignore_holder(self) -> None:
        """Treats the lease as released by its current holder, which is known to have ended."""
        entry = self._cached_lease()
        self._former_holder = _holder(decode(entry)) if entry is not None else ""

    async def run(self, work: Work) -> None:
        """Runs the work whenever this replica leads, until cancelled or until the server stops."""
        while await self._acquire():
            await self._run_as_leader(work)

    async def _acquire(self) -> bool:
        """Waits until the lease is acquired. False: the server stops."""
        while True:
            watch = self._watch_leases()
            try:
                if watch.is_ended:
                    return False
                entry = self._cached_lease()
                left = self._seconds_until_expiry(entry)
                if left <= 0 and await self._try_acquire(entry):
                    return True
                await watch.wait(max(left, self._timing.retry_period))
            finally:
                watch.close()

    def _seconds_until_expiry(self, entry: Entry | None) -> float:
        """Seconds until the lease may be acquired, counted from when its current revision was first observed."""
        now, revision = self._clock.monotonic(), entry.revision if entry is not None else 0
        if revision != self._observed_revision:
            self._observed_revision, self._observed_at = revision, now
        if entry is None:
            return 0.0
        lease = decode(entry)
        if _holder(lease) in ("", self.identity, self._former_holder):
            return 0.0
        duration: float = get_path(lease, "spec.leaseDurationSeconds") or self._timing.lease_duration
        return self._observed_at + duration - now

    async def _try_acquire(self, entry: Entry | None) -> bool:
        """Tries to acquire the lease. False if it was written meanwhile."""
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._timing.renew_deadline):
                revision = await (self._create() if entry is None else self._update(self._acquire_edit(entry)))
        except (ApiError, TimeoutError) as error:
            if not isinstance(error, Conflict):
                log.info("could not acquire the lease; retrying", reason=str(error) or "timed out")
            return False
        self._record_renewal(started, revision)
        log.info("became leader: controllers run in this replica", identity=self.identity)
        return True

    async def _run_as_leader(self, work: Work) -> None:
        task = asyncio.create_task(work(), name="leading")
        # The work ends only because of a bug. Notice that at once, not at the next renewal.
        task.add_done_callback(lambda _: self.fence.renewal_requested.set())
        try:
            reason = await self._renew_until_lost(task)
            if reason:
                log.warning("lost leadership: controllers are stopped in this replica", reason=reason)
            else:
                log.info("gave up leadership: the server stops")
        finally:
            self.fence.release()
            await run_to_end(self._stop_and_release(task))
        if not task.cancelled():
            task.result()

    async def _stop_and_release(self, task: "asyncio.Task[None]") -> None:
        """Releases the lease only after the work has really ended."""
        await end_tasks(task)
        await self._release()

    async def _renew_until_lost(self, task: "asyncio.Task[None]") -> str:
        """Renews the lease until that fails. Returns the reason; empty if the server stops, which loses nothing."""
        while True:
            if await self._wait_for_renewal():
                return ""
            if task.done():
                return "the work has ended"
            if reason := await self._renew():
                return reason

    async def _wait_for_renewal(self) -> bool:
        """Waits until a renewal is due or needed. True if the server stops."""
        due = self._clock.monotonic() + self._timing.renew_interval
        watch = self._watch_leases()
        try:
            while not watch.is_ended and not self.fence.renewal_requested.is_set():
                left = due - self._clock.monotonic()
                if left <= 0 or not self._is_holder():
                    break
                for _ in watch.drain():
                    continue  # the view has the current state
                if watch.has_overflowed:
                    break
                await watch.wait(left, self.fence.renewal_requested)
            return watch.is_ended
        finally:
            watch.close()

    async def _renew(self) -> str:
        """Renews the lease. Returns why that failed; empty on success."""
        while True:
            started = self._clock.monotonic()
            try:
                async with asyncio.timeout(self._lease_deadline - started):
                    self._record_renewal(started, await self._update(self._renew_edit))
                    return ""
            except TimeoutError:
                return "the store did not respond in time"
            except (Conflict, NotFound):
                return "another replica holds the lease"
            except ApiError as error:
                log.info("could not renew the lease; retrying", reason=error.message)
                await asyncio.sleep(self._timing.retry_period)

    def _record_renewal(self, started: float, revision: int) -> None:
        self._lease_deadline = started + self._timing.renew_deadline
        self.fence.update(revision)

    async def _release(self) -> None:
        """Releases the lease, so that others need not wait for it to expire."""
        try:
            async with asyncio.timeout(self._timing.release_timeout):
                await self._update(self._release_edit)
        except (Conflict, NotFound):
            return  # another replica holds it already
        except (ApiError, TimeoutError) as error:
            log.info("could not release the lease; it will expire", reason=str(error) or "timed out")

    def _cached_lease(self) -> Entry | None:
        return self._leases.get_cached(self._namespace, LEASE_NAME)

    def _is_holder(self) -> bool:
        entry = self._cached_lease()
        return entry is not None and _holder(decode(entry)) == self.identity

    def _watch_leases(self) -> MultiWatch:
        kind = self._leases.kind
        return MultiWatch(self._leases.view, ((kind.group, kind.plural),))

    async def _create(self) -> int:
        spec = {**self._holder_fields(), "acquireTime": self._now(), "leaseTransitions": 0}
        body = self._leases.kind.build({"name": LEASE_NAME}, spec=spec)
        return _revision(await self._leases.create(body, self._namespace, server_write_options()))

    async def _update(self, edit: Edit) -> int:
        return _revision(await self._leases.modify(self._namespace, LEASE_NAME, edit, server_write_options()))

    def _acquire_edit(self, entry: Entry) -> Edit:
        def edit(lease: Object) -> Object:
            spec = lease.get("spec") or {}
            count = (spec.get("leaseTransitions") or 0) + 1
            spec = {**spec, **self._holder_fields(), "acquireTime": self._now(), "leaseTransitions": count}
            # Exactly the revision that was observed as expired: a renewal at the last moment wins.
            return {**lease, "metadata": {**metadata(lease), "resourceVersion": str(entry.revision)}, "spec": spec}

        return edit

    def _renew_edit(self, lease: Object) -> Object:
        return {**lease, "spec": {**self._spec_if_holder(lease), **self._holder_fields()}}

    def _release_edit(self, lease: Object) -> Object:
        return {**lease, "spec": {**self._spec_if_holder(lease), "holderIdentity": "", "renewTime": self._now()}}

    def _spec_if_holder(self, lease: Object) -> Object:
        if _holder(lease) != self.identity:
            raise Conflict.of(self._leases.kind.plural, self._leases.kind.group, LEASE_NAME, "another replica holds it")
        spec: Object = lease["spec"]
        return spec

    def _holder_fields(self) -> Object:
        fields = {"holderIdentity": self.identity, "leaseDurationSeconds": self._timing.lease_duration}
        return {**fields, "renewTime": self._now()}

    def _now(self) -> str:
        return micro_timestamp(self._clock.now())


def _holder(lease: Object) -> str:
    return str(get_path(lease, "spec.holderIdentity") or "")


def _revision(body: bytes) -> int:
    return int(orjson.loads(body)["metadata"]["resourceVersion"])
