"""The warnings that a kind itself causes, without other objects."""

from fairlead.core.objects import Object
from fairlead.registry.no_effect import add_warnings, find_ineffective_fields
from tests.harness.kind_examples import build_change


def find_warnings(new: Object) -> list[str]:
    """The warnings about the creation of an object."""
    change = build_change(new)
    change.kind.default(change)
    add_warnings(change, change.kind.derive(find_ineffective_fields))
    return change.warnings
