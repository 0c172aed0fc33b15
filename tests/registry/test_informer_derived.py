"""Derived values computed from cached objects: current on every read, rebuilt only after a change."""

from dataclasses import dataclass

import pytest

from fairlead.registry.informer import Derived, Informer
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.registry import RegistryFixture


@dataclass
class Revision:
    revision: int = 0


class GadgetNames:
    """Derives the names of all gadgets and counts the builds."""

    def __init__(self, api: RegistryFixture) -> None:
        self.gadgets, self.builds = Informer(api.view, MANAGEMENT_GROUP, "gadgets"), 0
        self.derived = Derived(api.view, (self.gadgets.refresh,), self.build)

    def build(self) -> list[str]:
        self.builds += 1
        return sorted(name for _, name in self.gadgets.objects)


async def test_a_change_is_visible_at_the_next_read(api: RegistryFixture) -> None:
    names = GadgetNames(api)
    assert names.derived.get() == []
    await api.create("Gadget", "a")
    await api.create("Gadget", "b")
    assert names.derived.get() == ["a", "b"]
    await api.delete("Gadget", "a")
    assert names.derived.get() == ["b"]


async def test_it_is_rebuilt_once_per_change_and_not_for_other_resources(api: RegistryFixture) -> None:
    names = GadgetNames(api)
    await api.create("Gadget", "a")
    first = names.derived.get()
    await api.create("ConfigMap", "elsewhere")
    assert names.derived.get() is first and names.builds == 1
    await api.create("Gadget", "b")
    await api.create("Gadget", "c")
    assert names.derived.get() is names.derived.get() is not first and names.builds == 2


def test_generations_are_only_compared_if_the_view_has_a_new_revision() -> None:
    view, compared = Revision(), list[int]()
    derived = Derived(view, (lambda: compared.append(view.revision),), object)
    first = derived.get()
    assert derived.get() is first and compared == [0]
    view.revision = 1
    assert derived.get() is first and compared == [0, 1]


def test_each_of_several_sources_is_refreshed_and_causes_a_build() -> None:
    view, generations = Revision(), {"a": 1, "b": 1}
    derived = Derived(view, (lambda: generations["a"], lambda: generations["b"]), generations.copy)
    assert derived.get() == {"a": 1, "b": 1}
    for source in ("a", "b"):
        view.revision += 1
        generations[source] += 1
        assert derived.get() == generations


def test_a_build_that_fails_is_repeated_at_the_next_read() -> None:
    results = [1, 0, 0, 2]
    view = Revision()
    derived = Derived(view, (lambda: view.revision,), lambda: 10 // results.pop(0))
    assert derived.get() == 10
    view.revision = 1
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            derived.get()
    assert derived.get() == 5


def test_a_value_that_is_updated_in_place_stays_the_same_object() -> None:
    view, value = Revision(), list[int]()

    def update() -> list[int]:
        value.append(view.revision)
        return value

    derived = Derived(view, (lambda: view.revision,), update)
    assert derived.get() is value
    view.revision = 1
    assert derived.get() is value and value == [0, 1]
