"""One stored kind served in two API groups: events in the core group and in events.k8s.io."""

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
from tests.harness.kind_examples import INVOLVED_OBJECT, SERIES, build_event
from tests.harness.registry import ADA, NAMESPACE, RegistryFixture, write_options

V1 = "events.k8s.io/v1"


@pytest.fixture
def events_v1(api: RegistryFixture) -> Resource:
    return api.registry.resource_for(EVENT_V1)


@pytest.fixture
def core_events(api: RegistryFixture) -> Resource:
    return api.registry.resource_for(EVENT)


async def create_event(resource: Resource, body: Object) -> Object:
    created: Object = orjson.loads(await resource.create(body, NAMESPACE, write_options()))
    return created


async def get_event(resource: Resource, name: str = "e") -> Object:
    stored: Object = orjson.loads((await resource.get(NAMESPACE, name)).body)
    return stored


async def test_an_event_can_be_read_in_both_groups(events_v1: Resource, core_events: Resource) -> None:
    created = await create_event(events_v1, build_event())
    assert (created["apiVersion"], created["note"], created["regarding"]) == (V1, "it began", INVOLVED_OBJECT)
    stored = await get_event(core_events)
    assert (stored["apiVersion"], stored["message"], stored["involvedObject"]) == ("v1", "it began", INVOLVED_OBJECT)
    assert stored["metadata"] == created["metadata"]
    assert "note" not in stored and "message" not in created
    assert await get_event(events_v1) == created


async def test_an_event_is_stored_once_and_deleted_from_both_groups(
    api: RegistryFixture, events_v1: Resource, core_events: Resource
) -> None:
    await create_event(events_v1, build_event())
    ((changes, _),) = api.store.commits[-1:]
    assert [change.key for change in changes] == [("", "events", NAMESPACE, "e")]
    deleted = await events_v1.delete(NAMESPACE, "e", DeleteOptions(), write_options())
    assert orjson.loads(deleted.body)["apiVersion"] == V1
    with pytest.raises(NotFound):
        await core_events.get(NAMESPACE, "e")


async def test_errors_name_the_requested_group(events_v1: Resource, core_events: Resource) -> None:
    await create_event(core_events, {"metadata": {"name": "e"}, "involvedObject": INVOLVED_OBJECT})
    with pytest.raises(AlreadyExists, match=r'events\.events\.k8s\.io "e" already exists'):
        await create_event(events_v1, build_event())
    with pytest.raises(NotFound, match=r'events\.events\.k8s\.io "x" not found'):
        await events_v1.get(NAMESPACE, "x")


async def test_an_update_uses_the_form_of_the_requested_group(events_v1: Resource, core_events: Resource) -> None:
    await create_event(events_v1, build_event())
    changed = await events_v1.modify(NAMESPACE, "e", lambda old: {**old, "series": SERIES}, write_options())
    assert orjson.loads(changed)["series"] == SERIES
    assert (await get_event(core_events))["series"] == SERIES
    with pytest.raises(Invalid, match=r"message: .* field is immutable"):
        await events_v1.modify(NAMESPACE, "e", lambda old: {**old, "note": "other"}, write_options())
    await core_events.modify(NAMESPACE, "e", lambda old: {**old, "message": "other"}, write_options())
    assert (await get_event(events_v1))["note"] == "other"


async def test_a_write_without_changes_keeps_the_resource_version(events_v1: Resource) -> None:
    created = await create_event(events_v1, build_event())
    again = orjson.loads(await events_v1.modify(NAMESPACE, "e", deep_copy, write_options()))
    assert again == created


async def test_managed_fields_of_one_group_are_dropped_by_an_update_in_the_other(
    events_v1: Resource, core_events: Resource
) -> None:
    """As in kube-apiserver: field names of one group mean nothing in the other."""
    created = await create_event(events_v1, build_event())
    assert [entry["apiVersion"] for entry in created["metadata"]["managedFields"]] == [V1]
    assert "f:note" in created["metadata"]["managedFields"][0]["fieldsV1"]
    changed = orjson.loads(
        await core_events.modify(NAMESPACE, "e", lambda old: {**old, "message": "m"}, write_options())
    )
    assert [(entry["apiVersion"], entry["fieldsV1"]) for entry in changed["metadata"]["managedFields"]] == [
        ("v1", {"f:message": {}})
    ]


async def test_empty_fields_added_by_the_server_have_no_manager(events_v1: Resource, core_events: Resource) -> None:
    created = await create_event(events_v1, build_event())
    assert created["deprecatedSource"] == {} and created["deprecatedFirstTimestamp"] is None
    assert created["metadata"]["managedFields"][0]["fieldsV1"].keys() == {
        f"f:{field}" for field in build_event() if field not in ("apiVersion", "kind", "metadata")
    }
    older = {"metadata": {"name": "older"}, "involvedObject": INVOLVED_OBJECT, "source": {"component": "c"}}
    assert (await create_event(core_events, older))["metadata"]["managedFields"][0]["fieldsV1"] == {
        "f:involvedObject": {},
        "f:source": {"f:component": {}},
    }


async def test_apply_works_in_both_groups_without_conflicts_between_them(
    events_v1: Resource, core_events: Resource
) -> None:
    config = build_event()
    options = WriteOptions(ADA, "a", is_apply=True)
    body, created = await events_v1.apply(config, NAMESPACE, "e", options)
    assert created and orjson.loads(body)["note"] == "it began"
    other = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "message": "mine"}
    body, created = await core_events.apply(other, NAMESPACE, "e", WriteOptions(ADA, "b", is_apply=True))
    assert not created
    applied = orjson.loads(body)
    assert applied["message"] == "mine"
    assert [entry["manager"] for entry in applied["metadata"]["managedFields"]] == ["b"]


async def test_lists_are_converted_after_selectors_are_applied(
    api: RegistryFixture, events_v1: Resource, core_events: Resource
) -> None:
    await create_event(core_events, {"metadata": {"name": "old"}, "involvedObject": INVOLVED_OBJECT, "reason": "Old"})
    await create_event(events_v1, build_event())
    selector = Selector(fields=parse_fields("involvedObject.name=x,reason=Old", ("involvedObject.name", "reason")))
    page = await list_entries(api.view, EVENT_V1, NAMESPACE, ListQuery(selector))
    body = orjson.loads(await encode_list(EVENT_V1, page))
    assert (body["kind"], body["apiVersion"]) == ("EventList", V1)
    ((item),) = body["items"]
    assert (item["metadata"]["name"], item["regarding"]) == ("old", INVOLVED_OBJECT)
    assert "apiVersion" not in item
    first_page = await list_entries(api.view, EVENT_V1, NAMESPACE, ListQuery(limit=1))
    assert first_page.continue_token and len(list(first_page.entries)) == 1


async def test_watches_of_both_groups_get_the_same_events_in_their_own_form(
    api: RegistryFixture, events_v1: Resource, core_events: Resource
) -> None:
    watches = [WatchSession(api.view, kind, NAMESPACE, EVERYTHING, 10) for kind in (EVENT_V1, EVENT_V1, EVENT)]
    for watch in watches:
        await watch.start(api.view.revision)
    await create_event(core_events, {"metadata": {"name": "e"}, "involvedObject": INVOLVED_OBJECT, "message": "m"})
    await core_events.delete(NAMESPACE, "e", DeleteOptions(), write_options())
    first_events, second_events, core_view = (watch.poll() for watch in watches)
    assert [event.type for event in first_events] == [event.type for event in core_view] == ["ADDED", "DELETED"]
    assert [orjson.loads(event.body)["note"] for event in first_events] == ["m", "m"]
    assert [orjson.loads(event.body)["message"] for event in core_view] == ["m", "m"]
    assert all(first is second for first, second in zip(first_events, second_events, strict=True)), (
        "an event is encoded once for all watches"
    )
    for watch in watches:
        watch.close()


async def test_a_watch_sends_initial_objects_in_the_requested_form(api: RegistryFixture, events_v1: Resource) -> None:
    await create_event(events_v1, build_event())
    watch = WatchSession(api.view, EVENT_V1, NAMESPACE, EVERYTHING, 10)
    ((added,),) = [events async for events in watch.initial_objects()]
    assert orjson.loads(added)["apiVersion"] == V1 and b'"note"' in added
    watch.close()


async def test_concurrent_writes_in_both_groups_lose_no_changes(events_v1: Resource, core_events: Resource) -> None:
    await create_event(events_v1, build_event())

    async def label(resource: Resource, number: int) -> None:
        def edit(old: Object) -> Object:
            labels = {**old["metadata"].get("labels", {}), f"l{number}": "yes"}
            return {**old, "metadata": {**old["metadata"], "labels": labels}}

        await resource.modify(NAMESPACE, "e", edit, write_options())

    await asyncio.gather(*(label(events_v1 if number % 2 else core_events, number) for number in range(10)))
    assert len((await get_event(events_v1))["metadata"]["labels"]) == 10


def test_namespace_deletion_visits_each_stored_kind_once(api: RegistryFixture) -> None:
    kinds = [resource.kind for resource in api.registry.namespaced_resources()]
    assert EVENT in kinds and EVENT_V1 not in kinds


def test_no_kind_with_sensitive_fields_has_a_second_form() -> None:
    """Its fields would have to be hidden in the second form, too, under other names."""
    assert [kind.name for kind in KINDS if kind.conversion is not None and kind.conversion.stored_kind.sensitive] == []
