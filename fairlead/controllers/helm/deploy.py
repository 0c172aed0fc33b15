"""Runs helm for releases.

That takes minutes, and any change of an instance triggers a reconcile, so a failed run is not repeated at once.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from fairlead.controllers.helm.attempts import Attempt
from fairlead.controllers.helm.chart import Release
from fairlead.controllers.helm.helm import RELEASE_PENDING
from fairlead.controllers.helm.pending_release import clear_pending_release
from fairlead.controllers.helm.slots import HelmSlots
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.remote_errors import InstanceError, translate_errors
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.clock import Clock
from fairlead.storage.contract import Key
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.kube_client import KubeApi

FAILED_RETRY_SECONDS = 60.0
"""Seconds before a failed run is repeated with the same inputs."""


HELM_MISSING_REMARK = "; Helm is missing on the server, so changes cannot be deployed"


class ChartDeployer(Protocol):
    """Deploys charts; implemented by `helm.py`. All methods raise InstanceError."""

    def find_program(self) -> str: ...

    async def install(self, release: Release, endpoint: ClusterEndpoint, *, forces_conflicts: bool = False) -> None: ...

    async def uninstall(self, release: Release, endpoint: ClusterEndpoint) -> None: ...


@dataclass(frozen=True, slots=True)
class ReleaseTarget:
    """The cluster that a release is in. `name` is for messages; `open_endpoint` and `api` raise UpstreamError. `api` is
    for an impersonated user; empty: for the credential of the server or its agent."""

    name: str
    open_endpoint: Callable[[], AbstractAsyncContextManager[ClusterEndpoint]]
    api: Callable[[str], KubeApi]


ReleaseKey = tuple[str, str, str, str]
"""The uid of the instance; the target, the namespace and the name of the release."""


@dataclass(frozen=True, slots=True)
class HelmRun:
    """One run of helm for a release of the instance with this key. `project` is what the runs are counted for."""

    key: Key
    release_key: ReleaseKey
    project: str
    target: ReleaseTarget
    release: Release
    begin: Callable[[], Awaitable[None]]
    """Called before helm starts, and once only. If it raises, helm does not start."""
    former: Attempt | None = None
    """The attempt before this one."""
    forces_conflicts: bool = False
    """Whether helm takes over fields that others have changed."""


@dataclass(frozen=True, slots=True)
class _FailedRun:
    """The last run for a release, if it has failed: it is not repeated with the same hash until `retry_at`."""

    release_hash: str
    retry_at: float
    error: InstanceError


class ReleaseRunner:
    """Runs helm for releases, with limits that all its users share: runs at once, and retries of failed runs."""

    def __init__(self, clock: Clock, helm: ChartDeployer) -> None:
        self.clock = clock
        self._helm = helm
        self._slots = HelmSlots(clock, on_free=self._wake)
        self._requeues: dict[tuple[str, str], Requeue] = {}
        self._failures: dict[ReleaseKey, _FailedRun] = {}
        self._running: Counter[tuple[str, str, str]] = Counter()
        """The runs in progress by target, namespace and name of the release, whichever instance it is of: an instance
        that moves to another project has another uid."""

    def subscribe(self, resource: tuple[str, str], requeue: Requeue) -> Callable[[], None]:
        """Instances of this resource that wait for a slot are queued when it is their turn. Returns the function that
        ends that."""
        self._requeues[resource] = requeue

        def unsubscribe() -> None:
            self._requeues.pop(resource, None)

        return unsubscribe

    def _wake(self, key: Key) -> None:
        requeue = self._requeues.get((key[0], key[1]))
        if requeue is not None:
            requeue(key, 0.0)

    def has_program(self) -> bool:
        try:
            self._helm.find_program()
        except InstanceError:
            return False
        return True

    def require_program(self) -> None:
        """Raises InstanceError if there is no helm program, before anything is created."""
        self._helm.find_program()

    async def install(self, run: HelmRun) -> None:
        """Installs or upgrades a release of an instance. A failed run is not repeated at once. Raises InstanceError,
        and what `begin` raises."""
        last = self._failures.get(run.release_key)
        if last is not None and last.release_hash == run.release.hash and self.clock.monotonic() < last.retry_at:
            raise InstanceError(last.error.reason, last.error.message, last.error.severity)
        with self._slots.acquire(run.project, run.key), self._count_run(run):
            await run.begin()
            try:
                await self._install(run)
            except InstanceError as error:
                retry_at = self.clock.monotonic() + FAILED_RETRY_SECONDS
                self._failures[run.release_key] = _FailedRun(run.release.hash, retry_at, error)
                raise
        self._failures.pop(run.release_key, None)

    @contextmanager
    def _count_run(self, run: HelmRun) -> Iterator[None]:
        place = _place_of(run)
        self._running[place] += 1
        try:
            yield
        finally:
            self._running[place] -= 1
            if not self._running[place]:
                del self._running[place]

    async def _install(self, run: HelmRun) -> None:
        with translate_errors(run.target.name, "deploy a chart"):
            async with run.target.open_endpoint() as access:
                try:
                    await self._helm.install(run.release, access, forces_conflicts=run.forces_conflicts)
                except InstanceError as error:
                    # A pending revision may be that of another run of this server, which is not to be disturbed.
                    if error.reason != RELEASE_PENDING or self._running[_place_of(run)] > 1:
                        raise
                    if not await clear_pending_release(run.target.api(""), run.release, self.clock.now(), run.former):
                        raise
                    await self._helm.install(run.release, access, forces_conflicts=run.forces_conflicts)

    async def uninstall(self, project: str, target: ReleaseTarget, release: Release, key: Key | None = None) -> None:
        """Uninstalls a release of the instance with this key, if it exists. Raises InstanceError and UpstreamError."""
        with self._slots.acquire(project, key):
            async with target.open_endpoint() as access:
                await self._helm.uninstall(release, access)

    def forget(self, instance_uid: str) -> None:
        """Drops what is remembered about all releases of an instance that is gone."""
        self._failures = {key: failed for key, failed in self._failures.items() if key[0] != instance_uid}


def _place_of(run: HelmRun) -> tuple[str, str, str]:
    return run.target.name, run.release.namespace, run.release.name


def cluster_target(clusters: ClusterAccess, cluster: str) -> ReleaseTarget:
    """A connected cluster."""
    return ReleaseTarget(
        cluster, lambda: clusters.open_cluster_endpoint(cluster), lambda user: clusters.cluster_api(cluster, user)
    )


def virtual_cluster_target(clusters: ClusterAccess, key: tuple[str, str]) -> ReleaseTarget:
    """A virtual cluster, by namespace and name of its instance, with its kubeconfig."""
    return ReleaseTarget(
        key[1], lambda: clusters.open_virtual_cluster_endpoint(*key), lambda user: clusters.virtual_cluster_api(*key)
    )
