"""Lists: what is selected, pages of one snapshot while others write, and what each resourceVersion means."""

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
from tests.harness.event_loop_turns import Turns
from tests.harness.registry import RegistryFixture


async def listed(api: RegistryFixture, kind: str = "Gadget", namespace: str = "", **query: Any) -> ListPage:
    return await list_entries(api.view, api.of(kind).kind, namespace, ListQuery(**query))


def names(found: ListPage) -> list[str]:
    return [entry.key[3] for entry in found.entries]


async def make(api: RegistryFixture, *made: str) -> None:
    for name in made:
        await api.create("Gadget", name, spec={"size": 0})


async def test_a_list_holds_everything_in_the_order_of_names(api: RegistryFixture) -> None:
    await make(api, "b", "c", "a")
    found = await listed(api)
    assert names(found) == ["a", "b", "c"]
    assert (found.revision, found.continue_token, found.remaining_count) == (api.view.revision, "", None)


async def test_a_list_of_one_namespace_holds_that_one_and_of_none_all(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "b", "demo")
    await api.create("ConfigMap", "a", "default")
    await api.create("ConfigMap", "a", "demo")
    assert names(await listed(api, "ConfigMap", "demo")) == ["a", "b"]
    assert names(await listed(api, "ConfigMap")) == ["a", "a", "b"]
    assert names(await listed(api, "ConfigMap", "nowhere")) == []


async def test_selectors_look_at_labels_and_at_declared_fields(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"color": "red"}, metadata={"labels": {"x": "1"}})
    await api.create("Gadget", "b", spec={"color": "red"})
    await api.create("Gadget", "c", spec={}, metadata={"labels": {"x": "1"}})
    fields = ("metadata.name", "spec.color")
    for labels, selector, expected in (
        ("x=1", "", ["a", "c"]),
        ("!x", "", ["b"]),
        ("", "spec.color=red", ["a", "b"]),
        ("", "spec.color=", ["c"]),
        ("x", "spec.color=red", ["a"]),
        ("", "metadata.name=b", ["b"]),
    ):
        selection = Selector(parse_labels(labels), parse_fields(selector, fields))
        assert names(await listed(api, selector=selection)) == expected


async def test_pages_show_one_snapshot_whatever_is_written_between_them(api: RegistryFixture) -> None:
    await make(api, *"abcdefg")
    page = await listed(api, limit=2)
    seen, remaining = names(page), [page.remaining_count]
    for gone, new in (("c", "bb"), ("a", "ee"), ("g", "h")):
        await api.delete("Gadget", gone)
        await make(api, new)
        await api.patch("Gadget", "d", lambda obj: obj["spec"].update(size=obj["spec"]["size"] + 1))
        page = await listed(api, limit=2, continue_token=page.continue_token)
        seen += names(page)
        remaining.append(page.remaining_count)
        for entry in page.entries:
            assert orjson.loads(entry.body)["spec"]["size"] == 0
    assert seen == list("abcdefg")
    assert remaining == [5, 3, 1, None]
    assert page.continue_token == ""


async def test_every_page_tells_the_version_of_the_snapshot_so_that_a_watch_can_begin_there(
    api: RegistryFixture,
) -> None:
    await make(api, *"abc")
    first = await listed(api, limit=2)
    await make(api, "aa")
    second = await listed(api, limit=2, continue_token=first.continue_token)
    assert second.revision == first.revision < api.view.revision


async def test_pages_go_through_namespaces_in_order_and_through_one_alone(api: RegistryFixture) -> None:
    for namespace in ("demo", "default"):
        for name in "ab":
            await api.create("ConfigMap", name, namespace)
    for namespace, expected in (("", ["default/a", "default/b", "demo/a", "demo/b"]), ("demo", ["demo/a", "demo/b"])):
        seen, token = [], ""
        while True:
            page = await listed(api, "ConfigMap", namespace, limit=1, continue_token=token)
            seen += ["/".join(entry.key[2:]) for entry in page.entries]
            token = page.continue_token
            if not token:
                break
        assert seen == expected


async def test_pages_of_a_selection_are_full_and_do_not_count_what_remains(api: RegistryFixture) -> None:
    for number in range(9):
        await api.create("Gadget", f"g{number}", metadata={"labels": {"odd": str(number % 2)}})
    selection = Selector(parse_labels("odd=1"))
    first = await listed(api, limit=3, selector=selection)
    assert (names(first), first.remaining_count) == (["g1", "g3", "g5"], None)
    second = await listed(api, limit=3, selector=selection, continue_token=first.continue_token)
    assert (names(second), second.continue_token) == (["g7"], "")


async def test_a_page_that_ends_with_the_list_leads_nowhere(api: RegistryFixture) -> None:
    await make(api, *"ab")
    assert (await listed(api, limit=2)).continue_token == ""
    assert (await listed(api, limit=5)).continue_token == ""
    assert names(await listed(api, limit=0)) == ["a", "b"]


async def test_an_expired_token_is_answered_with_one_that_goes_on_in_whatever_is_there(api: RegistryFixture) -> None:
    await make(api, *"abcd")
    page = await listed(api, limit=2)
    await api.delete("Gadget", "c")
    await make(api, "e")
    api.view.discard_before(api.view.revision)
    with pytest.raises(ContinueExpired) as caught:
        await listed(api, limit=2, continue_token=page.continue_token)
    rest = await listed(api, limit=1, continue_token=caught.value.continue_token)
    assert names(rest) == ["d"]
    assert rest.revision == api.view.revision
    await api.delete("Gadget", "e")
    assert names(await listed(api, limit=1, continue_token=rest.continue_token)) == ["e"], (
        "from there on it is consistent again"
    )


@asynccontextmanager
async def history(api: RegistryFixture) -> AsyncIterator[list[int]]:
    """The revisions at which there were one, two and three gadgets; the first of them is no longer known."""
    revisions = []
    for name in "abc":
        await make(api, name)
        revisions.append(api.view.revision)
    api.view.discard_before(revisions[1])
    yield revisions


async def test_an_exact_version_shows_that_snapshot(api: RegistryFixture) -> None:
    async with history(api) as (_, second, third):
        found = await listed(api, version=second, exact=True)
        assert (names(found), found.revision) == (["a", "b"], second)
        assert names(await listed(api, version=third, exact=True)) == ["a", "b", "c"]


async def test_a_version_that_was_compacted_is_expired_if_it_must_be_exact_and_fine_if_newer_will_do(
    api: RegistryFixture,
) -> None:
    async with history(api) as (first, _, third):
        with pytest.raises(Expired) as caught:
            await listed(api, version=first, exact=True)
        assert not isinstance(caught.value, ContinueExpired), "without a token there is nothing to go on with"
        found = await listed(api, version=first)
        assert (names(found), found.revision) == (["a", "b", "c"], third)


@pytest.mark.parametrize("version", [None, 0, 1])
async def test_without_a_certain_version_a_list_is_the_newest(api: RegistryFixture, version: int | None) -> None:
    await make(api, "a")
    assert names(await listed(api, version=version)) == ["a"]


async def test_a_version_that_is_about_to_come_is_waited_for(api: RegistryFixture) -> None:
    waiting = asyncio.create_task(listed(api, version=api.view.revision + 1))
    await asyncio.sleep(WAIT_TIMEOUT_SECONDS / 2)
    assert not waiting.done()
    await make(api, "a")
    assert names(await waiting) == ["a"]


@pytest.mark.parametrize("exact", [True, False])
async def test_a_version_that_does_not_come_is_too_large(api: RegistryFixture, exact: bool) -> None:
    future = api.view.revision + 1_000
    with pytest.raises(Timeout, match=f"Too large resource version: {future}, current: {api.view.revision}") as caught:
        await listed(api, version=future, exact=exact)
    assert [problem.reason for problem in caught.value.details.problems] == ["ResourceVersionTooLarge"]
    assert caught.value.details.retry_after == 1


async def test_when_the_view_cannot_keep_up_nobody_is_told_of_a_version_that_they_did_not_name(
    api: RegistryFixture,
) -> None:
    await api.view.stop()
    await api.store.inner.commit([Write(("other.io", "things", "", "x"), b'{"metadata":{}}', 0)])
    with pytest.raises((Timeout, Unavailable)) as caught:
        await listed(api)
    assert "None" not in caught.value.message


async def test_a_token_of_a_snapshot_that_is_not_there_yet_is_not_answered_with_another_one(
    api: RegistryFixture,
) -> None:
    """Another replica may have made it, or the store may have been put back; the next page then must not lie."""
    await make(api, *"ab")
    future = api.view.revision + 1_000
    with pytest.raises((Timeout, Expired)):
        await listed(api, continue_token=ContinueToken(future, ("", "a")).encode())


async def test_a_token_and_a_version_exclude_each_other(api: RegistryFixture) -> None:
    token = ContinueToken(api.view.revision, ("", "")).encode()
    with pytest.raises(BadRequest, match="specifying resource version is not allowed when using continue"):
        await listed(api, continue_token=token, version=5)
    await listed(api, continue_token=token, version=0)


async def test_a_list_that_never_ends_in_a_write_costs_no_revision(api: RegistryFixture) -> None:
    revision = await api.store.revision()
    await listed(api, limit=1)
    assert await api.store.revision() == revision


async def decoded(api: RegistryFixture, kind: str, found: ListPage) -> Object:
    value: Object = orjson.loads(await encode_list(api.of(kind).kind, found))
    return value


async def test_the_body_of_a_list_is_its_objects_as_they_are_served(api: RegistryFixture) -> None:
    await make(api, *"ab")
    found = await listed(api, limit=1)
    body = await decoded(api, "Gadget", found)
    assert (body["kind"], body["apiVersion"]) == ("GadgetList", "management.service.sh/v1")
    assert body["metadata"] == {
        "resourceVersion": str(found.revision),
        "continue": found.continue_token,
        "remainingItemCount": 1,
    }
    assert body["items"] == [api.see("Gadget", "a")]
    assert await decoded(api, "Gadget", ListPage([], 5)) == {
        "kind": "GadgetList",
        "apiVersion": "management.service.sh/v1",
        "metadata": {"resourceVersion": "5"},
        "items": [],
    }


async def test_items_of_core_kinds_do_not_repeat_what_the_list_says(api: RegistryFixture) -> None:
    made = await api.create("ConfigMap", "a", data={"x": "1"})
    await api.create("ConfigMap", "b")
    items = (await decoded(api, "ConfigMap", await listed(api, "ConfigMap")))["items"]
    assert items[0] == {name: value for name, value in made.items() if name not in ("kind", "apiVersion")}
    assert [item["metadata"]["name"] for item in items] == ["a", "b"]


def test_the_metadata_of_a_list_says_nothing_of_what_does_not_follow() -> None:
    assert list_metadata(ListPage([], 5)) == {"resourceVersion": "5"}


async def test_a_list_with_many_conditions_pauses_more_often(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.registry.list.MAX_ENTRIES_PER_STEP", 20)
    await make(api, *(f"g{number:02}" for number in range(12)))
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("fairlead.registry.list.asyncio.sleep", sleep)
    for terms, pause_count in ((3, 0), (40, 12)):
        labels = parse_labels(",".join(f"label-{number}!=x" for number in range(terms)))
        pauses.clear()
        assert len(names(await listed(api, selector=Selector(labels)))) == 12
        assert len(pauses) == pause_count


async def test_a_large_list_is_put_together_in_slices(api: RegistryFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, everything there is has to be joined: others get their turns meanwhile."""
    monkeypatch.setattr(listing, "MAX_JOIN_BYTES", 2_000)
    await make(api, *(f"g{number:03}" for number in range(40)))
    for found in (await listed(api), ListPage(list((await listed(api)).entries), 5)):
        async with Turns() as turns:
            body = await decoded(api, "Gadget", found)
        assert [item["metadata"]["name"] for item in body["items"]] == names(found)
        if not isinstance(found.entries, ChunkSlice):  # which has its pieces ready
            assert turns.count >= 10


class Counting:
    """Goes through slices, and notes how many do so at the same time."""

    def __init__(self, at_once: list[int]) -> None:
        self._at_once = at_once
        self._running = 0

    async def in_slices(self, items: Any, size: Any, most: int) -> AsyncIterator[Any]:
        self._running += 1
        async for some in iter_slices(items, size, most):
            self._at_once.append(self._running)
            yield some
        self._running -= 1


async def test_large_lists_of_one_user_are_put_together_one_at_a_time(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred at once would take up a hundred times as much memory before any of them can be refused."""
    monkeypatch.setattr(listing, "MAX_JOIN_BYTES", 2_000)
    await make(api, *(f"g{number:03}" for number in range(40)))
    found = ListPage(list((await listed(api)).entries), 5)
    at_once: list[int] = []
    counting = Counting(at_once)
    monkeypatch.setattr(listing, "iter_slices", counting.in_slices)
    CURRENT_ACCOUNT.set(Account())
    async with Turns():  # the loop must not take waiting for a thread for waiting for ever
        bodies = await asyncio.gather(*(decoded(api, "Gadget", found) for _ in range(8)))
    assert all(names(found) == [item["metadata"]["name"] for item in body["items"]] for body in bodies)
    assert max(at_once) == 1


async def test_entries_are_shown_in_another_form_in_slices(api: RegistryFixture) -> None:
    await make(api, *(f"g{number:03}" for number in range(5)))
    large = [entry.with_body(b"x" * MAX_SLICE_BYTES) for entry in (await listed(api)).entries]
    async with Turns() as turns:
        shown = await map_entries(large, lambda entry: entry.with_body(entry.body[:1]))
    assert [entry.body for entry in shown] == [b"x"] * 5
    assert turns.count >= 4
