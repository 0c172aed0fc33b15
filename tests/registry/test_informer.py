"""registry/informer.py: objects of one resource, kept current from the view on refresh."""

import pytest

from fairlead.registry import informer as module
from fairlead.registry.informer import Informer
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.registry import RegistryFixture


@pytest.fixture
def gadgets(api: RegistryFixture) -> Informer:
    return Informer(api.view, MANAGEMENT_GROUP, "gadgets")


async def test_the_first_refresh_lists_existing_objects(api: RegistryFixture, gadgets: Informer) -> None:
    created = await api.create("Gadget", "a")
    gadgets.refresh()
    assert gadgets.objects == {("", "a"): created}


async def test_each_refresh_applies_changes_and_returns_a_new_generation(
    api: RegistryFixture, gadgets: Informer
) -> None:
    generations = [gadgets.refresh()]
    created = await api.create("Gadget", "a", spec={"size": 1})
    generations.append(gadgets.refresh())
    assert gadgets.objects == {("", "a"): created}
    changed = await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=2))
    await api.create("Gadget", "b")
    await api.delete("Gadget", "b")
    generations.append(gadgets.refresh())
    assert gadgets.objects == {("", "a"): changed}
    await api.delete("Gadget", "a")
    generations.append(gadgets.refresh())
    assert gadgets.objects == {}
    assert len(set(generations)) == 4


async def test_the_generation_stays_while_nothing_changes(api: RegistryFixture, gadgets: Informer) -> None:
    await api.create("Gadget", "a")
    first = gadgets.refresh()
    await api.create("ConfigMap", "elsewhere")
    assert gadgets.refresh() == first


async def test_an_informer_whose_queue_overflowed_lists_again(
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


async def test_objects_of_the_same_name_in_two_namespaces_are_distinct(api: RegistryFixture) -> None:
    configmaps = Informer(api.view, "", "configmaps")
    await api.create("ConfigMap", "c", "demo")
    await api.create("ConfigMap", "c", "default")
    configmaps.refresh()
    assert sorted(configmaps.objects) == [("default", "c"), ("demo", "c")]


async def test_changed_keys_are_returned_once(api: RegistryFixture, gadgets: Informer) -> None:
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


async def test_after_an_overflow_old_and_new_keys_count_as_changed(
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
