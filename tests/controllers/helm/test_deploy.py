"""Tests of `fairlead.controllers.helm.deploy`: a pending release is removed when it is older than any run of helm, and
failed runs are remembered as long as the instance exists."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fairlead.controllers.helm.attempts import INTERRUPTED, Attempt, begin_attempt
from fairlead.controllers.helm.chart import Chart, Release
from fairlead.controllers.helm.deploy import FAILED_RETRY_SECONDS, HelmRun, ReleaseRunner, ReleaseTarget
from fairlead.controllers.helm.helm import RELEASE_PENDING
from fairlead.controllers.helm.pending_release import MAX_RUN_SECONDS, clear_pending_release
from fairlead.controllers.helm.release_records import ReleaseRecord
from fairlead.controllers.instances.remote_errors import WARNING, InstanceError
from fairlead.core.clock import timestamp
from fairlead.upstream.access import ClusterEndpoint
from tests.fake_cluster.kube import FakeKube, InMemoryClusterApi
from tests.harness.clock import ManualClock
from tests.harness.eventually import eventually

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
OLD = NOW - timedelta(seconds=MAX_RUN_SECONDS + 1)
RELEASE = Release("one", "ns", Chart("vc", "https://charts.example"), "")
SECRETS = "/api/v1/namespaces/ns/secrets"


def put_release_secret(
    kube: FakeKube, status: str, created: datetime | None = OLD, name: str = "one", revision: int = 2
) -> str:
    """Stores a Secret like the one that Helm creates for each revision. Returns its path."""
    labels = {"owner": "helm", "name": name, "status": status, "version": str(revision)}
    path = f"{SECRETS}/sh.helm.release.v1.{name}.v{revision}"
    creation = {"creationTimestamp": timestamp(created)} if created else {}
    kube.add_object(path, metadata={"labels": labels, **creation}, type="helm.sh/release.v1")
    return path


def build_target(kube: FakeKube) -> ReleaseTarget:
    @asynccontextmanager
    async def open_endpoint() -> AsyncIterator[ClusterEndpoint]:
        yield ClusterEndpoint("cluster.example", 443, "", "cluster.example", "")

    return ReleaseTarget("c", open_endpoint, lambda user: InMemoryClusterApi(kube))


@pytest.mark.parametrize("status", ["pending-install", "pending-upgrade", "pending-rollback"])
async def test_an_old_pending_release_is_removed_and_other_revisions_are_kept(status: str) -> None:
    kube = FakeKube()
    deployed, pending = put_release_secret(kube, "deployed", revision=1), put_release_secret(kube, status, revision=2)
    assert await clear_pending_release(InMemoryClusterApi(kube), RELEASE, NOW)
    assert deployed in kube.objects and pending not in kube.objects


@pytest.mark.parametrize("created", [NOW - timedelta(seconds=MAX_RUN_SECONDS - 1), NOW + timedelta(hours=1), None])
async def test_a_run_that_may_still_be_active_is_not_disturbed(created: datetime | None) -> None:
    kube = FakeKube()
    pending = put_release_secret(kube, "pending-upgrade", created)
    assert not await clear_pending_release(InMemoryClusterApi(kube), RELEASE, NOW)
    assert pending in kube.objects


async def test_the_pending_revision_of_a_run_that_has_failed_is_removed_at_once() -> None:
    """As when the cluster did not answer any more, and helm could not record its failure."""
    kube = FakeKube()
    former = begin_attempt(1, RELEASE, NOW, 600).failed("HelmFailed", NOW + timedelta(seconds=20))
    pending = put_release_secret(kube, "pending-upgrade", NOW + timedelta(seconds=10))
    assert await clear_pending_release(InMemoryClusterApi(kube), RELEASE, NOW + timedelta(seconds=80), former)
    assert pending not in kube.objects


@pytest.mark.parametrize("has_succeeded", [True, False])
async def test_a_run_of_another_tool_is_not_disturbed(has_succeeded: bool) -> None:
    """It has begun after the last run of this server."""
    kube = FakeKube()
    former = begin_attempt(1, RELEASE, NOW, 600).failed("HelmFailed", NOW + timedelta(seconds=20))
    if has_succeeded:
        former = former.succeeded(ReleaseRecord(1, "deployed"))
    pending = put_release_secret(kube, "pending-upgrade", NOW + timedelta(seconds=10 if has_succeeded else 30))
    assert not await clear_pending_release(InMemoryClusterApi(kube), RELEASE, NOW + timedelta(seconds=80), former)
    assert pending in kube.objects


async def test_other_releases_and_other_secrets_are_kept() -> None:
    kube = FakeKube()
    other = put_release_secret(kube, "pending-upgrade", name="two")
    labels = {"owner": "helm", "name": "one", "status": "pending-upgrade"}
    kube.add_object(f"{SECRETS}/mine", metadata={"labels": labels, "creationTimestamp": timestamp(OLD)})
    assert not await clear_pending_release(InMemoryClusterApi(kube), RELEASE, NOW)
    assert {other, f"{SECRETS}/mine"} <= kube.objects.keys()


class PendingHelm:
    """As Helm, it stores a pending revision while it runs, and refuses to run while there is one. A run ends with
    `ends`."""

    def __init__(self, kube: FakeKube) -> None:
        self._kube = kube
        self.ends = asyncio.Event()
        self.pending: list[str] = []

    def find_program(self) -> str:
        return "/bin/helm"

    async def install(self, release: Release, endpoint: ClusterEndpoint, *, forces_conflicts: bool = False) -> None:
        if any("sh.helm.release" in path for path in self._kube.objects):
            raise InstanceError(RELEASE_PENDING, "another operation is in progress", WARNING)
        self.pending.append(put_release_secret(self._kube, "pending-upgrade", NOW + timedelta(seconds=1)))
        await self.ends.wait()
        del self._kube.objects[self.pending[-1]]

    async def uninstall(self, release: Release, endpoint: ClusterEndpoint) -> None:
        raise AssertionError("nothing is uninstalled here")


async def test_the_pending_revision_of_a_run_of_this_server_is_kept_until_that_has_ended() -> None:
    """An instance that has moved to another project has another key, and reads the attempt as interrupted."""
    kube = FakeKube()
    helm = PendingHelm(kube)
    clock = ManualClock()
    clock.jump((NOW - clock.now()).total_seconds())
    runner = ReleaseRunner(clock, helm)
    target = build_target(kube)
    former = replace(begin_attempt(1, RELEASE, NOW, 600), outcome=INTERRUPTED)

    async def begin() -> None:
        pass

    def build_run(uid: str, project: str, attempt: Attempt | None) -> HelmRun:
        return HelmRun(
            key=("management.service.sh", "virtualclusterinstances", project, "v"),
            release_key=(uid, "c", RELEASE.namespace, RELEASE.name),
            project=project,
            target=target,
            release=RELEASE,
            begin=begin,
            former=attempt,
        )

    first = asyncio.create_task(runner.install(build_run("old", "a", None)))
    await eventually(lambda: len(helm.pending) == 1)
    with pytest.raises(InstanceError, match="another operation is in progress"):
        await runner.install(build_run("new", "b", former))
    assert helm.pending[0] in kube.objects
    first.cancel()  # as when the controllers end; Helm is killed then, and its revision stays pending
    await asyncio.gather(first, return_exceptions=True)
    assert helm.pending[0] in kube.objects
    helm.ends.set()
    clock.tick(FAILED_RETRY_SECONDS + 1)
    await runner.install(build_run("new", "b", former))
    assert len(helm.pending) == 2


class FailingHelm:
    """Counts its runs, all of which fail."""

    def __init__(self) -> None:
        self.runs = 0

    def find_program(self) -> str:
        return "/bin/helm"

    async def install(self, release: Release, endpoint: ClusterEndpoint, *, forces_conflicts: bool = False) -> None:
        self.runs += 1
        raise InstanceError("HelmFailed", "it broke", WARNING)

    async def uninstall(self, release: Release, endpoint: ClusterEndpoint) -> None:
        raise AssertionError("nothing is uninstalled here")


async def test_the_failed_runs_of_an_instance_that_is_gone_are_forgotten() -> None:
    helm = FailingHelm()
    runner = ReleaseRunner(ManualClock(), helm)
    target = build_target(FakeKube())

    async def begin() -> None:
        pass

    async def install(uid: str, release: Release) -> None:
        with pytest.raises(InstanceError, match="it broke"):
            await runner.install(
                HelmRun(
                    key=("management.service.sh", "appinstances", "demo", "one"),
                    release_key=(uid, "c", release.namespace, release.name),
                    project="demo",
                    target=target,
                    release=release,
                    begin=begin,
                )
            )

    releases = (RELEASE, replace(RELEASE, name="two"), replace(RELEASE, namespace="other"))
    for _ in range(2):
        for uid in ("gone", "other"):
            for release in releases:
                await install(uid, release)
    assert helm.runs == 6  # a failed run is not repeated at once
    runner.forget("gone")
    for release in releases:
        await install("other", release)
    assert helm.runs == 6
    for release in releases:
        await install("gone", release)
    assert helm.runs == 9
