"""registry/list.py: selectors, pagination from one snapshot, and the meaning of resourceVersion."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from fairlead.core.concurrency import CURRENT_ACCOUNT, MAX_SLICE_BYTES, Account, iter_slices
from fairlead.core.errors import BadRequest, Expired, Timeout, Unavailable
from fairlead.core.objects import Object
from fairlead.registry import list as listing
from fairlead.registry.list import (
    WAIT_TIMEOUT_SECONDS,
    ContinueExpired,
    ContinueToken,
    ListQuery,
    encode_list,
    list_entries,
    list_metadata,
    map_entries,
)
from fairlead.registry.selectors import Selector, parse_fields, parse_labels
from fairlead.registry.write_options import ListPage
from fairlead.storage.contract import Write
from fairlead.storage.view.view import ChunkSlice
from tests.harness.event_loop_turns import TurnCounter
from tests.harness.registry import RegistryFixture


async def list_kind(api: RegistryFixture, kind: str = "Gadget", namespace: str = "", **query: Any) -> ListPage:
    return await list_entries(api.view, api.resource(kind).kind, namespace, ListQuery(**query))


def names_of(page: ListPage) -> list[str]:
    return [entry.key[3] for entry in page.entries]


async def create_gadgets(api: RegistryFixture, *names: str) -> None:
    for name in names:
        await api.create("Gadget", name, spec={"size": 0})


async def test_a_list_has_all_objects_in_the_order_of_names(api: RegistryFixture) -> None:
    await create_gadgets(api, "b", "c", "a")
    page = await list_kind(api)
    assert names_of(page) == ["a", "b", "c"]
    assert (page.revision, page.continue_token, page.remaining_count) == (api.view.revision, "", None)


async def test_a_list_of_a_namespace_has_its_objects_only_and_without_one_all(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "b", "demo")
    await api.create("ConfigMap", "a", "default")
    await api.create("ConfigMap", "a", "demo")
    assert names_of(await list_kind(api, "ConfigMap", "demo")) == ["a", "b"]
    assert names_of(await list_kind(api, "ConfigMap")) == ["a", "a", "b"]
    assert names_of(await list_kind(api, "ConfigMap", "nowhere")) == []


async def test_selectors_match_labels_and_declared_fields(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"color": "red"}, metadata={"labels": {"x": "1"}})
    await api.create("Gadget", "b", spec={"color": "red"})
    await api.create("Gadget", "c", spec={}, metadata={"labels": {"x": "1"}})
    fields = ("metadata.name", "spec.color")
    for labels, fields_text, expected in (
        ("x=1", "", ["a", "c"]),
        ("!x", "", ["b"]),
        ("", "spec.color=red", ["a", "b"]),
        ("", "spec.color=", ["c"]),
        ("x", "spec.color=red", ["a"]),
        ("", "metadata.name=b", ["b"]),
    ):
        selector = Selector(parse_labels(labels), parse_fields(fields_text, fields))
        assert names_of(await list_kind(api, selector=selector)) == expected


async def test_all_pages_show_one_snapshot_despite_writes_between_them(api: RegistryFixture) -> None:
    await create_gadgets(api, *"abcdefg")
    page = await list_kind(api, limit=2)
    seen, remaining = names_of(page), [page.remaining_count]
    for removed, new in (("c", "bb"), ("a", "ee"), ("g", "h")):
        await api.delete("Gadget", removed)
        await create_gadgets(api, new)
        await api.patch("Gadget", "d", lambda obj: obj["spec"].update(size=obj["spec"]["size"] + 1))
        page = await list_kind(api, limit=2, continue_token=page.continue_token)
        seen += names_of(page)
        remaining.append(page.remaining_count)
        for entry in page.entries:
            assert orjson.loads(entry.body)["spec"]["size"] == 0
    assert seen == list("abcdefg")
    assert remaining == [5, 3, 1, None]
    assert page.continue_token == ""


async def test_every_page_has_the_resource_version_of_the_snapshot_for_a_watch(
    api: RegistryFixture,
) -> None:
    await create_gadgets(api, *"abc")
    first = await list_kind(api, limit=2)
    await create_gadgets(api, "aa")
    second = await list_kind(api, limit=2, continue_token=first.continue_token)
    assert second.revision == first.revision < api.view.revision


async def test_pages_are_ordered_by_namespace_and_can_be_limited_to_one(api: RegistryFixture) -> None:
    for namespace in ("demo", "default"):
        for name in "ab":
            await api.create("ConfigMap", name, namespace)
    for namespace, expected in (("", ["default/a", "default/b", "demo/a", "demo/b"]), ("demo", ["demo/a", "demo/b"])):
        seen, token = [], ""
        while True:
            page = await list_kind(api, "ConfigMap", namespace, limit=1, continue_token=token)
            seen += ["/".join(entry.key[2:]) for entry in page.entries]
            token = page.continue_token
            if not token:
                break
        assert seen == expected


async def test_pages_with_a_selector_are_full_and_have_no_remaining_count(api: RegistryFixture) -> None:
    for number in range(9):
        await api.create("Gadget", f"g{number}", metadata={"labels": {"odd": str(number % 2)}})
    selector = Selector(parse_labels("odd=1"))
    first = await list_kind(api, limit=3, selector=selector)
    assert (names_of(first), first.remaining_count) == (["g1", "g3", "g5"], None)
    second = await list_kind(api, limit=3, selector=selector, continue_token=first.continue_token)
    assert (names_of(second), second.continue_token) == (["g7"], "")


async def test_the_last_page_has_no_continue_token(api: RegistryFixture) -> None:
    await create_gadgets(api, *"ab")
    assert (await list_kind(api, limit=2)).continue_token == ""
    assert (await list_kind(api, limit=5)).continue_token == ""
    assert names_of(await list_kind(api, limit=0)) == ["a", "b"]


async def test_an_expired_continue_token_comes_with_one_for_an_inconsistent_list(api: RegistryFixture) -> None:
    await create_gadgets(api, *"abcd")
    page = await list_kind(api, limit=2)
    await api.delete("Gadget", "c")
    await create_gadgets(api, "e")
    api.view.discard_before(api.view.revision)
    with pytest.raises(ContinueExpired) as caught:
        await list_kind(api, limit=2, continue_token=page.continue_token)
    next_page = await list_kind(api, limit=1, continue_token=caught.value.continue_token)
    assert names_of(next_page) == ["d"]
    assert next_page.revision == api.view.revision
    await api.delete("Gadget", "e")
    assert names_of(await list_kind(api, limit=1, continue_token=next_page.continue_token)) == ["e"], (
        "lists from the new token are consistent again"
    )


@asynccontextmanager
async def create_history(api: RegistryFixture) -> AsyncIterator[list[int]]:
    """Creates three gadgets; yields the revision after each and compacts the first."""
    revisions = []
    for name in "abc":
        await create_gadgets(api, name)
        revisions.append(api.view.revision)
    api.view.discard_before(revisions[1])
    yield revisions


async def test_an_exact_resource_version_lists_that_snapshot(api: RegistryFixture) -> None:
    async with create_history(api) as (_, second, third):
        page = await list_kind(api, version=second, exact=True)
        assert (names_of(page), page.revision) == (["a", "b"], second)
        assert names_of(await list_kind(api, version=third, exact=True)) == ["a", "b", "c"]


async def test_a_compacted_version_is_expired_if_exact_and_accepted_if_a_minimum(
    api: RegistryFixture,
) -> None:
    async with create_history(api) as (first, _, third):
        with pytest.raises(Expired) as caught:
            await list_kind(api, version=first, exact=True)
        assert not isinstance(caught.value, ContinueExpired), (
            "without a continue token there is no page to continue from"
        )
        page = await list_kind(api, version=first)
        assert (names_of(page), page.revision) == (["a", "b", "c"], third)


@pytest.mark.parametrize("version", [None, 0, 1])
async def test_without_a_resource_version_a_list_shows_the_latest_state(
    api: RegistryFixture, version: int | None
) -> None:
    await create_gadgets(api, "a")
    assert names_of(await list_kind(api, version=version)) == ["a"]


async def test_a_list_waits_for_a_resource_version_that_comes_soon(api: RegistryFixture) -> None:
    pending_list = asyncio.create_task(list_kind(api, version=api.view.revision + 1))
    await asyncio.sleep(WAIT_TIMEOUT_SECONDS / 2)
    assert not pending_list.done()
    await create_gadgets(api, "a")
    assert names_of(await pending_list) == ["a"]


@pytest.mark.parametrize("exact", [True, False])
async def test_a_resource_version_that_does_not_come_is_too_large(api: RegistryFixture, exact: bool) -> None:
    future = api.view.revision + 1_000
    with pytest.raises(Timeout, match=f"Too large resource version: {future}, current: {api.view.revision}") as caught:
        await list_kind(api, version=future, exact=exact)
    assert [problem.reason for problem in caught.value.details.problems] == ["ResourceVersionTooLarge"]
    assert caught.value.details.retry_after == 1


async def test_a_view_that_lags_behind_does_not_report_a_version_the_client_did_not_send(
    api: RegistryFixture,
) -> None:
    await api.view.stop()
    await api.store.inner.commit([Write(("other.io", "things", "", "x"), b'{"metadata":{}}', 0)])
    with pytest.raises((Timeout, Unavailable)) as caught:
        await list_kind(api)
    assert "None" not in caught.value.message


async def test_a_continue_token_of_a_future_revision_is_not_served_from_another_snapshot(
    api: RegistryFixture,
) -> None:
    """Another replica may have issued it, or the store may have been restored from a backup."""
    await create_gadgets(api, *"ab")
    future = api.view.revision + 1_000
    with pytest.raises((Timeout, Expired)):
        await list_kind(api, continue_token=ContinueToken(future, ("", "a")).encode())


async def test_continue_token_and_resource_version_exclude_each_other(api: RegistryFixture) -> None:
    token = ContinueToken(api.view.revision, ("", "")).encode()
    with pytest.raises(BadRequest, match="specifying resource version is not allowed when using continue"):
        await list_kind(api, continue_token=token, version=5)
    await list_kind(api, continue_token=token, version=0)


async def test_a_list_writes_nothing_to_the_store(api: RegistryFixture) -> None:
    revision = await api.store.revision()
    await list_kind(api, limit=1)
    assert await api.store.revision() == revision


async def decode_list(api: RegistryFixture, kind: str, page: ListPage) -> Object:
    value: Object = orjson.loads(await encode_list(api.resource(kind).kind, page))
    return value


async def test_the_list_body_contains_the_objects_as_served(api: RegistryFixture) -> None:
    await create_gadgets(api, *"ab")
    page = await list_kind(api, limit=1)
    body = await decode_list(api, "Gadget", page)
    assert (body["kind"], body["apiVersion"]) == ("GadgetList", "management.service.sh/v1")
    assert body["metadata"] == {
        "resourceVersion": str(page.revision),
        "continue": page.continue_token,
        "remainingItemCount": 1,
    }
    assert body["items"] == [api.get("Gadget", "a")]
    assert await decode_list(api, "Gadget", ListPage([], 5)) == {
        "kind": "GadgetList",
        "apiVersion": "management.service.sh/v1",
        "metadata": {"resourceVersion": "5"},
        "items": [],
    }


async def test_items_of_core_kinds_have_no_type_meta(api: RegistryFixture) -> None:
    created = await api.create("ConfigMap", "a", data={"x": "1"})
    await api.create("ConfigMap", "b")
    items = (await decode_list(api, "ConfigMap", await list_kind(api, "ConfigMap")))["items"]
    assert items[0] == {name: value for name, value in created.items() if name not in ("kind", "apiVersion")}
    assert [item["metadata"]["name"] for item in items] == ["a", "b"]


def test_list_metadata_omits_empty_fields() -> None:
    assert list_metadata(ListPage([], 5)) == {"resourceVersion": "5"}


async def test_a_list_with_many_requirements_yields_to_the_event_loop_more_often(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.registry.list.MAX_ENTRIES_PER_STEP", 20)
    await create_gadgets(api, *(f"g{number:02}" for number in range(12)))
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("fairlead.registry.list.asyncio.sleep", sleep)
    for terms, pause_count in ((3, 0), (40, 12)):
        labels = parse_labels(",".join(f"label-{number}!=x" for number in range(terms)))
        pauses.clear()
        assert len(names_of(await list_kind(api, selector=Selector(labels)))) == 12
        assert len(pauses) == pause_count


async def test_a_large_list_is_encoded_in_slices(api: RegistryFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list without a limit joins all objects: other tasks get their turns meanwhile."""
    monkeypatch.setattr(listing, "MAX_JOIN_BYTES", 2_000)
    await create_gadgets(api, *(f"g{number:03}" for number in range(40)))
    for page in (await list_kind(api), ListPage(list((await list_kind(api)).entries), 5)):
        async with TurnCounter() as turns:
            body = await decode_list(api, "Gadget", page)
        assert [item["metadata"]["name"] for item in body["items"]] == names_of(page)
        if not isinstance(page.entries, ChunkSlice):  # a ChunkSlice has its bytes ready
            assert turns.count >= 10


class CountingSlicer:
    """Iterates over slices and counts concurrent iterations."""

    def __init__(self, at_once: list[int]) -> None:
        self._at_once = at_once
        self._running = 0

    async def iter_slices(self, items: Any, size: Any, most: int) -> AsyncIterator[Any]:
        self._running += 1
        async for some in iter_slices(items, size, most):
            self._at_once.append(self._running)
            yield some
        self._running -= 1


async def test_large_lists_of_one_user_are_encoded_one_at_a_time(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred at once would use a hundred times the memory before any is rejected."""
    monkeypatch.setattr(listing, "MAX_JOIN_BYTES", 2_000)
    await create_gadgets(api, *(f"g{number:03}" for number in range(40)))
    page = ListPage(list((await list_kind(api)).entries), 5)
    at_once: list[int] = []
    slicer = CountingSlicer(at_once)
    monkeypatch.setattr(listing, "iter_slices", slicer.iter_slices)
    CURRENT_ACCOUNT.set(Account())
    async with TurnCounter():  # keeps the virtual clock from advancing while a thread works
        bodies = await asyncio.gather(*(decode_list(api, "Gadget", page) for _ in range(8)))
    assert all(names_of(page) == [item["metadata"]["name"] for item in body["items"]] for body in bodies)
    assert max(at_once) == 1


async def test_entries_are_mapped_in_slices(api: RegistryFixture) -> None:
    await create_gadgets(api, *(f"g{number:03}" for number in range(5)))
    large = [entry.with_body(b"x" * MAX_SLICE_BYTES) for entry in (await list_kind(api)).entries]
    async with TurnCounter() as turns:
        mapped = await map_entries(large, lambda entry: entry.with_body(entry.body[:1]))
    assert [entry.body for entry in mapped] == [b"x"] * 5
    assert turns.count >= 4
