"""The Lease of the runner: its heartbeat, and the fence between processes that use the same key.

The holder of the Lease is `<machine>_<boot>`: the ID of the state folder, and a random ID of the process. A new process
on the same state folder takes over at once, because the lock of the folder shows that the earlier process has ended. A
process on another folder waits until the Lease is released, which a process does when it is stopped, or has expired. A
process that finds another holder has been replaced, for example while its machine was suspended: it stops acting and
ends, and what it started goes on running.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from fairlead.client import ApiStatusError, ClientError
from fairlead.core.clock import Clock, micro_timestamp
from fairlead.core.objects import Object, get_path
from fairlead.runner.api import HEARTBEAT_NAMESPACE, RunnerApi

log = structlog.get_logger(__name__)

RENEW_SECONDS = 10.0
EXPIRE_SECONDS = 60.0
RETRY_SECONDS = 2.0
RELEASE_SECONDS = 5.0
"""How long a process that ends tries to release its Lease. Otherwise the Lease expires."""


class Replaced(Exception):
    """Another process holds the Lease of this runner."""


@dataclass(frozen=True, slots=True)
class RunnerIdentity:
    """`machine` identifies the state folder, `boot` this process."""

    runner: str
    machine: str
    boot: str

    @property
    def holder(self) -> str:
        return f"{self.machine}_{self.boot}"


class Heartbeat:
    def __init__(self, api: RunnerApi, identity: RunnerIdentity, clock: Clock) -> None:
        self._api = api
        self._identity = identity
        self._clock = clock
        self._lease: Object | None = None
        self._renewed_at = 0.0
        self._renewing = asyncio.Lock()

    async def acquire(self) -> None:
        """Waits until this process holds the Lease. Errors of the connection are retried."""
        seen: tuple[str, float] = ("", self._clock.monotonic())
        while True:
            try:
                lease = await self._api.get_lease()
                renewed = str(get_path(lease, "spec.renewTime") or "") if lease else ""
                if renewed != seen[0]:
                    seen = (renewed, self._clock.monotonic())
                if self._may_take(lease, self._clock.monotonic() - seen[1]):
                    await self._write(lease, is_transition=True)
                    return
                log.warning("another process of this runner is working; waiting until it ends", holder=_holder(lease))
            except ClientError as error:
                _log_rejection(error)
                log.warning("the server cannot be reached", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    def _may_take(self, lease: Object | None, unchanged_seconds: float) -> bool:
        holder = _holder(lease)
        return not holder or holder.startswith(f"{self._identity.machine}_") or unchanged_seconds >= EXPIRE_SECONDS

    async def run(self, on_error: Callable[[], None] = lambda: None) -> None:
        """Renews the Lease for ever. Raises Replaced if another process has taken it."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                await self._renew()
            except ClientError as error:
                _log_rejection(error)
                log.warning("the heartbeat failed; what runs goes on running", error=str(error))
                on_error()

    async def require_current(self) -> None:
        """To be called before each write. A process that has not renewed its Lease for a while renews it first, and
        so learns whether it has been replaced. Raises Replaced or ClientError."""
        if self._clock.monotonic() - self._renewed_at > 2 * RENEW_SECONDS:
            await self._renew()

    async def release(self) -> None:
        """To be called when nothing acts any more. A process on another state folder can then take over at once.

        The time of the renewal stays: the server notices the silence of the runner as after any other end.
        """
        self._api.limit_requests(RELEASE_SECONDS)
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._release()
        except (ClientError, TimeoutError) as error:
            log.info("the Lease could not be released; it will expire", reason=str(error) or "timed out")

    async def _release(self) -> None:
        while True:
            lease = await self._api.get_lease()
            if lease is None or _holder(lease) != self._identity.holder:
                return
            try:
                await self._api.put_lease({**lease, "spec": {**lease["spec"], "holderIdentity": ""}})
                return
            except ApiStatusError as error:
                if error.code != 409:  # a renewal that was under way
                    raise

    async def _renew(self) -> None:
        async with self._renewing:
            try:
                await self._write(self._lease, is_transition=False)
            except ApiStatusError as error:
                if error.code not in (404, 409):
                    raise
                lease = await self._api.get_lease()
                if lease is not None and _holder(lease) != self._identity.holder:
                    raise Replaced(
                        f"another process ({_holder(lease)}) has taken over the runner {self._identity.runner}; "
                        "give each runner process its own Runner and key"
                    ) from None
                await self._write(lease, is_transition=False)

    async def _write(self, lease: Object | None, *, is_transition: bool) -> None:
        before = (lease or {}).get("spec") or {}
        now = micro_timestamp(self._clock.now())
        transitions = int(before.get("leaseTransitions") or 0) + (1 if is_transition and lease else 0)
        spec = {
            "holderIdentity": self._identity.holder,
            "leaseDurationSeconds": int(EXPIRE_SECONDS),
            "acquireTime": now if is_transition else before.get("acquireTime") or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }
        version = get_path(lease, "metadata.resourceVersion") if lease else None
        meta: Object = {"name": f"runner-{self._identity.runner}", "namespace": HEARTBEAT_NAMESPACE}
        if version:
            meta["resourceVersion"] = version
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
        self._lease = await self._api.put_lease(body)
        self._renewed_at = self._clock.monotonic()


def _holder(lease: Object | None) -> str:
    return str(get_path(lease, "spec.holderIdentity") or "") if lease else ""


def _log_rejection(error: ClientError) -> None:
    """A rejected key is reported, and tried again: it may be enabled or replaced, and nothing is stopped."""
    if isinstance(error, ApiStatusError) and error.code in (401, 403):
        log.error("the server rejects the key of this runner", error=error.message)
