"""kr8s, an asynchronous Python client: discovery, paging, watches and waiting."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import kr8s
import kr8s.asyncio
import pytest
from kr8s.asyncio.objects import ConfigMap, Namespace, new_class

from tests.clients.objects import build_app, build_project, build_workspace
from tests.clients.server import VERSION, Server

App = new_class("App", VERSION, namespaced=False, plural="apps")
Project = new_class("Project", VERSION, namespaced=False, plural="projects")
Workspace = new_class("DevPodWorkspaceInstance", VERSION, namespaced=True, plural="devpodworkspaceinstances")


@pytest.fixture
async def api(server: Server) -> AsyncIterator[Any]:
    api: Any = await kr8s.asyncio.api(kubeconfig=str(server.kubeconfig))
    yield api
    await api._session.aclose()  # kr8s has no public method for it


async def list_names(api: Any, *what: Any, **options: Any) -> list[str]:
    return [each.name async for each in api.get(*what, **options)]


async def create_apps(api: Any, *apps: str) -> list[Any]:
    created = [await App(build_app(name), api=api) for name in apps]
    for each in created:
        await each.create()
    return created


async def test_it_accepts_the_version_of_the_server(api: Any) -> None:
    assert (await api.version())["gitVersion"].startswith("v1.")


async def test_it_creates_gets_lists_and_deletes(api: Any) -> None:
    created = await App(build_app("a", {"x": "y"}, displayName="A"), api=api)
    await created.create()
    found = await App.get("a", api=api)
    assert found.spec.displayName == "A"
    assert await list_names(api, "apps", label_selector={"x": "y"}) == ["a"]
    assert await list_names(api, App, field_selector="metadata.name=a") == ["a"]
    await created.delete()
    await created.wait("delete", timeout=10)
    assert not await created.exists()
    with pytest.raises(kr8s.NotFoundError):
        await App.get("a", api=api, timeout=1)


async def test_it_sends_merge_and_json_patches_labels_and_annotations(api: Any) -> None:
    (created,) = await create_apps(api, "p")
    await created.patch({"spec": {"displayName": "merged"}})
    assert created.spec.displayName == "merged"
    await created.patch([{"op": "replace", "path": "/spec/displayName", "value": "patched"}], type="json")
    await created.label({"a": "b"})
    await created.annotate({"example.com/c": "d"})
    again = await App.get("p", api=api)
    assert (again.spec.displayName, again.labels["a"]) == ("patched", "b")
    assert again.annotations["example.com/c"] == "d"
    await created.delete()


async def test_it_pages_through_long_lists(api: Any) -> None:
    """kr8s requests pages of a hundred objects."""
    app_names = [f"many-{number:03}" for number in range(120)]
    created = await create_apps(api, *app_names)
    assert await list_names(api, "apps") == app_names
    await asyncio.gather(*(each.delete() for each in created))


async def test_it_watches(api: Any) -> None:
    (one,) = await create_apps(api, "one")
    queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def watch_apps() -> None:
        async for event, obj in api.watch("apps"):
            queue.put_nowait((event, obj.name))

    task = asyncio.create_task(watch_apps())
    assert await asyncio.wait_for(queue.get(), 40) == ("ADDED", "one")
    (two,) = await create_apps(api, "two")
    await one.patch({"spec": {"displayName": "x"}})
    await two.delete()
    events = [await asyncio.wait_for(queue.get(), 40) for _ in range(3)]
    assert events == [("ADDED", "two"), ("MODIFIED", "one"), ("DELETED", "two")]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await one.delete()


async def test_it_waits_for_a_project_and_uses_its_namespace(api: Any) -> None:
    created = await Project(build_project("kr8s"), api=api)
    await created.create()
    async with asyncio.timeout(40):
        while "status" not in created.raw:  # its wait() fails for an object without a status
            await created.refresh()
    await created.wait("condition=Ready", timeout=10)
    created_workspace = await Workspace(build_workspace("w", "service-p-kr8s", owner={"user": "ada"}), api=api)
    await created_workspace.create()
    assert await list_names(api, "devpodworkspaceinstances", namespace="service-p-kr8s") == ["w"]
    assert await list_names(api, "ws", namespace=kr8s.ALL) == ["w"]
    await created.delete()
    await created.wait("delete", timeout=20)
    assert "service-p-kr8s" not in await list_names(api, Namespace)


async def test_it_writes_core_kinds(api: Any) -> None:
    body = {"metadata": {"name": "c", "namespace": "default"}, "data": {"a": "1"}}
    created = await ConfigMap(body, api=api)
    await created.create()
    await created.patch({"data": {"b": "2"}})
    assert dict(created.data) == {"a": "1", "b": "2"}
    await created.delete()
