"""What a watch delivers: each step from the point of view of its selection, in order, and an honest end."""

import asyncio
from collections.abc import Iterator

import orjson
import pytest

from fairlead.core.errors import Expired
from fairlead.core.objects import Object
from fairlead.registry.selectors import EVERYTHING, Selector, parse_fields, parse_labels
from fairlead.registry.watch import WatchSession, encode_event
from tests.harness.registry import RegistryFixture, as_ada, open_registry

ON = Selector(parse_labels("on=yes"))


def feed_of(
    api: RegistryFixture, selection: Selector = EVERYTHING, queue: int = 100, kind: str = "Gadget"
) -> WatchSession:
    declared = api.of(kind).kind
    return WatchSession(api.view, declared, "demo" if declared.namespaced else "", selection, queue)


async def begun(api: RegistryFixture, selection: Selector = EVERYTHING, queue: int = 100) -> WatchSession:
    feed = feed_of(api, selection, queue)
    await feed.start(api.view.revision)
    return feed


async def added(feed: WatchSession) -> list[Object]:
    return [orjson.loads(body) async for bodies in feed.initial_objects() for body in bodies]


def taken(feed: WatchSession) -> list[tuple[str, Object]]:
    return [(event.type, orjson.loads(event.body)) for event in feed.poll()]


def types(feed: WatchSession) -> list[str]:
    return [f"{event.type} {orjson.loads(event.body)['metadata']['name']}" for event in feed.poll()]


async def label(api: RegistryFixture, name: str, value: str | None) -> Object:
    return await api.patch("Gadget", name, lambda obj: obj["metadata"].update(labels={"on": value} if value else {}))


async def test_each_step_is_an_event_with_the_object_after_it(api: RegistryFixture) -> None:
    feed = await begun(api)
    made = await api.create("Gadget", "a", spec={"size": 1})
    changed = await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=2))
    await api.delete("Gadget", "a")
    events = taken(feed)
    assert events[:2] == [("ADDED", made), ("MODIFIED", changed)]
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert taken(feed) == []


async def test_the_last_event_shows_the_last_state_under_the_version_of_the_end(api: RegistryFixture) -> None:
    """Whoever resumes from the version of the last event they saw must not be told of the end again."""
    made = await api.create("Gadget", "a", spec={"size": 1})
    feed = await begun(api)
    await api.delete("Gadget", "a")
    ((_, last),) = taken(feed)
    assert last["metadata"].pop("resourceVersion") == str(api.view.revision)
    made["metadata"].pop("resourceVersion")
    assert last == made
    resumed = feed_of(api)
    await resumed.start(api.view.revision)
    assert taken(resumed) == []


async def test_an_object_comes_and_goes_with_what_the_selection_asks_for(api: RegistryFixture) -> None:
    feed = await begun(api, ON)
    await api.create("Gadget", "a")
    await label(api, "a", "no")
    await label(api, "a", "yes")
    await api.patch("Gadget", "a", lambda obj: obj.update(spec={"size": 5}))
    await label(api, "a", "no")
    await label(api, "a", "yes")
    await label(api, "a", None)
    await api.delete("Gadget", "a")
    assert types(feed) == ["ADDED a", "MODIFIED a", "DELETED a", "ADDED a", "DELETED a"]


async def test_an_object_that_ceases_to_match_is_shown_as_it_last_matched(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", metadata={"labels": {"on": "yes"}})
    feed = await begun(api, ON)
    changed = await label(api, "a", "no")
    ((kind, gone),) = taken(feed)
    assert kind == "DELETED"
    assert gone["metadata"]["labels"] == {"on": "yes"}
    assert gone["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]


async def test_a_selection_by_fields_follows_the_fields(api: RegistryFixture) -> None:
    selection = Selector((), parse_fields("status.phase=Ready", ("status.phase",)))
    feed = await begun(api, selection)
    await api.create("Gadget", "a")
    status = as_ada(subresource="status")
    await api.patch("Gadget", "a", lambda obj: obj.update(status={"phase": "Ready"}), status)
    await api.patch("Gadget", "a", lambda obj: obj.update(status={"phase": "Failed"}), status)
    assert types(feed) == ["ADDED a", "DELETED a"]


async def test_watchers_with_different_selections_each_see_their_own_side_of_a_step(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", metadata={"labels": {"on": "yes"}})
    feeds = [await begun(api, Selector(parse_labels(text))) for text in ("", "on=yes", "on=no", "on", "!on")]
    await label(api, "a", "no")
    assert [types(feed) for feed in feeds] == [["MODIFIED a"], ["DELETED a"], ["ADDED a"], ["MODIFIED a"], []]


async def test_an_event_is_encoded_once_for_all_who_hear_it(api: RegistryFixture) -> None:
    feeds = [await begun(api) for _ in range(3)]
    await api.create("Gadget", "a")
    first, second, third = (next(iter(feed.poll())) for feed in feeds)
    assert first is second is third
    assert first.line == encode_event("ADDED", first.body)
    assert orjson.loads(first.line) == {"type": "ADDED", "object": orjson.loads(first.body)}
    assert first.line.endswith(b"\n")
    assert first.line.count(b"\n") == 1


async def test_a_watch_of_a_namespace_hears_only_of_that_one(api: RegistryFixture) -> None:
    feed = feed_of(api, kind="ConfigMap")
    await feed.start(api.view.revision)
    await api.create("ConfigMap", "a", "default")
    await api.create("ConfigMap", "b", "demo")
    await api.create("Secret", "c", "demo")
    assert types(feed) == ["ADDED b"]


async def test_a_watch_begins_after_the_version_that_it_names(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    since = api.view.revision
    await api.create("Gadget", "b")
    await api.delete("Gadget", "a")
    feed = feed_of(api)
    await feed.start(since)
    await api.create("Gadget", "c")
    assert types(feed) == ["ADDED b", "DELETED a", "ADDED c"]


async def test_a_watch_can_begin_with_what_exists_and_misses_nothing_after_it(api: RegistryFixture) -> None:
    await api.create("Gadget", "b", metadata={"labels": {"on": "yes"}})
    await api.create("Gadget", "a")
    feed, chosen = feed_of(api), feed_of(api, ON)
    assert [each["metadata"]["name"] for each in await added(feed)] == ["a", "b"]
    assert len(await added(chosen)) == 1
    await api.delete("Gadget", "b")
    assert types(feed) == ["DELETED b"]
    assert types(chosen) == ["DELETED b"]


async def test_a_version_that_is_too_long_ago_is_expired(api: RegistryFixture) -> None:
    since = api.view.revision
    await api.create("Gadget", "a")
    api.view.discard_before(api.view.revision)
    with pytest.raises(Expired, match=f"too old resource version: {since} \\({api.view.revision}\\)"):
        await feed_of(api).start(since)


async def test_a_watch_resumes_across_a_restart_of_the_server(api: RegistryFixture) -> None:
    made = await api.create("Gadget", "a", metadata={"labels": {"on": "yes"}})
    since = api.view.revision
    await label(api, "a", "no")
    await api.create("Gadget", "b")
    async with open_registry(api.store.inner) as restarted:
        feed = feed_of(restarted, ON)
        await feed.start(since)
        ((kind, gone),) = taken(feed)
        assert (kind, gone["metadata"]["uid"]) == ("DELETED", made["metadata"]["uid"])


async def test_a_slow_watch_ends_with_an_error_and_never_with_a_gap(api: RegistryFixture) -> None:
    feed = await begun(api, queue=3)
    for name in "abcd":
        await api.create("Gadget", name)
    with pytest.raises(Expired, match="list again"):
        list(feed.poll())
    await api.create("Gadget", "e")
    with pytest.raises(Expired):
        list(feed.poll())


async def test_what_others_do_elsewhere_does_not_fill_the_queue(api: RegistryFixture) -> None:
    feed = feed_of(api, queue=1, kind="ConfigMap")
    await feed.start(api.view.revision)
    for number in range(5):
        await api.create("Gadget", f"g{number}")
        await api.create("ConfigMap", f"c{number}", "default")
    await api.create("ConfigMap", "mine")
    assert types(feed) == ["ADDED mine"]


async def test_a_bookmark_is_never_ahead_of_what_was_delivered(api: RegistryFixture) -> None:
    """At every turn of the loop: what comes after the position told must still come from a watch begun there."""
    feed = await begun(api)
    heard: list[str] = []
    positions: list[tuple[int, int]] = []

    async def follow() -> None:
        while True:
            heard.extend(types(feed))
            positions.append((feed.current_revision(), len(heard)))
            await feed.wait_for_events()

    following = asyncio.create_task(follow())
    for number in range(10):
        await asyncio.gather(api.create("Gadget", f"g{number}"), api.create("ConfigMap", f"c{number}"))
    await asyncio.sleep(1)
    following.cancel()
    assert len(heard) == 10
    assert len(positions) > 5
    for position, count in positions:
        resumed = feed_of(api)
        await resumed.start(position)
        assert heard[:count] + types(resumed) == heard
        resumed.close()


async def test_a_position_moves_on_with_what_others_write(api: RegistryFixture) -> None:
    """So that a quiet watch can be resumed although its own resource has been compacted long since."""
    feed = await begun(api)
    before = feed.current_revision()
    await api.create("ConfigMap", "c")
    assert taken(feed) == []
    assert feed.current_revision() == api.view.revision > before


async def test_a_feed_that_is_closed_hears_nothing_more(api: RegistryFixture) -> None:
    feed = await begun(api)
    feed.close()
    feed.close()
    await api.create("Gadget", "a")
    assert types(feed) == []


async def test_a_feed_that_was_never_started_can_be_closed_but_not_asked(api: RegistryFixture) -> None:
    feed = feed_of(api)
    feed.close()
    with pytest.raises(RuntimeError, match="has not been started"):
        list(feed.poll())


async def test_a_stopping_server_ends_the_watch_after_what_still_waits(api: RegistryFixture) -> None:
    feed = await begun(api)
    await api.create("Gadget", "a")
    api.view.end_watches()
    await feed.wait_for_events()
    assert feed.is_ended
    assert types(feed) == ["ADDED a"]


async def test_random_histories_replayed_from_anywhere_lead_to_what_is_there(api: RegistryFixture) -> None:
    """Informers do nothing else: a list at some version, then every event after it."""
    snapshots: list[tuple[int, dict[str, str]]] = []

    def state(api: RegistryFixture) -> dict[str, str]:
        entries = api.view.entries("management.service.sh", "gadgets")
        return {entry.key[3]: str(entry.revision) for entry in entries if ON.matches_values(entry.labels, entry.fields)}

    for name, action in _actions():
        if action == "delete":
            if api.see("Gadget", name):
                await api.delete("Gadget", name)
        elif api.see("Gadget", name) is None:
            await api.create("Gadget", name, metadata={"labels": {"on": action}})
        else:
            await label(api, name, action)
        snapshots.append((api.view.revision, state(api)))
    for since, known in snapshots:
        feed = feed_of(api, ON)
        await feed.start(since)
        for kind, obj in taken(feed):
            name = obj["metadata"]["name"]
            assert (name in known) is (kind != "ADDED")
            if kind == "DELETED":
                known.pop(name)
            else:
                known[name] = obj["metadata"]["resourceVersion"]
        assert known == state(api)


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
async def test_whatever_is_selected_live_events_lead_to_what_is_there(
    api: RegistryFixture, selection: Selector
) -> None:
    """However a watcher is found, it hears of all that concerns it, and each object comes before it goes."""
    feed = await begun(api, selection)
    known: dict[str, str] = {}
    for number, (name, action) in enumerate(_actions()):
        if action == "delete":
            if api.see("Gadget", name):
                await api.delete("Gadget", name)
        elif api.see("Gadget", name) is None:
            spec = {"color": "red" if number % 2 else "blue"}
            await api.create("Gadget", name, metadata={"labels": {"on": action}}, spec=spec)
        else:
            await label(api, name, action if number % 4 else None)
        for kind, obj in taken(feed):
            told = obj["metadata"]["name"]
            assert (told in known) is (kind != "ADDED")
            if kind == "DELETED":
                known.pop(told)
            else:
                known[told] = obj["metadata"]["resourceVersion"]
        entries = api.view.entries("management.service.sh", "gadgets")
        assert known == {entry.key[3]: str(entry.revision) for entry in entries if selection.matches(entry)}


class Seeing:
    """Sees everything, though its permissions may be told to have changed."""

    def __init__(self) -> None:
        self.changes = 0

    def allows(self, entry: object) -> bool:
        return True

    def generation(self) -> object:
        return self.changes


async def test_permissions_that_change_nothing_do_not_end_a_watch_that_selects(api: RegistryFixture) -> None:
    """It has to know of all objects that can be seen, those that it does not select among them."""
    sieve = Seeing()
    feed = WatchSession(api.view, api.of("Gadget").kind, "", ON, 100, sieve)
    await feed.start(api.view.revision)
    await api.create("Gadget", "a", metadata={"labels": {"on": "no"}})
    sieve.changes += 1
    assert types(feed) == []
    assert feed.is_visibility_check_due
    await feed.check_visibility()
    await label(api, "a", "yes")
    assert types(feed) == ["ADDED a"]


def _actions() -> Iterator[tuple[str, str]]:
    """A fixed walk through every order of three actions on two objects."""
    actions = ("yes", "no", "delete")
    for first in actions:
        for second in actions:
            for third in actions:
                yield from (("a", first), ("b", second), ("a", third))
