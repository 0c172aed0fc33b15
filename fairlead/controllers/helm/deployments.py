"""Brings a release to what is wanted, and knows whether the cluster has it.

For apps, virtual clusters, and the charts and apps of templates. Helm runs if the definition has changed, if the last
run has failed or was interrupted, if the newest revision in the cluster is not the deployed one, and if its objects
were changed. What is about to run is written to the status before it runs. After a run that follows a failure, the
objects are compared with the release: Helm compares with its own record, and so keeps a part of a failed upgrade.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace

from fairlead.controllers.helm.attempts import RELEASE_PENDING, Attempt, RunReason, begin_attempt, needs_run
from fairlead.controllers.helm.chart import Chart, Release
from fairlead.controllers.helm.deploy import HelmRun, ReleaseKey, ReleaseRunner, ReleaseTarget
from fairlead.controllers.helm.pending_release import run_limit_seconds
from fairlead.controllers.helm.release_annotations import apply_annotations
from fairlead.controllers.helm.release_objects import Differences, delete_leftovers, find_differences
from fairlead.controllers.helm.release_records import ReleaseRecord, read_revisions
from fairlead.controllers.instances.remote_errors import (
    ERROR,
    OWNER_FORBIDDEN,
    WARNING,
    InstanceError,
    limit_seconds,
    translate_errors,
)
from fairlead.storage.contract import Key
from fairlead.upstream.kube_client import KubeApi

OBJECTS_CHANGED, REPAIR_FAILED, ROLE_INSUFFICIENT = "ObjectsChanged", "RepairFailed", "RoleInsufficient"
CHECK_SECONDS = 60.0
"""How often a deployed release is compared with the newest revision in the cluster."""
COMPARE_SECONDS = 600.0
"""How often the objects of a deployed release are compared with the cluster."""
OBJECTS_TIMEOUT = 300.0
"""Maximum seconds to compare all objects of a release, and to delete those that a failed deployment has left."""
BINDING_RETRY_SECONDS = (0.1, 0.4, 1.5, 3.0, 5.0)
"""Retry delays until a RoleBinding that was just created takes effect."""


@dataclass(slots=True)
class Deployment:
    """A release that is wanted, and what the status of its instance knows about it.

    `deploy_hash` and `digest` are those of the last successful deployment. `begin` writes an attempt to the status,
    with an empty hash, and raises if that fails: then Helm does not run. `report` reports why Helm has to run. `role`
    is the one that the impersonated user has in the namespace, for messages.
    """

    key: Key
    """Of the instance."""
    uid: str
    project: str
    generation: int
    target: ReleaseTarget
    release: Release
    attempt: Attempt | None
    """The last one; while it is deployed, the current one."""
    deploy_hash: str
    digest: str
    begin: Callable[[Attempt], Awaitable[None]]
    report: Callable[[RunReason], Awaitable[None]]
    role: str = ""
    before_run: Callable[[], Awaitable[None]] | None = None
    """Called before Helm runs, for what it needs. Raises InstanceError."""
    is_unproven: bool = False
    """Whether the status says that nothing could be compared after the last failure."""
    complete_chart: Callable[[Chart], Chart] | None = None
    """Called before Helm runs, for the username and password of the chart. Raises InstanceError."""
    confirm: Callable[[], Awaitable[None]] | None = None
    """Called after Helm has run, for what it may not notice. Raises InstanceError, RemoteApiError and UpstreamError."""
    explain: Callable[[InstanceError], Awaitable[InstanceError]] | None = None
    """Called after Helm has failed; returns what is to be reported. Raises UpstreamError."""

    @property
    def release_key(self) -> ReleaseKey:
        return self.uid, self.target.name, self.release.namespace, self.release.name

    def api(self) -> KubeApi:
        """The API with the permissions that Helm has."""
        return self.target.api(self.release.impersonate_user)

    @property
    def is_known_as_deployed(self) -> bool:
        has_failed = self.attempt is not None and not self.attempt.has_succeeded
        return not has_failed and bool(self.deploy_hash) and self.deploy_hash == self.release.hash


@dataclass(slots=True)
class _Memory:
    """What is remembered about a release that is deployed: when it is checked and compared next, and which objects
    were deployed again, as others had changed them. `is_unproven`: it was deployed after a failure, and nothing could
    be compared since then."""

    check_at: float
    compare_at: float
    repaired: frozenset[str] = field(default_factory=frozenset)
    remark: str = ""
    is_unproven: bool = False


class Deployments:
    """Deploys releases with a runner, and remembers when each was checked."""

    def __init__(self, runner: ReleaseRunner) -> None:
        self._runner = runner
        self._memories: dict[ReleaseKey, _Memory] = {}

    async def ensure(self, wanted: Deployment, *, checks_always: bool = False) -> ReleaseRecord | None:
        """Runs Helm unless the cluster has the wanted release. Returns the revision that was deployed; None if Helm did
        not run. A release that is deployed is checked once a minute, or with `checks_always` at each call. Raises
        InstanceError; `wanted.attempt` has the outcome then, too."""
        memory = self._remember(wanted)
        now = self._runner.clock.monotonic()
        if wanted.is_known_as_deployed and now < memory.check_at and not checks_always:
            return None
        memory.check_at = now + CHECK_SECONDS
        revisions = await read_release_revisions(wanted.target, wanted.release, wanted.role)
        newest = next(iter(revisions), None)
        why = needs_run(wanted.attempt, wanted.deploy_hash, wanted.digest, wanted.release, newest)
        if why is not None:
            has_failed = wanted.attempt is not None and not wanted.attempt.has_succeeded
            return await self._deploy(wanted, why, revisions, is_repair=bool(has_failed or why.reason))
        if newest is None or now < memory.compare_at:
            return None
        why = await self._find_changed_objects(wanted, memory, newest)
        return await self._deploy(wanted, why, revisions, is_forced=True) if why is not None else None

    def remark(self, wanted: Deployment) -> str:
        """What is to be said about a release that is deployed; empty: nothing."""
        return self._remember(wanted).remark

    def is_unproven(self, wanted: Deployment) -> bool:
        """Whether Helm has deployed it after a failure, and it is not known whether the cluster has it."""
        return self._remember(wanted).is_unproven

    def forget(self, uid: str) -> None:
        """Drops what is remembered about all releases of an instance that is gone."""
        self._memories = {key: memory for key, memory in self._memories.items() if key[0] != uid}
        self._runner.forget(uid)

    def _remember(self, wanted: Deployment) -> _Memory:
        now = self._runner.clock.monotonic()
        compare_at = now if wanted.is_unproven else now + COMPARE_SECONDS
        first = _Memory(check_at=now, compare_at=compare_at, is_unproven=wanted.is_unproven)
        return self._memories.setdefault(wanted.release_key, first)

    async def _find_changed_objects(
        self, wanted: Deployment, memory: _Memory, newest: ReleaseRecord
    ) -> RunReason | None:
        """Why Helm has to run although its record is as it was deployed. What others change again after it was deployed
        again is only remarked: another program of the cluster writes to it, such as an operator. So is what cannot be
        compared: the release is deployed nevertheless."""
        now = self._runner.clock.monotonic()
        try:
            differences = await self._compare(wanted, newest)
        except InstanceError as error:
            memory.compare_at = now + CHECK_SECONDS
            memory.remark = f"; its objects could not be compared with it: {error.message}"
            return None
        memory.compare_at = now + COMPARE_SECONDS
        memory.is_unproven = memory.is_unproven and differences.is_unknown
        titles = frozenset((*differences.changed, *differences.missing))
        if titles and titles <= memory.repaired:
            memory.remark = (
                f"; {differences.describe()}, again after they were deployed again, so they are left as is"
                f"{_remark_unchecked(differences)}"
            )
            return None
        memory.repaired = titles
        memory.remark = _remark_unchecked(differences)
        if not titles:
            return None
        return RunReason(OBJECTS_CHANGED, f"{differences.describe()}; the release is deployed again", is_foreign=True)

    async def _deploy(
        self,
        wanted: Deployment,
        why: RunReason,
        revisions: Sequence[ReleaseRecord],
        *,
        is_repair: bool = False,
        is_forced: bool = False,
    ) -> ReleaseRecord:
        """Runs Helm. With `is_repair`, the cluster may have a part of something else: it is compared after that."""
        self._runner.require_program()
        if wanted.before_run is not None:
            await wanted.before_run()
        if wanted.complete_chart is not None:
            wanted.release = replace(wanted.release, chart=wanted.complete_chart(wanted.release.chart))
        former = wanted.attempt
        memory = self._remember(wanted)
        try:
            record = await self._run(wanted, former, why, is_forced=is_forced)
            differences = Differences()
            if is_repair:
                unfinished = [each for each in revisions if not each.is_deployed]
                record, differences = await self._repair(wanted, record, unfinished)
        except InstanceError as error:
            if wanted.attempt is None or wanted.attempt is former:
                raise
            explained = await _explain(wanted, error)
            wanted.attempt = wanted.attempt.failed(explained.reason, self._runner.clock.now())
            if explained.reason == RELEASE_PENDING and former is not None:
                wanted.attempt = wanted.attempt.with_times_of(former)
            raise explained from None
        memory.is_unproven = differences.is_unknown
        memory.remark = _remark_unchecked(differences)
        if wanted.attempt is not None:
            wanted.attempt = wanted.attempt.succeeded(record, is_annotated=bool(wanted.release.annotations))
        return record

    async def _run(
        self, wanted: Deployment, former: Attempt | None, why: RunReason, *, is_forced: bool
    ) -> ReleaseRecord:
        """Runs Helm once, and sets the annotations. Returns the revision that is deployed then."""
        was_annotated = wanted.attempt is not None and wanted.attempt.is_annotated
        is_annotated = was_annotated or bool(wanted.release.annotations)

        async def begin() -> None:
            # Not before it is certain that Helm runs: each write triggers the next reconcile.
            if why.reason:
                await wanted.report(why)
            seconds = run_limit_seconds(wanted.release)
            attempt = begin_attempt(wanted.generation, wanted.release, self._runner.clock.now(), seconds)
            wanted.attempt = replace(attempt, is_annotated=is_annotated)
            await wanted.begin(wanted.attempt)

        await self._runner.install(
            HelmRun(
                key=wanted.key,
                release_key=wanted.release_key,
                project=wanted.project,
                target=wanted.target,
                release=wanted.release,
                begin=begin,
                former=former,
                forces_conflicts=is_forced,
            )
        )
        revisions = await read_release_revisions(wanted.target, wanted.release, wanted.role)
        newest = next(iter(revisions), None)
        if newest is None or not newest.is_deployed:
            state = (
                f"its newest revision is {newest.state}" if newest is not None else "the cluster has no record of it"
            )
            message = f"helm has deployed the release, but {state}; this is retried"
            raise InstanceError("ReleaseMissing", message, WARNING)
        if wanted.confirm is not None:
            async with _limit_requests(wanted, "check what was deployed"):
                await wanted.confirm()
        if is_annotated:
            async with _limit_requests(wanted, "annotate the objects of the release"):
                await apply_annotations(wanted.api(), wanted.release, newest)
        return newest

    async def _repair(
        self, wanted: Deployment, record: ReleaseRecord, unfinished: Sequence[ReleaseRecord]
    ) -> tuple[ReleaseRecord, Differences]:
        """Removes what unfinished revisions have left, and checks that the objects are those of the release. If not,
        Helm runs once more and takes over fields that others own. Returns the revision that is deployed then, and what
        could not be compared."""
        differences = await self._compare(wanted, record)
        if differences:
            record = await self._run(wanted, None, RunReason(), is_forced=True)
            differences = await self._compare(wanted, record)
        if differences:
            message = (
                f"helm has deployed revision {record.revision}, but {differences.describe()}; check what else writes "
                "to them in the cluster, or delete them there: they are created again"
            )
            raise InstanceError(REPAIR_FAILED, message, ERROR)
        async with _limit_requests(wanted, "delete the objects of a failed deployment"):
            await delete_leftovers(wanted.api(), wanted.release, record, unfinished)
        return record, differences

    async def _compare(self, wanted: Deployment, record: ReleaseRecord) -> Differences:
        async with _limit_requests(wanted, "compare the objects of the release"):
            return await find_differences(wanted.api(), wanted.release, record)


def _limit_requests(wanted: Deployment, action: str) -> AbstractAsyncContextManager[None]:
    """For requests about each object of a release, whose number others may control."""
    return limit_seconds(wanted.target.name, action, OBJECTS_TIMEOUT, wanted.release.impersonate_user, noun="cluster")


async def _explain(wanted: Deployment, error: InstanceError) -> InstanceError:
    if wanted.explain is None:
        return error
    try:
        async with _limit_requests(wanted, "read what has failed"):
            return await wanted.explain(error)
    except InstanceError:  # the cluster is gone meanwhile, too
        return error


def _remark_unchecked(differences: Differences) -> str:
    text = differences.describe_unchecked()
    return f"; {text}" if text else ""


async def read_release_revisions(target: ReleaseTarget, release: Release, role: str = "") -> Sequence[ReleaseRecord]:
    """`read_revisions` with the permissions that Helm has. A cluster takes a moment to notice the RoleBinding that was
    just created, so a missing permission is not reported at once. Raises InstanceError."""
    user = release.impersonate_user
    delays = iter(BINDING_RETRY_SECONDS)
    while True:
        try:
            with translate_errors(target.name, "read the release", user):
                return await read_revisions(target.api(user), release)
        except InstanceError as error:
            if error.reason != OWNER_FORBIDDEN:
                raise
            delay = next(delays, None)
        if delay is None:
            deployer = f'with the role "{role}"' if role else f'as "{user}"'
            message = (
                f'it is deployed {deployer} in namespace "{release.namespace}" only, which does not permit to read '
                f'Secrets there; check that role in cluster "{target.name}", or set another one in the setting '
                "chart_role"
            )
            raise InstanceError(ROLE_INSUFFICIENT, message, ERROR)
        await asyncio.sleep(delay)
