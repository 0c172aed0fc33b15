"""registry/watch.py: which events a watch with a selector sends, in which order, and how it ends."""

import asyncio
from collections.abc import Iterator

import orjson
import pytest

from fairlead.core.errors import Expired
from fairlead.core.objects import Object
from fairlead.registry.selectors import Selector, parse_fields, parse_labels
from fairlead.registry.watch import WatchSession, encode_event
from tests.harness.registry import RegistryFixture, open_registry, write_options
from tests.registry.watch_sessions import build_watch, poll_names, start_watch

ON = Selector(parse_labels("on=yes"))


async def read_initial_objects(watch: WatchSession) -> list[Object]:
    return [orjson.loads(body) async for bodies in watch.initial_objects() for body in bodies]


def poll_objects(watch: WatchSession) -> list[tuple[str, Object]]:
    return [(event.type, orjson.loads(event.body)) for event in watch.poll()]


async def set_label(api: RegistryFixture, name: str, value: str | None) -> Object:
    return await api.patch("Gadget", name, lambda obj: obj["metadata"].update(labels={"on": value} if value else {}))


async def test_each_write_is_an_event_with_the_new_object(api: RegistryFixture) -> None:
    watch = await start_watch(api)
    created = await api.create("Gadget", "a", spec={"size": 1})
    changed = await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=2))
    await api.delete("Gadget", "a")
    events = poll_objects(watch)
    assert events[:2] == [("ADDED", created), ("MODIFIED", changed)]
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert poll_objects(watch) == []


async def test_a_deleted_event_has_the_last_state_and_the_revision_of_the_deletion(api: RegistryFixture) -> None:
    """A watch resumed from that version does not get the deletion again."""
    created = await api.create("Gadget", "a", spec={"size": 1})
    watch = await start_watch(api)
    await api.delete("Gadget", "a")
    ((_, deleted),) = poll_objects(watch)
    assert deleted["metadata"].pop("resourceVersion") == str(api.view.revision)
    created["metadata"].pop("resourceVersion")
    assert deleted == created
    resumed = build_watch(api)
    await resumed.start(api.view.revision)
    assert poll_objects(resumed) == []


async def test_an_object_is_added_and_deleted_as_it_starts_and_stops_matching(api: RegistryFixture) -> None:
    watch = await start_watch(api, ON)
    await api.create("Gadget", "a")
    await set_label(api, "a", "no")
    await set_label(api, "a", "yes")
    await api.patch("Gadget", "a", lambda obj: obj.update(spec={"size": 5}))
    await set_label(api, "a", "no")
    await set_label(api, "a", "yes")
    await set_label(api, "a", None)
    await api.delete("Gadget", "a")
    assert poll_names(watch) == ["ADDED a", "MODIFIED a", "DELETED a", "ADDED a", "DELETED a"]


async def test_an_object_that_stops_matching_is_sent_as_it_last_matched(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", metadata={"labels": {"on": "yes"}})
    watch = await start_watch(api, ON)
    changed = await set_label(api, "a", "no")
    ((kind, deleted),) = poll_objects(watch)
    assert kind == "DELETED"
    assert deleted["metadata"]["labels"] == {"on": "yes"}
    assert deleted["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]


async def test_a_field_selector_follows_changes_of_the_field(api: RegistryFixture) -> None:
    selector = Selector((), parse_fields("status.phase=Ready", ("status.phase",)))
    watch = await start_watch(api, selector)
    await api.create("Gadget", "a")
    status = write_options(subresource="status")
    await api.patch("Gadget", "a", lambda obj: obj.update(status={"phase": "Ready"}), status)
    await api.patch("Gadget", "a", lambda obj: obj.update(status={"phase": "Failed"}), status)
    assert poll_names(watch) == ["ADDED a", "DELETED a"]


async def test_watches_with_different_selectors_get_different_events_for_a_change(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", metadata={"labels": {"on": "yes"}})
    watches = [await start_watch(api, Selector(parse_labels(text))) for text in ("", "on=yes", "on=no", "on", "!on")]
    await set_label(api, "a", "no")
    assert [poll_names(watch) for watch in watches] == [["MODIFIED a"], ["DELETED a"], ["ADDED a"], ["MODIFIED a"], []]


async def test_an_event_is_encoded_once_for_all_watches(api: RegistryFixture) -> None:
    watches = [await start_watch(api) for _ in range(3)]
    await api.create("Gadget", "a")
    first, second, third = (next(iter(watch.poll())) for watch in watches)
    assert first is second is third
    assert first.line == encode_event("ADDED", first.body)
    assert orjson.loads(first.line) == {"type": "ADDED", "object": orjson.loads(first.body)}
    assert first.line.endswith(b"\n")
    assert first.line.count(b"\n") == 1


async def test_a_watch_of_a_namespace_gets_only_its_events(api: RegistryFixture) -> None:
    watch = build_watch(api, kind="ConfigMap")
    await watch.start(api.view.revision)
    await api.create("ConfigMap", "a", "default")
    await api.create("ConfigMap", "b", "demo")
    await api.create("Secret", "c", "demo")
    assert poll_names(watch) == ["ADDED b"]


async def test_a_watch_starts_after_its_resource_version(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    since = api.view.revision
    await api.create("Gadget", "b")
    await api.delete("Gadget", "a")
    watch = build_watch(api)
    await watch.start(since)
    await api.create("Gadget", "c")
    assert poll_names(watch) == ["ADDED b", "DELETED a", "ADDED c"]


async def test_a_watch_can_start_with_the_existing_objects_and_misses_no_later_event(api: RegistryFixture) -> None:
    await api.create("Gadget", "b", metadata={"labels": {"on": "yes"}})
    await api.create("Gadget", "a")
    watch, filtered = build_watch(api), build_watch(api, ON)
    assert [each["metadata"]["name"] for each in await read_initial_objects(watch)] == ["a", "b"]
    assert len(await read_initial_objects(filtered)) == 1
    await api.delete("Gadget", "b")
    assert poll_names(watch) == ["DELETED b"]
    assert poll_names(filtered) == ["DELETED b"]


async def test_a_compacted_resource_version_is_expired(api: RegistryFixture) -> None:
    since = api.view.revision
    await api.create("Gadget", "a")
    api.view.discard_before(api.view.revision)
    with pytest.raises(Expired, match=f"too old resource version: {since} \\({api.view.revision}\\)"):
        await build_watch(api).start(since)


async def test_a_watch_resumes_across_a_restart_of_the_server(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", metadata={"labels": {"on": "yes"}})
    since = api.view.revision
    await set_label(api, "a", "no")
    await api.create("Gadget", "b")
    async with open_registry(api.store.inner) as restarted:
        watch = build_watch(restarted, ON)
        await watch.start(since)
        ((kind, deleted),) = poll_objects(watch)
        assert (kind, deleted["metadata"]["uid"]) == ("DELETED", created["metadata"]["uid"])


async def test_a_slow_watch_ends_with_expired_and_never_skips_events(api: RegistryFixture) -> None:
    watch = await start_watch(api, queue=3)
    for name in "abcd":
        await api.create("Gadget", name)
    with pytest.raises(Expired, match="list again"):
        list(watch.poll())
    await api.create("Gadget", "e")
    with pytest.raises(Expired):
        list(watch.poll())


async def test_writes_to_other_resources_do_not_fill_the_queue(api: RegistryFixture) -> None:
    watch = build_watch(api, queue=1, kind="ConfigMap")
    await watch.start(api.view.revision)
    for number in range(5):
        await api.create("Gadget", f"g{number}")
        await api.create("ConfigMap", f"c{number}", "default")
    await api.create("ConfigMap", "mine")
    assert poll_names(watch) == ["ADDED mine"]


async def test_a_bookmark_is_never_ahead_of_the_delivered_events(api: RegistryFixture) -> None:
    """At every turn of the event loop: a watch resumed at the bookmark gets exactly the remaining events."""
    watch = await start_watch(api)
    events: list[str] = []
    positions: list[tuple[int, int]] = []

    async def follow() -> None:
        while True:
            events.extend(poll_names(watch))
            positions.append((watch.current_revision(), len(events)))
            await watch.wait_for_events()

    follower = asyncio.create_task(follow())
    for number in range(10):
        await asyncio.gather(api.create("Gadget", f"g{number}"), api.create("ConfigMap", f"c{number}"))
    await asyncio.sleep(1)
    follower.cancel()
    assert len(events) == 10
    assert len(positions) > 2  # a busy machine commits several writes together
    for position, count in positions:
        resumed = build_watch(api)
        await resumed.start(position)
        assert events[:count] + poll_names(resumed) == events
        resumed.close()


async def test_the_current_revision_advances_with_writes_to_other_resources(api: RegistryFixture) -> None:
    """So that an idle watch can be resumed although its own resource was compacted."""
    watch = await start_watch(api)
    before = watch.current_revision()
    await api.create("ConfigMap", "c")
    assert poll_objects(watch) == []
    assert watch.current_revision() == api.view.revision > before


async def test_a_closed_watch_gets_no_more_events(api: RegistryFixture) -> None:
    watch = await start_watch(api)
    watch.close()
    watch.close()
    await api.create("Gadget", "a")
    assert poll_names(watch) == []


async def test_a_watch_that_was_not_started_can_be_closed_but_not_polled(api: RegistryFixture) -> None:
    watch = build_watch(api)
    watch.close()
    with pytest.raises(RuntimeError, match="has not been started"):
        list(watch.poll())


async def test_a_stopping_server_ends_the_watch_after_pending_events(api: RegistryFixture) -> None:
    watch = await start_watch(api)
    await api.create("Gadget", "a")
    api.view.end_watches()
    await watch.wait_for_events()
    assert watch.is_ended
    assert poll_names(watch) == ["ADDED a"]


async def test_a_watch_from_any_revision_leads_to_the_current_state(api: RegistryFixture) -> None:
    """As informers do: a list at some version, then every event after it."""
    snapshots: list[tuple[int, dict[str, str]]] = []

    def matching_revisions(api: RegistryFixture) -> dict[str, str]:
        entries = api.view.entries("management.service.sh", "gadgets")
        return {entry.key[3]: str(entry.revision) for entry in entries if ON.matches_values(entry.labels, entry.fields)}

    for name, action in _actions():
        if action == "delete":
            if api.get("Gadget", name):
                await api.delete("Gadget", name)
        elif api.get("Gadget", name) is None:
            await api.create("Gadget", name, metadata={"labels": {"on": action}})
        else:
            await set_label(api, name, action)
        snapshots.append((api.view.revision, matching_revisions(api)))
    for since, known in snapshots:
        watch = build_watch(api, ON)
        await watch.start(since)
        for kind, obj in poll_objects(watch):
            name = obj["metadata"]["name"]
            assert (name in known) is (kind != "ADDED")
            if kind == "DELETED":
                known.pop(name)
            else:
                known[name] = obj["metadata"]["resourceVersion"]
        assert known == matching_revisions(api)


SELECTORS = {
    f"{labels};{fields}": Selector(parse_labels(labels), parse_fields(fields, ("metadata.name", "spec.color")))
    for labels, fields in (
        ("on=yes", ""),
        ("on in (yes,no)", ""),
        ("on notin (yes)", ""),
        ("on", ""),
        ("!on", ""),
        ("on in (yes,no),on!=no", ""),
        ("", "metadata.name=a"),
        ("", "metadata.name!=a"),
        ("", "spec.color=red"),
        ("on=yes", "spec.color=red"),
        ("on=yes", "metadata.name=b"),
        ("", ""),
    )
}


@pytest.mark.parametrize("selector", SELECTORS.values(), ids=SELECTORS)
async def test_live_events_lead_to_the_current_state_for_every_selector(
    api: RegistryFixture, selector: Selector
) -> None:
    """However the watch is indexed, it gets all events that concern it, and ADDED comes before DELETED."""
    watch = await start_watch(api, selector)
    known: dict[str, str] = {}
    for number, (name, action) in enumerate(_actions()):
        if action == "delete":
            if api.get("Gadget", name):
                await api.delete("Gadget", name)
        elif api.get("Gadget", name) is None:
            spec = {"color": "red" if number % 2 else "blue"}
            await api.create("Gadget", name, metadata={"labels": {"on": action}}, spec=spec)
        else:
            await set_label(api, name, action if number % 4 else None)
        for kind, obj in poll_objects(watch):
            changed_name = obj["metadata"]["name"]
            assert (changed_name in known) is (kind != "ADDED")
            if kind == "DELETED":
                known.pop(changed_name)
            else:
                known[changed_name] = obj["metadata"]["resourceVersion"]
        entries = api.view.entries("management.service.sh", "gadgets")
        assert known == {entry.key[3]: str(entry.revision) for entry in entries if selector.matches(entry)}


class AllVisible:
    """Allows everything; its generation can be changed."""

    def __init__(self) -> None:
        self.changes = 0

    def allows(self, entry: object) -> bool:
        return True

    def generation(self) -> object:
        return self.changes


async def test_a_permission_change_without_effect_does_not_end_a_watch_with_a_selector(api: RegistryFixture) -> None:
    """The watch tracks all visible objects, including those that its selector does not match."""
    visibility = AllVisible()
    watch = WatchSession(api.view, api.resource("Gadget").kind, "", ON, 100, visibility)
    await watch.start(api.view.revision)
    await api.create("Gadget", "a", metadata={"labels": {"on": "no"}})
    visibility.changes += 1
    assert poll_names(watch) == []
    assert watch.is_visibility_check_due
    await watch.check_visibility()
    await set_label(api, "a", "yes")
    assert poll_names(watch) == ["ADDED a"]


def _actions() -> Iterator[tuple[str, str]]:
    """Yields every order of three actions on two objects."""
    actions = ("yes", "no", "delete")
    for first in actions:
        for second in actions:
            for third in actions:
                yield from (("a", first), ("b", second), ("a", third))
