"""Reading what Helm has stored about a release. The content comes from the cluster, and may be anything."""

import gzip
from base64 import b64encode
from typing import Any

import pytest

from fairlead.controllers.helm import release_records
from fairlead.controllers.helm.chart import Chart, Release
from fairlead.controllers.helm.release_records import read_newest
from fairlead.controllers.instances.remote_errors import InstanceError
from fairlead.kinds.instances.app_instance import MAX_NOTES_LENGTH
from tests.fake_cluster.helm_releases import store_release
from tests.fake_cluster.kube import FakeKube, InMemoryClusterApi

RELEASE = Release("one", "ns", Chart("web", "https://charts.example", "1.0.0"), "a: 1\n")


def api_of(kube: FakeKube) -> InMemoryClusterApi:
    return InMemoryClusterApi(kube, None)


async def test_the_deployed_revision_is_read(kube: FakeKube) -> None:
    assert await read_newest(api_of(kube), RELEASE) is None
    store_release(kube, RELEASE)
    first = await read_newest(api_of(kube), RELEASE)
    store_release(kube, RELEASE)
    second = await read_newest(api_of(kube), RELEASE)
    assert first is not None and second is not None
    assert (first.revision, second.revision, second.chart, second.version) == (1, 2, "web", "1.0.0")
    assert first.digest != second.digest


async def test_notes_are_printable_and_bounded(kube: FakeKube) -> None:
    store_release(kube, RELEASE, info={"notes": "\x1b[31mred\n" + "n" * 2 * MAX_NOTES_LENGTH})
    record = await read_newest(api_of(kube), RELEASE)
    assert record is not None
    assert record.notes.startswith("[31mred\nnnn") and len(record.notes) == MAX_NOTES_LENGTH


@pytest.mark.parametrize(
    "content",
    [
        None,
        7,
        "",
        "not base64!",
        b64encode(b"not base64!").decode(),
        b64encode(b64encode(b"\x1f\x8bnot gzip")).decode(),
        b64encode(b64encode(gzip.compress(b"[]", mtime=0))).decode(),
        b64encode(b64encode(gzip.compress(b"{", mtime=0))).decode(),
    ],
    ids=("none", "number", "empty", "text", "encoded-text", "no-gzip", "list", "no-json"),
)
async def test_an_unreadable_record_is_an_error(kube: FakeKube, content: Any) -> None:
    store_release(kube, RELEASE)
    (path,) = kube.objects
    kube.objects[path]["data"] = {"release": content}
    with pytest.raises(InstanceError, match="cannot be read"):
        await read_newest(api_of(kube), RELEASE)


async def test_a_record_that_is_too_large_is_an_error(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    store_release(kube, RELEASE, manifest="m" * 100_000)
    monkeypatch.setattr(release_records, "MAX_RECORD_BYTES", 50_000)
    with pytest.raises(InstanceError, match="cannot be read"):
        await read_newest(api_of(kube), RELEASE)


async def test_unexpected_types_are_left_out(kube: FakeKube) -> None:
    store_release(kube, RELEASE, chart=[1], info=7)
    record = await read_newest(api_of(kube), RELEASE)
    assert record is not None
    assert (record.chart, record.version, record.notes) == ("", "", "")
