"""Reading what Helm has stored about a release. The content comes from the cluster, and may be anything."""

import gzip
import hashlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from fairlead.controllers.helm import release_records
from fairlead.controllers.helm.chart import Chart, Release
from fairlead.controllers.helm.release_records import MAX_READ_REVISIONS, ReleaseRecord, read_revisions
from fairlead.controllers.instances.remote_errors import InstanceError
from fairlead.core.concurrency import COMPUTE_POOL, LARGE_JSON_BYTES
from fairlead.kinds.instances.app_instance import MAX_NOTES_LENGTH
from fairlead.upstream.kube_client import KubeApi
from tests.fake_cluster.helm_releases import store_release
from tests.fake_cluster.kube import FakeKube, InMemoryClusterApi

RELEASE = Release("one", "ns", Chart("web", "https://charts.example", "1.0.0"), "a: 1\n")


@pytest.fixture(autouse=True)
def threaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what would run in a thread, for which virtual time does not wait."""
    sizes: list[int] = []

    async def run(size: int, work: Callable[..., Any], *arguments: Any) -> Any:
        sizes.append(size)
        return work(*arguments)

    monkeypatch.setattr(COMPUTE_POOL, "run", run)
    return sizes


def api_of(kube: FakeKube) -> InMemoryClusterApi:
    return InMemoryClusterApi(kube, None)


async def read_newest(api: KubeApi, release: Release) -> ReleaseRecord | None:
    return next(iter(await read_revisions(api, release)), None)


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


async def test_only_the_newest_revisions_are_read(kube: FakeKube) -> None:
    """Who may write Secrets in the namespace can store any number of revisions."""
    for _ in range(4 * MAX_READ_REVISIONS):
        store_release(kube, RELEASE, "failed", manifest="m")
    records = await read_revisions(api_of(kube), RELEASE)
    assert [each.revision for each in records] == [*range(4 * MAX_READ_REVISIONS, 0, -1)]
    assert {each.state for each in records} == {"failed"}
    assert [each.manifest for each in records if each.manifest] == ["m"] * MAX_READ_REVISIONS
    assert all(each.manifest for each in records[:MAX_READ_REVISIONS])


async def test_the_revisions_together_are_bounded(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_records, "MAX_RECORD_BYTES", 250_000)
    store_release(kube, RELEASE, manifest="small")
    for _ in range(3):
        store_release(kube, RELEASE, "failed", manifest="m" * 100_000)
    records = await read_revisions(api_of(kube), RELEASE)
    assert [len(each.manifest) for each in records] == [100_000, 100_000, 0, len("small")]


def nest(depth: int) -> dict[str, Any]:
    return {"a": nest(depth - 1)} if depth else {}


@pytest.mark.parametrize("config", [{"many": [0] * 2_000}, nest(300)], ids=("many", "deep"))
async def test_a_record_with_too_many_or_too_deep_values_is_an_error(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch, config: Any
) -> None:
    monkeypatch.setattr(release_records, "MAX_RECORD_VALUES", 1_000)
    store_release(kube, RELEASE, config=config)
    with pytest.raises(InstanceError, match="cannot be read"):
        await read_newest(api_of(kube), RELEASE)


async def test_what_decompresses_to_much_is_parsed_in_a_thread(kube: FakeKube, threaded: list[int]) -> None:
    store_release(kube, RELEASE)
    await read_newest(api_of(kube), RELEASE)
    assert threaded == []
    store_release(kube, RELEASE, manifest="m" * 1_000_000)
    (path,) = [each for each in kube.objects if each.endswith(".v2")]
    assert len(kube.objects[path]["data"]["release"]) < LARGE_JSON_BYTES
    await read_newest(api_of(kube), RELEASE)
    assert len(threaded) == 1


async def test_a_large_record_is_read_as_a_small_one(kube: FakeKube) -> None:
    config = {"many": [{"number": number} for number in range(20_000)]}
    store_release(kube, RELEASE, config=config, manifest="kind: ConfigMap\n")
    record = await read_newest(api_of(kube), RELEASE)
    assert record is not None
    parts = [1, "web", "1.0.0", config, "kind: ConfigMap\n"]
    digest = hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]
    assert (record.digest, record.manifest) == (digest, "kind: ConfigMap\n")


async def test_unexpected_types_are_left_out(kube: FakeKube) -> None:
    store_release(kube, RELEASE, chart=[1], info=7)
    record = await read_newest(api_of(kube), RELEASE)
    assert record is not None
    assert (record.chart, record.version, record.notes) == ("", "", "")
