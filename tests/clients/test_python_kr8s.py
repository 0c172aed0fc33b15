"""kr8s, the other Python client: through discovery, asynchronously, with its own idea of paging and watching."""

import asyncio
from typing import Any

import kr8s
import kr8s.asyncio
import pytest
from kr8s.asyncio.objects import ConfigMap, Namespace, new_class

from tests.clients.objects import app, project, workspace
from tests.clients.server import VERSION, Server

App = new_class("App", VERSION, namespaced=False, plural="apps")
Project = new_class("Project", VERSION, namespaced=False, plural="projects")
Workspace = new_class("DevPodWorkspaceInstance", VERSION, namespaced=True, plural="devpodworkspaceinstances")


@pytest.fixture
async def api(server: Server) -> Any:
    return await kr8s.asyncio.api(kubeconfig=str(server.kubeconfig))


async def names(api: Any, *what: Any, **options: Any) -> list[str]:
    return [each.name async for each in api.get(*what, **options)]


async def make(api: Any, *apps: str) -> list[Any]:
    made = [await App(app(name), api=api) for name in apps]
    for each in made:
        await each.create()
    return made


async def test_it_accepts_the_version_of_the_server(api: Any) -> None:
    assert (await api.version())["gitVersion"].startswith("v1.")


async def test_it_creates_gets_lists_and_deletes(api: Any) -> None:
    made = await App(app("a", {"x": "y"}, displayName="A"), api=api)
    await made.create()
    found = await App.get("a", api=api)
    assert found.spec.displayName == "A"
    assert await names(api, "apps", label_selector={"x": "y"}) == ["a"]
    assert await names(api, App, field_selector="metadata.name=a") == ["a"]
    await made.delete()
    await made.wait("delete", timeout=10)
    assert not await made.exists()
    with pytest.raises(kr8s.NotFoundError):
        await App.get("a", api=api, timeout=1)


async def test_it_patches_in_both_ways_and_labels_and_annotates(api: Any) -> None:
    (made,) = await make(api, "p")
    await made.patch({"spec": {"displayName": "merged"}})
    assert made.spec.displayName == "merged"
    await made.patch([{"op": "replace", "path": "/spec/displayName", "value": "patched"}], type="json")
    await made.label({"a": "b"})
    await made.annotate({"example.com/c": "d"})
    again = await App.get("p", api=api)
    assert (again.spec.displayName, again.labels["a"]) == ("patched", "b")
    assert again.annotations["example.com/c"] == "d"
    await made.delete()


async def test_it_pages_through_long_lists(api: Any) -> None:
    """kr8s asks for a hundred at a time."""
    many = [f"many-{number:03}" for number in range(120)]
    made = await make(api, *many)
    assert await names(api, "apps") == many
    await asyncio.gather(*(each.delete() for each in made))


async def test_it_watches(api: Any) -> None:
    (one,) = await make(api, "one")
    seen: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def follow() -> None:
        async for event, obj in api.watch("apps"):
            seen.put_nowait((event, obj.name))

    following = asyncio.create_task(follow())
    assert await asyncio.wait_for(seen.get(), 10) == ("ADDED", "one")
    (two,) = await make(api, "two")
    await one.patch({"spec": {"displayName": "x"}})
    await two.delete()
    events = [await asyncio.wait_for(seen.get(), 10) for _ in range(3)]
    assert events == [("ADDED", "two"), ("MODIFIED", "one"), ("DELETED", "two")]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await one.delete()


async def test_it_waits_for_a_project_and_works_in_its_namespace(api: Any) -> None:
    made = await Project(project("kr8s"), api=api)
    await made.create()
    async with asyncio.timeout(10):
        while "status" not in made.raw:  # its wait() cannot stand an object that has none yet
            await made.refresh()
    await made.wait("condition=Ready", timeout=10)
    inside = await Workspace(workspace("w", "service-p-kr8s", owner={"user": "ada"}), api=api)
    await inside.create()
    assert await names(api, "devpodworkspaceinstances", namespace="service-p-kr8s") == ["w"]
    assert await names(api, "ws", namespace=kr8s.ALL) == ["w"]
    await made.delete()
    await made.wait("delete", timeout=20)
    assert "service-p-kr8s" not in await names(api, Namespace)


async def test_it_writes_core_kinds(api: Any) -> None:
    body = {"metadata": {"name": "c", "namespace": "default"}, "data": {"a": "1"}}
    made = await ConfigMap(body, api=api)
    await made.create()
    await made.patch({"data": {"b": "2"}})
    assert dict(made.data) == {"a": "1", "b": "2"}
    await made.delete()
