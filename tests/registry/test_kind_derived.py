"""What is derived from a kind is built once, and not taken over by a changed copy of the kind."""

from dataclasses import replace

from fairlead.registry.kind import Kind
from tests.harness.registry import GADGET, open_registry


def test_a_value_is_built_once_for_each_kind_and_function() -> None:
    kind = replace(GADGET)
    built: list[str] = []

    def build(given: Kind) -> list[str]:
        built.append(given.name)
        return [given.plural]

    assert kind.derive(build) is kind.derive(build)
    assert kind.derive(lambda given: given.group) == GADGET.group
    assert built == ["Gadget"]


def test_a_changed_copy_of_a_kind_derives_its_own_values() -> None:
    assert GADGET.derive(_fields_of) == {"spec", "status"}
    assert replace(GADGET, fields={"data": {"type": "object"}}).derive(_fields_of) == {"data"}


def test_derived_values_do_not_count_in_comparisons() -> None:
    copy = replace(GADGET)
    copy.derive(_fields_of)
    assert copy == replace(GADGET)
    assert "_derived={" not in repr(copy)


async def test_registries_share_validators() -> None:
    async with open_registry() as one, open_registry() as other:
        assert one.resource("Gadget").validator is other.resource("Gadget").validator
        assert one.resource("Gadget").merge_schemas is other.resource("Gadget").merge_schemas
        assert one.resource("Namespace").validator is other.resource("Namespace").validator


def _fields_of(kind: Kind) -> set[str]:
    return {*kind.fields}
