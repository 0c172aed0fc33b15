"""What must hold for every kind, whoever adds one."""

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy

import pytest

from fairlead.core.objects import get_path
from fairlead.kinds import KINDS
from fairlead.kinds.fields import CATEGORY
from fairlead.registry.kind import ALL_VERBS, MANAGEMENT_GROUP, Kind
from fairlead.registry.schema import Schema
from fairlead.registry.validate import Validator
from tests.harness.kind_examples import example, prepared, problems

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
every_kind_of_its_own = pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.conversion is None], ids=lambda kind: kind.name
)
"""Without those that show the objects of another kind in another form."""


def fields_of(kind: Kind) -> Iterator[tuple[str, Schema]]:
    """Every field with its path, through structures, lists and maps."""
    for name, schema in kind.fields.items():
        yield from levels(name, schema)


def levels(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from levels(f"{path}.{name}", inner)
    for inner, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if inner in schema:
            yield from levels(path + mark, schema[inner])


def declared(kind: Kind, path: str) -> bool:
    return path in {each.replace("[]", "") for each, _ in fields_of(kind)}


@every_kind
def test_every_level_of_a_schema_is_typed(kind: Kind) -> None:
    assert [path for path, schema in fields_of(kind) if "type" not in schema] == []


@every_kind
def test_every_structure_says_which_fields_it_has(kind: Kind) -> None:
    says = {"properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"}
    structures = [(path, schema) for path, schema in fields_of(kind) if schema["type"] == "object"]
    assert [path for path, schema in structures if len(says & schema.keys()) != 1] == []


@every_kind
def test_every_list_says_how_it_merges(kind: Kind) -> None:
    for path, schema in fields_of(kind):
        if schema["type"] != "array":
            continue
        assert schema.get("x-kubernetes-list-type") in {"atomic", "set", "map"}, path
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            assert key in schema["items"]["required"], f"{path}: entries are told apart by {key}, so it is required"


@every_kind
def test_every_field_is_explained_in_a_sentence(kind: Kind) -> None:
    named = [(path, schema) for path, schema in fields_of(kind) if not path.endswith(("[]", "{}"))]
    assert [path for path, schema in named if not schema.get("description", "").endswith(".")] == []


@every_kind
def test_required_fields_exist(kind: Kind) -> None:
    for path, schema in fields_of(kind):
        missing = set(schema.get("required", ())) - schema.get("properties", {}).keys()
        assert not missing, path


@every_kind_of_its_own
def test_an_example_fits_the_schema_and_the_rules(kind: Kind) -> None:
    obj = example(kind.name)
    findings = Validator(kind.schema()).validate(obj)
    assert (findings.unknown_fields, findings.problems) == ([], [])
    assert problems(obj) == []


@every_kind_of_its_own
def test_preparing_twice_changes_nothing_more(kind: Kind) -> None:
    once = prepared(example(kind.name))
    assert prepared(deepcopy(once)) == once


@every_kind_of_its_own
def test_every_column_has_something_to_show(kind: Kind) -> None:
    obj = prepared(example(kind.name))
    shown = {each.name: each.path(obj) if callable(each.path) else get_path(obj, each.path) for each in kind.columns}
    assert [name for name, value in shown.items() if value in (None, "")] == []
    assert all(column.description for column in kind.columns)


@every_kind
def test_columns_survive_an_object_with_nothing_in_it(kind: Kind) -> None:
    bare = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "x"}}
    for column in kind.columns:
        if callable(column.path):
            column.path(bare)


@every_kind
def test_paths_lead_somewhere(kind: Kind) -> None:
    columns = [column.path for column in kind.columns if isinstance(column.path, str)]
    paths = [*columns, *kind.selectable, *kind.immutable, *kind.sensitive, *kind.finalizer_paths]
    assert [path for path in paths if not path.startswith("metadata.") and not declared(kind, path)] == []


@every_kind
def test_passwords_are_secret(kind: Kind) -> None:
    marked = [
        path.replace("[]", "").replace("{}", "")
        for path, schema in fields_of(kind)
        if schema.get("format") == "password"
    ]
    assert set(marked) <= set(kind.sensitive)


@every_kind
def test_a_status_of_its_own_has_fields(kind: Kind) -> None:
    if kind.status_subresource:
        assert kind.fields["status"]["properties"]


@every_kind
def test_verbs_are_known_and_sorted(kind: Kind) -> None:
    assert set(kind.verbs) <= set(ALL_VERBS)
    assert list(kind.verbs) == sorted(kind.verbs)


@every_kind
def test_management_kinds_answer_with_what_they_were_sent(kind: Kind) -> None:
    if kind.group == MANAGEMENT_GROUP:
        assert [path for path, schema in fields_of(kind) if "default" in schema] == []


@every_kind
def test_the_category_gathers_the_management_kinds(kind: Kind) -> None:
    """Those that there is something to get of: kubectl asks for each, and gives up where it cannot."""
    assert (CATEGORY in kind.categories) == (kind.group == MANAGEMENT_GROUP and kind.persisted)


def test_no_two_kinds_share_a_name() -> None:
    plurals = Counter((kind.group, kind.plural) for kind in KINDS)
    # kubectl looks short and singular names up over all groups. There is nothing to get of what is not stored.
    # A second form has the names of the first: which of the two somebody means by them makes no difference.
    stored = [kind for kind in KINDS if kind.persisted and kind.conversion is None]
    words = Counter(word for kind in stored for word in (kind.singular, kind.plural, *kind.short_names))
    assert [name for name, times in (plurals + words).items() if times > 1] == []
