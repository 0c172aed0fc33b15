"""Following a resource: always what the view has, without a task and without asking twice."""

import pytest

from fairlead.registry import informer as module
from fairlead.registry.informer import Informer
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.registry import RegistryFixture


@pytest.fixture
def gadgets(api: RegistryFixture) -> Informer:
    return Informer(api.view, MANAGEMENT_GROUP, "gadgets")


async def test_what_was_there_before_is_there_at_the_first_look(api: RegistryFixture, gadgets: Informer) -> None:
    made = await api.create("Gadget", "a")
    gadgets.refresh()
    assert gadgets.objects == {("", "a"): made}


async def test_every_change_is_taken_in_and_noticed(api: RegistryFixture, gadgets: Informer) -> None:
    seen = [gadgets.refresh()]
    made = await api.create("Gadget", "a", spec={"size": 1})
    seen.append(gadgets.refresh())
    assert gadgets.objects == {("", "a"): made}
    changed = await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=2))
    await api.create("Gadget", "b")
    await api.delete("Gadget", "b")
    seen.append(gadgets.refresh())
    assert gadgets.objects == {("", "a"): changed}
    await api.delete("Gadget", "a")
    seen.append(gadgets.refresh())
    assert gadgets.objects == {}
    assert len(set(seen)) == 4


async def test_while_nothing_happens_the_number_stays(api: RegistryFixture, gadgets: Informer) -> None:
    await api.create("Gadget", "a")
    first = gadgets.refresh()
    await api.create("ConfigMap", "elsewhere")
    assert gadgets.refresh() == first


async def test_whoever_did_not_look_for_long_starts_over_and_misses_nothing(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WATCH_QUEUE_SIZE", 2)
    gadgets = Informer(api.view, MANAGEMENT_GROUP, "gadgets")
    await api.create("Gadget", "gone")
    first = gadgets.refresh()
    await api.delete("Gadget", "gone")
    for name in "abcd":
        await api.create("Gadget", name)
    assert gadgets.refresh() != first
    assert sorted(name for _, name in gadgets.objects) == list("abcd")
    await api.create("Gadget", "e")
    gadgets.refresh()
    assert sorted(name for _, name in gadgets.objects) == list("abcde")


async def test_objects_of_one_name_in_two_namespaces_are_two(api: RegistryFixture) -> None:
    configmaps = Informer(api.view, "", "configmaps")
    await api.create("ConfigMap", "c", "demo")
    await api.create("ConfigMap", "c", "default")
    configmaps.refresh()
    assert sorted(configmaps.objects) == [("default", "c"), ("demo", "c")]


async def test_where_something_has_changed_is_told_once(api: RegistryFixture, gadgets: Informer) -> None:
    await api.create("Gadget", "a")
    await api.create("Gadget", "b")
    assert gadgets.pop_changed_keys() == {("", "a"), ("", "b")}
    assert gadgets.pop_changed_keys() == set()
    await api.patch("Gadget", "b", lambda obj: obj.update(spec={"size": 2}))
    await api.create("Gadget", "c")
    await api.delete("Gadget", "c")
    gadgets.refresh()
    assert gadgets.pop_changed_keys() == {("", "b"), ("", "c")}
    assert gadgets.pop_changed_keys() == set()


async def test_whoever_starts_over_is_told_of_what_was_there_and_of_what_is(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WATCH_QUEUE_SIZE", 2)
    gadgets = Informer(api.view, MANAGEMENT_GROUP, "gadgets")
    await api.create("Gadget", "gone")
    gadgets.pop_changed_keys()
    await api.delete("Gadget", "gone")
    for name in "abc":
        await api.create("Gadget", name)
    assert gadgets.pop_changed_keys() == {("", name) for name in ("gone", "a", "b", "c")}
