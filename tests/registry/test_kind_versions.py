"""One store, two API groups: what is written in one form is read in the other, and nothing is kept twice."""

import asyncio

import orjson
import pytest

from fairlead.core.errors import AlreadyExists, Invalid, NotFound
from fairlead.core.objects import Object, deep_copy
from fairlead.kinds import KINDS
from fairlead.kinds.core.event import EVENT
from fairlead.kinds.core.event_v1 import EVENT_V1
from fairlead.registry.list import ListQuery, encode_list, list_entries
from fairlead.registry.resource import Resource
from fairlead.registry.selectors import EVERYTHING, Selector, parse_fields
from fairlead.registry.watch import WatchSession
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.registry import ADA, NAMESPACE, RegistryFixture, as_ada
from tests.kinds.core.test_event_v1 import ABOUT, SERIES, event

V1 = "events.k8s.io/v1"


@pytest.fixture
def new(api: RegistryFixture) -> Resource:
    return api.registry.resource_for(EVENT_V1)


@pytest.fixture
def core(api: RegistryFixture) -> Resource:
    return api.registry.resource_for(EVENT)


async def make(resource: Resource, body: Object) -> Object:
    made: Object = orjson.loads(await resource.create(body, NAMESPACE, as_ada()))
    return made


async def read(resource: Resource, name: str = "e") -> Object:
    seen: Object = orjson.loads((await resource.get(NAMESPACE, name)).body)
    return seen


async def test_an_object_is_there_in_both_forms(new: Resource, core: Resource) -> None:
    made = await make(new, event())
    assert (made["apiVersion"], made["note"], made["regarding"]) == (V1, "it began", ABOUT)
    seen = await read(core)
    assert (seen["apiVersion"], seen["message"], seen["involvedObject"]) == ("v1", "it began", ABOUT)
    assert seen["metadata"] == made["metadata"]
    assert "note" not in seen and "message" not in made
    assert await read(new) == made


async def test_it_is_stored_once_and_goes_from_both(api: RegistryFixture, new: Resource, core: Resource) -> None:
    await make(new, event())
    ((changes, _),) = api.store.commits[-1:]
    assert [change.key for change in changes] == [("", "events", NAMESPACE, "e")]
    deleted = await new.delete(NAMESPACE, "e", DeleteOptions(), as_ada())
    assert orjson.loads(deleted.body)["apiVersion"] == V1
    with pytest.raises(NotFound):
        await core.get(NAMESPACE, "e")


async def test_errors_name_the_group_that_was_asked(new: Resource, core: Resource) -> None:
    await make(core, {"metadata": {"name": "e"}, "involvedObject": ABOUT})
    with pytest.raises(AlreadyExists, match=r'events\.events\.k8s\.io "e" already exists'):
        await make(new, event())
    with pytest.raises(NotFound, match=r'events\.events\.k8s\.io "x" not found'):
        await new.get(NAMESPACE, "x")


async def test_a_change_is_made_in_the_form_that_was_asked_for(new: Resource, core: Resource) -> None:
    await make(new, event())
    changed = await new.modify(NAMESPACE, "e", lambda old: {**old, "series": SERIES}, as_ada())
    assert orjson.loads(changed)["series"] == SERIES
    assert (await read(core))["series"] == SERIES
    with pytest.raises(Invalid, match=r"message: .* field is immutable"):
        await new.modify(NAMESPACE, "e", lambda old: {**old, "note": "other"}, as_ada())
    await core.modify(NAMESPACE, "e", lambda old: {**old, "message": "other"}, as_ada())
    assert (await read(new))["note"] == "other"


async def test_a_write_without_effect_keeps_the_version(new: Resource) -> None:
    made = await make(new, event())
    again = orjson.loads(await new.modify(NAMESPACE, "e", deep_copy, as_ada()))
    assert again == made


async def test_fields_recorded_in_one_group_are_dropped_by_a_change_in_the_other(new: Resource, core: Resource) -> None:
    """So does a kube-apiserver: their names mean nothing in the other group."""
    made = await make(new, event())
    assert [entry["apiVersion"] for entry in made["metadata"]["managedFields"]] == [V1]
    assert "f:note" in made["metadata"]["managedFields"][0]["fieldsV1"]
    changed = orjson.loads(await core.modify(NAMESPACE, "e", lambda old: {**old, "message": "m"}, as_ada()))
    assert [(entry["apiVersion"], entry["fieldsV1"]) for entry in changed["metadata"]["managedFields"]] == [
        ("v1", {"f:message": {}})
    ]


async def test_what_an_event_shows_although_it_is_empty_belongs_to_nobody(new: Resource, core: Resource) -> None:
    made = await make(new, event())
    assert made["deprecatedSource"] == {} and made["deprecatedFirstTimestamp"] is None
    assert made["metadata"]["managedFields"][0]["fieldsV1"].keys() == {
        f"f:{field}" for field in event() if field not in ("apiVersion", "kind", "metadata")
    }
    older = {"metadata": {"name": "older"}, "involvedObject": ABOUT, "source": {"component": "c"}}
    assert (await make(core, older))["metadata"]["managedFields"][0]["fieldsV1"] == {
        "f:involvedObject": {},
        "f:source": {"f:component": {}},
    }


async def test_apply_works_in_both_groups_without_conflicts_between_them(new: Resource, core: Resource) -> None:
    config = event()
    applying = WriteOptions(ADA, "a", is_apply=True)
    body, created = await new.apply(config, NAMESPACE, "e", applying)
    assert created and orjson.loads(body)["note"] == "it began"
    other = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "message": "mine"}
    body, created = await core.apply(other, NAMESPACE, "e", WriteOptions(ADA, "b", is_apply=True))
    assert not created
    applied = orjson.loads(body)
    assert applied["message"] == "mine"
    assert [entry["manager"] for entry in applied["metadata"]["managedFields"]] == ["b"]


async def test_lists_are_converted_after_they_are_selected(api: RegistryFixture, new: Resource, core: Resource) -> None:
    await make(core, {"metadata": {"name": "old"}, "involvedObject": ABOUT, "reason": "Old"})
    await make(new, event())
    chosen = Selector(fields=parse_fields("involvedObject.name=x,reason=Old", ("involvedObject.name", "reason")))
    listed = await list_entries(api.view, EVENT_V1, NAMESPACE, ListQuery(chosen))
    body = orjson.loads(await encode_list(EVENT_V1, listed))
    assert (body["kind"], body["apiVersion"]) == ("EventList", V1)
    ((item),) = body["items"]
    assert (item["metadata"]["name"], item["regarding"]) == ("old", ABOUT)
    assert "apiVersion" not in item
    everything = await list_entries(api.view, EVENT_V1, NAMESPACE, ListQuery(limit=1))
    assert everything.continue_token and len(list(everything.entries)) == 1


async def test_watchers_of_both_groups_hear_the_same_in_their_own_form(
    api: RegistryFixture, new: Resource, core: Resource
) -> None:
    feeds = [WatchSession(api.view, kind, NAMESPACE, EVERYTHING, 10) for kind in (EVENT_V1, EVENT_V1, EVENT)]
    for feed in feeds:
        await feed.start(api.view.revision)
    await make(core, {"metadata": {"name": "e"}, "involvedObject": ABOUT, "message": "m"})
    await core.delete(NAMESPACE, "e", DeleteOptions(), as_ada())
    one, two, theirs = (feed.poll() for feed in feeds)
    assert [event.type for event in one] == [event.type for event in theirs] == ["ADDED", "DELETED"]
    assert [orjson.loads(event.body)["note"] for event in one] == ["m", "m"]
    assert [orjson.loads(event.body)["message"] for event in theirs] == ["m", "m"]
    assert all(ours is others for ours, others in zip(one, two, strict=True)), "an event is encoded once for all"
    for feed in feeds:
        feed.close()


async def test_a_watch_begins_with_what_is_there_in_its_form(api: RegistryFixture, new: Resource) -> None:
    await make(new, event())
    feed = WatchSession(api.view, EVENT_V1, NAMESPACE, EVERYTHING, 10)
    ((added,),) = [events async for events in feed.initial_objects()]
    assert orjson.loads(added)["apiVersion"] == V1 and b'"note"' in added
    feed.close()


async def test_writers_of_both_groups_do_not_lose_each_others_changes(new: Resource, core: Resource) -> None:
    await make(new, event())

    async def label(resource: Resource, number: int) -> None:
        def edit(old: Object) -> Object:
            labels = {**old["metadata"].get("labels", {}), f"l{number}": "yes"}
            return {**old, "metadata": {**old["metadata"], "labels": labels}}

        await resource.modify(NAMESPACE, "e", edit, as_ada())

    await asyncio.gather(*(label(new if number % 2 else core, number) for number in range(10)))
    assert len((await read(new))["metadata"]["labels"]) == 10


def test_a_namespace_is_emptied_of_each_kind_once(api: RegistryFixture) -> None:
    kinds = [resource.kind for resource in api.registry.namespaced_resources()]
    assert EVENT in kinds and EVENT_V1 not in kinds


def test_no_kind_with_secrets_has_a_second_form() -> None:
    """What is hidden in one form would have to be hidden in the other, under another name."""
    assert [kind.name for kind in KINDS if kind.conversion is not None and kind.conversion.stored_kind.sensitive] == []
