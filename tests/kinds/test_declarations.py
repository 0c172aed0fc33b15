"""Rules that the declaration of every kind must obey."""

from collections import Counter
from copy import deepcopy

import pytest

from fairlead.core.objects import get_path
from fairlead.kinds import KINDS
from fairlead.kinds.fields import CATEGORY
from fairlead.registry.kind import ALL_VERBS, MANAGEMENT_GROUP, Kind
from fairlead.registry.validate import Validator
from tests.harness.kind_examples import apply_defaults, build_example, find_problems
from tests.kinds.schema_fields import is_declared, iter_fields

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
each_stored_form = pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.conversion is None], ids=lambda kind: kind.name
)
"""Without kinds that show another kind's objects in a second form."""


@each_kind
def test_every_schema_has_a_type(kind: Kind) -> None:
    assert [path for path, schema in iter_fields(kind) if "type" not in schema] == []


@each_kind
def test_every_object_schema_declares_its_fields(kind: Kind) -> None:
    keywords = {"properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"}
    structures = [(path, schema) for path, schema in iter_fields(kind) if schema["type"] == "object"]
    assert [path for path, schema in structures if len(keywords & schema.keys()) != 1] == []


@each_kind
def test_every_list_has_a_list_type(kind: Kind) -> None:
    for path, schema in iter_fields(kind):
        if schema["type"] != "array":
            continue
        assert schema.get("x-kubernetes-list-type") in {"atomic", "set", "map"}, path
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            assert key in schema["items"]["required"], f"{path}: {key} is a list map key, so it must be required"


@each_kind
def test_every_field_has_a_description(kind: Kind) -> None:
    named = [(path, schema) for path, schema in iter_fields(kind) if not path.endswith(("[]", "{}"))]
    assert [path for path, schema in named if not schema.get("description", "").endswith(".")] == []


@each_kind
def test_required_fields_exist(kind: Kind) -> None:
    for path, schema in iter_fields(kind):
        missing = set(schema.get("required", ())) - schema.get("properties", {}).keys()
        assert not missing, path


@each_stored_form
def test_an_example_of_each_kind_is_valid(kind: Kind) -> None:
    obj = build_example(kind.name)
    findings = Validator(kind.schema()).validate(obj)
    assert (findings.unknown_fields, findings.problems) == ([], [])
    assert find_problems(obj) == []


@each_stored_form
def test_defaulting_twice_changes_nothing(kind: Kind) -> None:
    defaulted = apply_defaults(build_example(kind.name))
    assert apply_defaults(deepcopy(defaulted)) == defaulted


@each_stored_form
def test_every_column_has_a_value_in_the_example(kind: Kind) -> None:
    obj = apply_defaults(build_example(kind.name))
    shown = {each.name: each.path(obj) if callable(each.path) else get_path(obj, each.path) for each in kind.columns}
    assert [name for name, value in shown.items() if value in (None, "")] == []
    assert all(column.description for column in kind.columns)


@each_kind
def test_columns_work_on_an_empty_object(kind: Kind) -> None:
    empty = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "x"}}
    for column in kind.columns:
        if callable(column.path):
            column.path(empty)


@each_kind
def test_declared_paths_exist(kind: Kind) -> None:
    columns = [column.path for column in kind.columns if isinstance(column.path, str)]
    paths = [*columns, *kind.selectable, *kind.immutable, *kind.sensitive, *kind.finalizer_paths]
    assert [path for path in paths if not path.startswith("metadata.") and not is_declared(kind, path)] == []


@each_kind
def test_passwords_are_sensitive(kind: Kind) -> None:
    passwords = [
        path.replace("[]", "").replace("{}", "")
        for path, schema in iter_fields(kind)
        if schema.get("format") == "password"
    ]
    assert set(passwords) <= set(kind.sensitive)


@each_kind
def test_a_status_subresource_has_fields(kind: Kind) -> None:
    if kind.status_subresource:
        assert kind.fields["status"]["properties"]


@each_kind
def test_verbs_are_known_and_sorted(kind: Kind) -> None:
    assert set(kind.verbs) <= set(ALL_VERBS)
    assert list(kind.verbs) == sorted(kind.verbs)


@each_kind
def test_management_kinds_have_no_schema_defaults(kind: Kind) -> None:
    if kind.group == MANAGEMENT_GROUP:
        assert [path for path, schema in iter_fields(kind) if "default" in schema] == []


@each_kind
def test_the_category_contains_the_stored_management_kinds(kind: Kind) -> None:
    """kubectl gets each kind of a category, and fails if one cannot be read."""
    assert (CATEGORY in kind.categories) == (kind.group == MANAGEMENT_GROUP and kind.persisted)


def test_no_two_kinds_share_a_name() -> None:
    plurals = Counter((kind.group, kind.plural) for kind in KINDS)
    # kubectl resolves short and singular names over all groups. Kinds that are not stored cannot be read.
    # A second form has the names of the first, and either may be resolved.
    stored = [kind for kind in KINDS if kind.persisted and kind.conversion is None]
    names = Counter(name for kind in stored for name in (kind.singular, kind.plural, *kind.short_names))
    assert [name for name, count in (plurals + names).items() if count > 1] == []
