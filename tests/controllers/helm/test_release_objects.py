"""Comparing the objects of a release with the cluster, and deleting what a failed deployment has left."""

import asyncio
import json

import pytest

from fairlead.controllers.helm import release_objects
from fairlead.controllers.helm.chart import Chart, Release
from fairlead.controllers.helm.release_objects import (
    RELEASE_NAME,
    RELEASE_NAMESPACE,
    delete_leftovers,
    find_differences,
)
from fairlead.controllers.helm.release_records import ReleaseRecord
from fairlead.upstream.kube_client import RemoteApiError
from tests.fake_cluster.kube import FakeKube, InMemoryClusterApi

RELEASE = Release("one", "ns", Chart("web", "https://charts.example", "1.0.0"), "")
CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"


def build_record(*names: str, state: str = "deployed") -> ReleaseRecord:
    documents = [
        json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
        for name in names
    ]
    return ReleaseRecord(1, state, manifest="\n---\n".join(documents))


def deploy(kube: FakeKube, *names: str) -> None:
    annotations = {RELEASE_NAME: RELEASE.name, RELEASE_NAMESPACE: RELEASE.namespace}
    for name in names:
        kube.add_object(f"{CONFIG_MAPS}/{name}", metadata={"annotations": annotations}, data={"a": "b"})


async def test_what_is_not_compared_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = FakeKube()
    deploy(kube, "a", "b", "c")
    kube.failing_paths[f"{CONFIG_MAPS}/b"] = 403
    monkeypatch.setattr(release_objects, "MAX_COMPARED_OBJECTS", 2)
    found = await find_differences(InMemoryClusterApi(kube), RELEASE, build_record("a", "b", "c"))
    assert (found.compared, found.unchecked, bool(found), found.is_unknown) == (1, 2, False, False)
    assert found.describe_unchecked().startswith("2 of 3 objects were not compared")
    assert found.describe_unchecked().endswith("; at most 2 are")


@pytest.mark.parametrize("status", [401, 429, 500, 503])
@pytest.mark.parametrize("applies", [False, True])
async def test_a_cluster_that_cannot_answer_now_is_an_error(status: int, applies: bool) -> None:
    kube = FakeKube()
    deploy(kube, "a", "b")
    if applies:
        kube.apply_failures[f"{CONFIG_MAPS}/a"] = (status, "", "not now")
    else:
        kube.failing_paths[f"{CONFIG_MAPS}/a"] = status
    with pytest.raises(RemoteApiError):
        await find_differences(InMemoryClusterApi(kube), RELEASE, build_record("a", "b"))
    assert len(asyncio.all_tasks()) == 1


async def test_an_object_that_violates_its_schema_is_not_compared() -> None:
    """The cluster answers with 500, whenever it is asked."""
    kube = FakeKube()
    deploy(kube, "a")
    message = "failed to create typed patch object (ns/a; /v1, Kind=ConfigMap): .x: field not declared in schema"
    kube.apply_failures[f"{CONFIG_MAPS}/a"] = (500, "", message)
    found = await find_differences(InMemoryClusterApi(kube), RELEASE, build_record("a"))
    assert (found.unchecked, found.is_unknown) == (1, True)


@pytest.mark.parametrize("manifest", ["kind: [", "kind: ConfigMap\n"])
async def test_a_manifest_that_cannot_be_read_is_not_equal(manifest: str) -> None:
    found = await find_differences(
        InMemoryClusterApi(FakeKube()), RELEASE, ReleaseRecord(1, "deployed", manifest=manifest)
    )
    assert (bool(found), found.is_unknown) == (False, True)
    assert "cannot be read" in found.describe_unchecked()


async def test_a_release_without_objects_is_as_it_was_deployed() -> None:
    found = await find_differences(InMemoryClusterApi(FakeKube()), RELEASE, ReleaseRecord(1, "deployed"))
    assert (found.is_unknown, found.describe_unchecked()) == (False, "")


async def test_what_only_a_failed_revision_has_is_deleted() -> None:
    kube = FakeKube()
    deploy(kube, "a", "b")
    failed = build_record("a", "b", state="failed")
    await delete_leftovers(InMemoryClusterApi(kube), RELEASE, build_record("a"), [failed])
    assert kube.objects.keys() == {f"{CONFIG_MAPS}/a"}


async def test_nothing_is_deleted_if_the_deployed_objects_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = FakeKube()
    deploy(kube, "a", "b", "c")
    monkeypatch.setattr(release_objects, "MAX_MANIFEST_OBJECTS", 2)
    failed = build_record("a", "b", state="failed")
    await delete_leftovers(InMemoryClusterApi(kube), RELEASE, build_record("a", "b", "c"), [failed])
    assert len(kube.objects) == 3
