"""What an interrupted run of helm has left is removed when it is older than any run can be."""

from datetime import UTC, datetime, timedelta

import pytest

from fairlead.controllers.helm.chart import Chart, Release
from fairlead.controllers.helm.deploy import MAX_RUN_SECONDS, clear_pending_release
from fairlead.core.clock import timestamp
from tests.fake_cluster.kube import Kube, KubeApi

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
OLD = NOW - timedelta(seconds=MAX_RUN_SECONDS + 1)
RELEASE = Release("one", "ns", Chart("vc", "https://charts.example"), "")
SECRETS = "/api/v1/namespaces/ns/secrets"


def note(kube: Kube, status: str, made: datetime | None = OLD, name: str = "one", number: int = 2) -> str:
    """A Secret as Helm makes it for each revision. Returns its path."""
    labels = {"owner": "helm", "name": name, "status": status, "version": str(number)}
    path = f"{SECRETS}/sh.helm.release.v1.{name}.v{number}"
    when = {"creationTimestamp": timestamp(made)} if made else {}
    kube.put(path, metadata={"labels": labels, **when}, type="helm.sh/release.v1")
    return path


@pytest.mark.parametrize("status", ["pending-install", "pending-upgrade", "pending-rollback"])
async def test_an_old_note_goes_and_those_of_other_revisions_stay(status: str) -> None:
    kube = Kube()
    deployed, pending = note(kube, "deployed", number=1), note(kube, status, number=2)
    assert await clear_pending_release(KubeApi(kube), RELEASE, NOW)
    assert deployed in kube.objects and pending not in kube.objects


@pytest.mark.parametrize("made", [NOW - timedelta(seconds=MAX_RUN_SECONDS - 1), NOW + timedelta(hours=1), None])
async def test_a_run_that_may_still_go_on_is_left_alone(made: datetime | None) -> None:
    kube = Kube()
    pending = note(kube, "pending-upgrade", made)
    assert not await clear_pending_release(KubeApi(kube), RELEASE, NOW)
    assert pending in kube.objects


async def test_other_releases_and_other_secrets_are_left_alone() -> None:
    kube = Kube()
    other = note(kube, "pending-upgrade", name="two")
    labels = {"owner": "helm", "name": "one", "status": "pending-upgrade"}
    kube.put(f"{SECRETS}/mine", metadata={"labels": labels, "creationTimestamp": timestamp(OLD)})
    assert not await clear_pending_release(KubeApi(kube), RELEASE, NOW)
    assert {other, f"{SECRETS}/mine"} <= kube.objects.keys()
