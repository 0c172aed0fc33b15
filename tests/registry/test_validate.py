"""The structural schema at work: what is refused, pruned and filled in, and that both of its ways agree.

Objects that are fine are answered by a compiled validator in one step, all others by a walk in Python. Nobody should be
able to tell which of the two has looked at an object.
"""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.objects import Object
from fairlead.registry import schema as words
from fairlead.registry.schema import Schema
from fairlead.registry.validate import ValidationResult, Validator

SCHEMA = words.obj(
    "",
    required=("name",),
    name=words.string(),
    size=words.integer(bits=32, minimum=1),
    big=words.integer(),
    on=words.boolean(),
    mode=words.enum("", "fast", "slow"),
    data=words.string(format="byte"),
    when=words.timestamp(),
    maybe=words.nullable(words.string()),
    tags=words.mapping(words.string()),
    open=words.open_object(),
    any=words.any_value(),
    items=words.array(words.obj("", required=("id",), id=words.string(), n=words.integer())),
)


def examined(obj: Any, schema: Schema = SCHEMA) -> ValidationResult:
    return Validator(schema).validate(obj)


def complaints(obj: Any, schema: Schema = SCHEMA) -> list[tuple[str, str]]:
    return [(problem.field, problem.reason) for problem in examined(obj, schema).problems]


FINE: list[Object] = [
    {"name": ""},
    {"name": "x", "size": 1, "big": -(2**63), "on": False, "mode": "fast"},
    {"name": "x", "size": 2**31 - 1, "big": 2**63 - 1},
    {"name": "x", "data": "YWI=", "when": "2026-01-02T03:04:05.123+02:00"},
    {"name": "x", "maybe": None},
    {"name": "x", "tags": {"any key": "text"}, "open": {"a": [None, {"b": 1.5}]}, "any": [1, None]},
    {"name": "x", "items": []},
    {"name": "x", "items": [{"id": "a"}, {"id": "b", "n": 0}]},
]

BAD: list[tuple[Object, list[tuple[str, str]]]] = [
    ({}, [("name", "FieldValueRequired")]),
    ({"name": None}, [("name", "FieldValueRequired")]),
    ({"name": 5}, [("name", "FieldValueTypeInvalid")]),
    ({"name": "x", "size": "1"}, [("size", "FieldValueTypeInvalid")]),
    ({"name": "x", "size": True}, [("size", "FieldValueTypeInvalid")]),
    ({"name": "x", "size": 1.5}, [("size", "FieldValueTypeInvalid")]),
    ({"name": "x", "size": 0}, [("size", "FieldValueInvalid")]),
    ({"name": "x", "size": 2**31}, [("size", "FieldValueInvalid")]),
    ({"name": "x", "big": 2**63}, [("big", "FieldValueInvalid")]),
    ({"name": "x", "on": 1}, [("on", "FieldValueTypeInvalid")]),
    ({"name": "x", "mode": "warp"}, [("mode", "FieldValueNotSupported")]),
    ({"name": "x", "data": "no base64!"}, [("data", "FieldValueInvalid")]),
    ({"name": "x", "when": "yesterday"}, [("when", "FieldValueInvalid")]),
    ({"name": "x", "tags": {"a": 1}}, [("tags.a", "FieldValueTypeInvalid")]),
    ({"name": "x", "tags": {"a": None}}, [("tags.a", "FieldValueTypeInvalid")]),
    ({"name": "x", "open": []}, [("open", "FieldValueTypeInvalid")]),
    ({"name": "x", "items": {}}, [("items", "FieldValueTypeInvalid")]),
    ({"name": "x", "items": [{"n": 1}]}, [("items[0].id", "FieldValueRequired")]),
    ({"name": "x", "items": [{"id": "a"}, None]}, [("items[1]", "FieldValueTypeInvalid")]),
    (
        {"items": [{"id": 1, "n": "x"}], "on": "yes"},
        [
            *(("items[0].id", "FieldValueTypeInvalid"), ("items[0].n", "FieldValueTypeInvalid")),
            *(("on", "FieldValueTypeInvalid"), ("name", "FieldValueRequired")),
        ],
    ),
]


@pytest.mark.parametrize("obj", FINE)
def test_an_object_that_fits_is_left_exactly_as_it_is(obj: Object) -> None:
    before = deepcopy(obj)
    findings = examined(obj)
    assert (findings.problems, findings.unknown_fields, obj) == ([], [], before)


@pytest.mark.parametrize(("obj", "problems"), BAD)
def test_each_problem_is_told_with_its_path_and_reason(obj: Object, problems: list[tuple[str, str]]) -> None:
    assert sorted(complaints(obj)) == sorted(problems)


def test_unknown_fields_are_taken_out_at_every_level_and_named() -> None:
    obj: Object = {
        "name": "x",
        "extra": {"a": 1},
        "items": [{"id": "a", "odd": 1}],
        "tags": {"free": "x"},
        "open": {"a": 1},
    }
    findings = examined(obj)
    assert sorted(findings.unknown_fields) == ["extra", "items[0].odd"]
    assert findings.problems == []
    assert obj == {"name": "x", "items": [{"id": "a"}], "tags": {"free": "x"}, "open": {"a": 1}}


@pytest.mark.parametrize("beside", [{}, {"unknown": 1}], ids=["alone", "beside an unknown field"])
def test_a_null_is_like_an_absent_field_unless_null_is_a_value(beside: Object) -> None:
    obj: Object = {"name": "x", "size": None, "tags": None, "items": [{"id": "a", "n": None}], "maybe": None, **beside}
    assert examined(obj).problems == []
    assert obj == {"name": "x", "items": [{"id": "a"}], "maybe": None}


@pytest.mark.parametrize("beside", [{}, {"unknown": 1}], ids=["alone", "beside an unknown field"])
def test_a_null_that_is_a_value_stays_also_where_it_is_all_there_is(beside: Object) -> None:
    schema = words.obj("", required=("maybe",), maybe=words.nullable(words.string()))
    obj: Object = {"maybe": None, **beside}
    assert examined(obj, schema).problems == []
    assert obj == {"maybe": None}


@pytest.mark.parametrize("beside", [{}, {"unknown": 1}], ids=["alone", "beside an unknown field"])
def test_a_field_that_takes_anything_is_no_exception(beside: Object) -> None:
    obj: Object = {"name": "x", "any": None, **beside}
    assert examined(obj).problems == []
    assert obj == {"name": "x"}


@pytest.mark.parametrize("beside", [{}, {"unknown": 1}], ids=["alone", "beside an unknown field"])
def test_a_whole_number_with_a_point_is_no_integer(beside: Object) -> None:
    """It would be served as it came, and programs that expect an integer cannot read `1.0`."""
    assert complaints({"name": "x", "size": 1.0, **beside}) == [("size", "FieldValueTypeInvalid")]


DEFAULTS = words.obj(
    "",
    mode=words.string(default="plain"),
    on=words.boolean(default=False),
    inner=words.obj("", size=words.integer(default=3)),
    listed=words.array(words.obj("", size=words.integer(default=4))),
)


def test_defaults_fill_in_what_is_absent_or_null_where_its_parent_is_there() -> None:
    obj: Object = {"mode": None, "listed": [{}, {"size": 0}]}
    assert examined(obj, DEFAULTS) == ValidationResult()
    assert obj == {"mode": "plain", "on": False, "listed": [{"size": 4}, {"size": 0}]}


def test_a_default_is_nobodys_shared_value() -> None:
    schema = words.obj("", inner={**words.open_object(), "default": {"list": []}})
    first: Object = {}
    second: Object = {}
    examined(first, schema)
    first["inner"]["list"].append(1)
    examined(second, schema)
    assert second == {"inner": {"list": []}}


def test_a_problem_with_a_format_is_told_after_the_walk_found_nothing_else() -> None:
    assert complaints({"name": "x", "extra": 1, "when": "yesterday"}) == [("when", "FieldValueInvalid")]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 2**31, 2**63, 1.0, 1.5, -0.0]),
    st.sampled_from(["", "a", "b", "YQ==", "2026-01-02T03:04:05Z"]),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)),
    max_leaves=6,
)
LEAVES = st.sampled_from(
    [
        words.string(),
        words.enum("", "a", "b"),
        words.string(format="byte"),
        words.timestamp(),
        words.integer(),
        words.integer(bits=32, minimum=0),
        words.boolean(),
        words.open_object(),
        words.any_value(),
        words.nullable(words.string()),
        words.nullable(words.integer()),
    ]
)


def objects_of(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    """Structures of one to three fields, some of them required."""
    fields = st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3)
    return st.builds(
        lambda fields, required: words.obj("", required=tuple(sorted(required & fields.keys())), **fields),
        fields,
        st.sets(st.sampled_from("abc")),
    )


def nested(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.one_of(LEAVES, objects_of(inner), inner.map(words.array), inner.map(words.mapping))


SCHEMAS = objects_of(nested(nested(LEAVES)))


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


@st.composite
def fitting(draw: st.DrawFn, schema: Schema) -> Any:
    """A value that mostly fits a schema, so that the verdict often hangs on a single place."""
    if draw(st.integers(0, 9)) == 9:
        return draw(JSON)
    match schema.get("type"):
        case "object" if "additionalProperties" in schema:
            return draw(st.dictionaries(st.sampled_from("ab"), fitting(schema["additionalProperties"]), max_size=2))
        case "object" if "properties" in schema:
            fields = schema["properties"].items()
            return {name: draw(fitting(each)) for name, each in fields if draw(st.integers(0, 5)) < 5}
        case "object":
            return draw(st.dictionaries(st.sampled_from("ab"), SCALARS, max_size=2))
        case "array":
            return draw(st.lists(fitting(schema["items"]), max_size=2))
        case "boolean":
            return draw(st.booleans())
        case "integer":
            return draw(st.sampled_from([0, 1, 2, 1.0]))
        case "string":
            return draw(st.sampled_from(schema.get("enum") or ["YQ==", "2026-01-02T03:04:05Z"]))
    return draw(JSON)


CASES = SCHEMAS.flatmap(lambda schema: st.tuples(st.just(schema), fitting(schema).filter(_is_object)))


@settings(max_examples=120, deadline=None)
@given(CASES)
def test_an_unknown_field_beside_it_changes_nothing_about_the_verdict(case: tuple[Schema, Object]) -> None:
    """The field makes the object take the other way: through the walk instead of the compiled validator alone."""
    schema, obj = case
    alone, beside = deepcopy(obj), {**deepcopy(obj), "unknown": 1}
    first, second = examined(alone, schema), examined(beside, schema)
    assert bool(first.problems) is bool(second.problems)
    assert set(second.unknown_fields) == {*first.unknown_fields, "unknown"}
    if not first.problems:
        assert alone == beside


@settings(max_examples=60, deadline=None)
@given(CASES)
def test_what_was_accepted_once_is_accepted_again_and_not_changed_any_more(case: tuple[Schema, Object]) -> None:
    schema, obj = case
    if examined(obj, schema).problems:
        return
    before = deepcopy(obj)
    assert (examined(obj, schema), obj) == (ValidationResult(), before)


@settings(max_examples=60, deadline=None)
@given(CASES)
def test_an_accepted_object_has_the_types_that_its_schema_promises(case: tuple[Schema, Object]) -> None:
    schema, obj = case
    if not examined(obj, schema).problems:
        assert keeps_promise(obj, schema)


TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
}


def keeps_promise(value: Any, schema: Schema) -> bool:
    """The same question asked in the plainest way, by type alone."""
    if "type" not in schema or (value is None and schema.get("nullable")):
        return True
    if type(value) not in TYPES[schema["type"]]:
        return False
    if schema["type"] == "array":
        return all(keeps_promise(each, schema["items"]) for each in value)
    if schema["type"] != "object" or schema.get("x-kubernetes-preserve-unknown-fields"):
        return True
    if "additionalProperties" in schema:
        return all(keeps_promise(each, schema["additionalProperties"]) for each in value.values())
    fields = schema["properties"]
    return set(schema.get("required", ())) <= value.keys() <= fields.keys() and all(
        keeps_promise(each, fields[name]) for name, each in value.items()
    )
