"""Watch sessions of gadgets and the events that they return."""

import orjson

from fairlead.registry.selectors import EVERYTHING, Selector
from fairlead.registry.watch import WatchSession
from tests.harness.registry import RegistryFixture


def build_watch(
    api: RegistryFixture, selector: Selector = EVERYTHING, queue: int = 100, kind: str = "Gadget"
) -> WatchSession:
    declared = api.resource(kind).kind
    return WatchSession(api.view, declared, "demo" if declared.namespaced else "", selector, queue)


async def start_watch(api: RegistryFixture, selector: Selector = EVERYTHING, queue: int = 100) -> WatchSession:
    watch = build_watch(api, selector, queue)
    await watch.start(api.view.revision)
    return watch


def poll_names(watch: WatchSession) -> list[str]:
    return [f"{event.type} {orjson.loads(event.body)['metadata']['name']}" for event in watch.poll()]
