"""Tests of `fairlead.upstream.object_watch`: one object of a remote cluster, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import RemoteApiError
from fairlead.upstream.object_watch import RETRY, ObjectWatch
from tests.fake_cluster.exchange import CannedResponse, build_status_response
from tests.fake_cluster.kube_watch import EXPIRED
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import eventually
from tests.harness.virtual_time import on_virtual_time
from tests.upstream.test_watch import PATH, ScriptedCluster, ShortWatchServer
from tests.upstream.upstreams import connect_upstream


def build_object(name: str, value: str) -> Object:
    return {"metadata": {"name": name, "resourceVersion": "1"}, "data": {"a": value}}


def build_list(*objects: Object) -> Object:
    return {"kind": "ConfigMapList", "metadata": {"resourceVersion": "10"}, "items": list(objects)}


class Recorder:
    def __init__(self) -> None:
        self.states: list[str | None] = []
        self.errors: list[str] = []

    def on_object(self, obj: Object | None) -> None:
        self.states.append(None if obj is None else obj["data"]["a"])

    def on_error(self, error: UpstreamError | RemoteApiError) -> None:
        self.errors.append(error.message)


@asynccontextmanager
async def run_watch(fake_cluster: FakeCluster, cluster: Any) -> AsyncIterator[Recorder]:
    if isinstance(cluster, ScriptedCluster):
        fake_cluster.set_behaviour(PATH, cluster)
    recorder = Recorder()
    async with connect_upstream(fake_cluster) as upstream:
        watch = ObjectWatch(lambda: upstream, PATH, "one", recorder.on_object, recorder.on_error)
        task = asyncio.create_task(watch.run())
        try:
            yield recorder
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_the_object_is_read_and_followed(fake_cluster: FakeCluster) -> None:
    events: list[Object | bytes] = [
        {"type": "MODIFIED", "object": build_object("one", "2")},
        {"type": "MODIFIED", "object": build_object("other", "x")},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}},
        {"type": "DELETED", "object": build_object("one", "2")},
        {"type": "ADDED", "object": build_object("one", "3")},
    ]
    cluster = ScriptedCluster(events, pages=[build_list(build_object("one", "1"), build_object("other", "x"))])
    async with run_watch(fake_cluster, cluster) as recorder:
        await eventually(lambda: recorder.states == ["1", "2", None, "3"])
    assert recorder.errors == []
    listed, watched = cluster.requests
    assert listed.query["fieldSelector"] == watched.query["fieldSelector"] == "metadata.name=one"
    assert watched.query["resourceVersion"] == "10"


async def test_after_the_end_of_a_watch_the_object_is_read_again(fake_cluster: FakeCluster) -> None:
    pages = [build_list(build_object("one", "1")), build_list(), build_list(build_object("one", "3"))]
    cluster = ScriptedCluster([], [{"type": "ERROR", "object": EXPIRED}], [], pages=pages)
    async with run_watch(fake_cluster, cluster) as recorder:
        await eventually(lambda: recorder.states == ["1", None, "3"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "not a JSON object"),
        (b'{"items": {}, "metadata": {"resourceVersion": "1"}}', "no items or no resourceVersion"),
        (b'{"items": []}', "no items or no resourceVersion"),
    ],
)
async def test_an_invalid_response_is_an_error(fake_cluster: FakeCluster, content: bytes, message: str) -> None:
    fake_cluster.set_response(PATH, CannedResponse(body=content))
    async with run_watch(fake_cluster, None) as recorder:
        await eventually(lambda: recorder.errors)
    assert message in recorder.errors[0] and recorder.states == []


async def test_a_rejection_is_reported_with_the_message_of_the_cluster(fake_cluster: FakeCluster) -> None:
    fake_cluster.set_response(PATH, build_status_response(403, "Forbidden", "you cannot list this"))
    async with run_watch(fake_cluster, None) as recorder:
        await eventually(lambda: len(recorder.errors) > 1)
    assert recorder.errors[0] == "you cannot list this"


@on_virtual_time
async def test_watches_that_end_at_once_are_restarted_with_growing_delays() -> None:
    server, recorder = ShortWatchServer(), Recorder()
    task = asyncio.create_task(ObjectWatch(lambda: server, PATH, "one", recorder.on_object, recorder.on_error).run())
    await asyncio.sleep(600)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert 600 / RETRY.max_seconds / 2 < server.watches < 3 * 600 / RETRY.max_seconds


async def test_a_listener_that_fails_does_not_end_the_watch(fake_cluster: FakeCluster) -> None:
    fake_cluster.set_response(PATH, build_status_response(403, "Forbidden", "no"))
    calls = 0

    def fail(_: Any) -> None:
        nonlocal calls
        calls += 1
        raise ValueError("a bug")

    async with connect_upstream(fake_cluster) as upstream:
        task = asyncio.create_task(ObjectWatch(lambda: upstream, PATH, "one", fail, fail).run())
        await eventually(lambda: calls > 1 or task.done())
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
