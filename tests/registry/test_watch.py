"""What a watch delivers: each step from the point of view of its selection, in order, and an honest end."""

import asyncio
from collections.abc import Iterator

import orjson
import pytest

from fairlead.core.errors import Expired
from fairlead.core.objects import Object
from fairlead.registry.selectors import EVERYTHING, Selector, parse_fields, parse_labels
from fairlead.registry.watch import WatchSession, encode_event
from tests.harness.registry import World, as_ada, new_world

ON = Selector(parse_labels("on=yes"))


def feed_of(world: World, selection: Selector = EVERYTHING, queue: int = 100, kind: str = "Gadget") -> WatchSession:
    declared = world.of(kind).kind
    return WatchSession(world.view, declared, "demo" if declared.namespaced else "", selection, queue)


async def begun(world: World, selection: Selector = EVERYTHING, queue: int = 100) -> WatchSession:
    feed = feed_of(world, selection, queue)
    await feed.start(world.view.revision)
    return feed


async def added(feed: WatchSession) -> list[Object]:
    return [orjson.loads(body) async for bodies in feed.initial_objects() for body in bodies]


def taken(feed: WatchSession) -> list[tuple[str, Object]]:
    return [(event.type, orjson.loads(event.body)) for event in feed.poll()]


def types(feed: WatchSession) -> list[str]:
    return [f"{event.type} {orjson.loads(event.body)['metadata']['name']}" for event in feed.poll()]


async def label(world: World, name: str, value: str | None) -> Object:
    return await world.patch("Gadget", name, lambda obj: obj["metadata"].update(labels={"on": value} if value else {}))


async def test_each_step_is_an_event_with_the_object_after_it(world: World) -> None:
    feed = await begun(world)
    made = await world.create("Gadget", "a", spec={"size": 1})
    changed = await world.patch("Gadget", "a", lambda obj: obj["spec"].update(size=2))
    await world.delete("Gadget", "a")
    events = taken(feed)
    assert events[:2] == [("ADDED", made), ("MODIFIED", changed)]
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert taken(feed) == []


async def test_the_last_event_shows_the_last_state_under_the_version_of_the_end(world: World) -> None:
    """Whoever resumes from the version of the last event they saw must not be told of the end again."""
    made = await world.create("Gadget", "a", spec={"size": 1})
    feed = await begun(world)
    await world.delete("Gadget", "a")
    ((_, last),) = taken(feed)
    assert last["metadata"].pop("resourceVersion") == str(world.view.revision)
    made["metadata"].pop("resourceVersion")
    assert last == made
    resumed = feed_of(world)
    await resumed.start(world.view.revision)
    assert taken(resumed) == []


async def test_an_object_comes_and_goes_with_what_the_selection_asks_for(world: World) -> None:
    feed = await begun(world, ON)
    await world.create("Gadget", "a")
    await label(world, "a", "no")
    await label(world, "a", "yes")
    await world.patch("Gadget", "a", lambda obj: obj.update(spec={"size": 5}))
    await label(world, "a", "no")
    await label(world, "a", "yes")
    await label(world, "a", None)
    await world.delete("Gadget", "a")
    assert types(feed) == ["ADDED a", "MODIFIED a", "DELETED a", "ADDED a", "DELETED a"]


async def test_an_object_that_ceases_to_match_is_shown_as_it_last_matched(world: World) -> None:
    await world.create("Gadget", "a", metadata={"labels": {"on": "yes"}})
    feed = await begun(world, ON)
    changed = await label(world, "a", "no")
    ((kind, gone),) = taken(feed)
    assert kind == "DELETED"
    assert gone["metadata"]["labels"] == {"on": "yes"}
    assert gone["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]


async def test_a_selection_by_fields_follows_the_fields(world: World) -> None:
    selection = Selector((), parse_fields("status.phase=Ready", ("status.phase",)))
    feed = await begun(world, selection)
    await world.create("Gadget", "a")
    status = as_ada(subresource="status")
    await world.patch("Gadget", "a", lambda obj: obj.update(status={"phase": "Ready"}), status)
    await world.patch("Gadget", "a", lambda obj: obj.update(status={"phase": "Failed"}), status)
    assert types(feed) == ["ADDED a", "DELETED a"]


async def test_watchers_with_different_selections_each_see_their_own_side_of_a_step(world: World) -> None:
    await world.create("Gadget", "a", metadata={"labels": {"on": "yes"}})
    feeds = [await begun(world, Selector(parse_labels(text))) for text in ("", "on=yes", "on=no", "on", "!on")]
    await label(world, "a", "no")
    assert [types(feed) for feed in feeds] == [["MODIFIED a"], ["DELETED a"], ["ADDED a"], ["MODIFIED a"], []]


async def test_an_event_is_encoded_once_for_all_who_hear_it(world: World) -> None:
    feeds = [await begun(world) for _ in range(3)]
    await world.create("Gadget", "a")
    first, second, third = (next(iter(feed.poll())) for feed in feeds)
    assert first is second is third
    assert first.line == encode_event("ADDED", first.body)
    assert orjson.loads(first.line) == {"type": "ADDED", "object": orjson.loads(first.body)}
    assert first.line.endswith(b"\n")
    assert first.line.count(b"\n") == 1


async def test_a_watch_of_a_namespace_hears_only_of_that_one(world: World) -> None:
    feed = feed_of(world, kind="ConfigMap")
    await feed.start(world.view.revision)
    await world.create("ConfigMap", "a", "default")
    await world.create("ConfigMap", "b", "demo")
    await world.create("Secret", "c", "demo")
    assert types(feed) == ["ADDED b"]


async def test_a_watch_begins_after_the_version_that_it_names(world: World) -> None:
    await world.create("Gadget", "a")
    since = world.view.revision
    await world.create("Gadget", "b")
    await world.delete("Gadget", "a")
    feed = feed_of(world)
    await feed.start(since)
    await world.create("Gadget", "c")
    assert types(feed) == ["ADDED b", "DELETED a", "ADDED c"]


async def test_a_watch_can_begin_with_what_exists_and_misses_nothing_after_it(world: World) -> None:
    await world.create("Gadget", "b", metadata={"labels": {"on": "yes"}})
    await world.create("Gadget", "a")
    feed, chosen = feed_of(world), feed_of(world, ON)
    assert [each["metadata"]["name"] for each in await added(feed)] == ["a", "b"]
    assert len(await added(chosen)) == 1
    await world.delete("Gadget", "b")
    assert types(feed) == ["DELETED b"]
    assert types(chosen) == ["DELETED b"]


async def test_a_version_that_is_too_long_ago_is_expired(world: World) -> None:
    since = world.view.revision
    await world.create("Gadget", "a")
    world.view.discard_before(world.view.revision)
    with pytest.raises(Expired, match=f"too old resource version: {since} \\({world.view.revision}\\)"):
        await feed_of(world).start(since)


async def test_a_watch_resumes_across_a_restart_of_the_server(world: World) -> None:
    made = await world.create("Gadget", "a", metadata={"labels": {"on": "yes"}})
    since = world.view.revision
    await label(world, "a", "no")
    await world.create("Gadget", "b")
    async with new_world(world.store.inner) as restarted:
        feed = feed_of(restarted, ON)
        await feed.start(since)
        ((kind, gone),) = taken(feed)
        assert (kind, gone["metadata"]["uid"]) == ("DELETED", made["metadata"]["uid"])


async def test_a_slow_watch_ends_with_an_error_and_never_with_a_gap(world: World) -> None:
    feed = await begun(world, queue=3)
    for name in "abcd":
        await world.create("Gadget", name)
    with pytest.raises(Expired, match="list again"):
        list(feed.poll())
    await world.create("Gadget", "e")
    with pytest.raises(Expired):
        list(feed.poll())


async def test_what_others_do_elsewhere_does_not_fill_the_queue(world: World) -> None:
    feed = feed_of(world, queue=1, kind="ConfigMap")
    await feed.start(world.view.revision)
    for number in range(5):
        await world.create("Gadget", f"g{number}")
        await world.create("ConfigMap", f"c{number}", "default")
    await world.create("ConfigMap", "mine")
    assert types(feed) == ["ADDED mine"]


async def test_a_bookmark_is_never_ahead_of_what_was_delivered(world: World) -> None:
    """At every turn of the loop: what comes after the position told must still come from a watch begun there."""
    feed = await begun(world)
    heard: list[str] = []
    positions: list[tuple[int, int]] = []

    async def follow() -> None:
        while True:
            heard.extend(types(feed))
            positions.append((feed.current_revision(), len(heard)))
            await feed.wait_for_events()

    following = asyncio.create_task(follow())
    for number in range(10):
        await asyncio.gather(world.create("Gadget", f"g{number}"), world.create("ConfigMap", f"c{number}"))
    await asyncio.sleep(1)
    following.cancel()
    assert len(heard) == 10
    assert len(positions) > 5
    for position, count in positions:
        resumed = feed_of(world)
        await resumed.start(position)
        assert heard[:count] + types(resumed) == heard
        resumed.close()


async def test_a_position_moves_on_with_what_others_write(world: World) -> None:
    """So that a quiet watch can be resumed although its own resource has been compacted long since."""
    feed = await begun(world)
    before = feed.current_revision()
    await world.create("ConfigMap", "c")
    assert taken(feed) == []
    assert feed.current_revision() == world.view.revision > before


async def test_a_feed_that_is_closed_hears_nothing_more(world: World) -> None:
    feed = await begun(world)
    feed.close()
    feed.close()
    await world.create("Gadget", "a")
    assert types(feed) == []


async def test_a_feed_that_was_never_started_can_be_closed_but_not_asked(world: World) -> None:
    feed = feed_of(world)
    feed.close()
    with pytest.raises(RuntimeError, match="has not been started"):
        list(feed.poll())


async def test_a_stopping_server_ends_the_watch_after_what_still_waits(world: World) -> None:
    feed = await begun(world)
    await world.create("Gadget", "a")
    world.view.end_watches()
    await feed.wait_for_events()
    assert feed.is_ended
    assert types(feed) == ["ADDED a"]


async def test_random_histories_replayed_from_anywhere_lead_to_what_is_there(world: World) -> None:
    """Informers do nothing else: a list at some version, then every event after it."""
    snapshots: list[tuple[int, dict[str, str]]] = []

    def state(world: World) -> dict[str, str]:
        entries = world.view.entries("management.service.sh", "gadgets")
        return {entry.key[3]: str(entry.revision) for entry in entries if ON.matches_values(entry.labels, entry.fields)}

    for name, action in _actions():
        if action == "delete":
            if world.see("Gadget", name):
                await world.delete("Gadget", name)
        elif world.see("Gadget", name) is None:
            await world.create("Gadget", name, metadata={"labels": {"on": action}})
        else:
            await label(world, name, action)
        snapshots.append((world.view.revision, state(world)))
    for since, known in snapshots:
        feed = feed_of(world, ON)
        await feed.start(since)
        for kind, obj in taken(feed):
            name = obj["metadata"]["name"]
            assert (name in known) is (kind != "ADDED")
            if kind == "DELETED":
                known.pop(name)
            else:
                known[name] = obj["metadata"]["resourceVersion"]
        assert known == state(world)


SELECTIONS = {
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


@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
async def test_whatever_is_selected_live_events_lead_to_what_is_there(world: World, selection: Selector) -> None:
    """However a watcher is found, it hears of all that concerns it, and each object comes before it goes."""
    feed = await begun(world, selection)
    known: dict[str, str] = {}
    for number, (name, action) in enumerate(_actions()):
        if action == "delete":
            if world.see("Gadget", name):
                await world.delete("Gadget", name)
        elif world.see("Gadget", name) is None:
            spec = {"color": "red" if number % 2 else "blue"}
            await world.create("Gadget", name, metadata={"labels": {"on": action}}, spec=spec)
        else:
            await label(world, name, action if number % 4 else None)
        for kind, obj in taken(feed):
            told = obj["metadata"]["name"]
            assert (told in known) is (kind != "ADDED")
            if kind == "DELETED":
                known.pop(told)
            else:
                known[told] = obj["metadata"]["resourceVersion"]
        entries = world.view.entries("management.service.sh", "gadgets")
        assert known == {entry.key[3]: str(entry.revision) for entry in entries if selection.matches(entry)}


class Seeing:
    """Sees everything, though its permissions may be told to have changed."""

    def __init__(self) -> None:
        self.changes = 0

    def allows(self, entry: object) -> bool:
        return True

    def generation(self) -> object:
        return self.changes


async def test_permissions_that_change_nothing_do_not_end_a_watch_that_selects(world: World) -> None:
    """It has to know of all objects that can be seen, those that it does not select among them."""
    sieve = Seeing()
    feed = WatchSession(world.view, world.of("Gadget").kind, "", ON, 100, sieve)
    await feed.start(world.view.revision)
    await world.create("Gadget", "a", metadata={"labels": {"on": "no"}})
    sieve.changes += 1
    assert types(feed) == []
    assert feed.is_visibility_check_due
    await feed.check_visibility()
    await label(world, "a", "yes")
    assert types(feed) == ["ADDED a"]


def _actions() -> Iterator[tuple[str, str]]:
    """A fixed walk through every order of three actions on two objects."""
    actions = ("yes", "no", "delete")
    for first in actions:
        for second in actions:
            for third in actions:
                yield from (("a", first), ("b", second), ("a", third))
