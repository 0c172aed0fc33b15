"""registry/validate.py: rejects, prunes and defaults objects by a structural schema.

Valid objects are checked by a compiled validator in one step, all others by a walk in Python. Both must agree.

"""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.objects import Object
from fairlead.registry import schema as schemas
from fairlead.registry.schema import Schema
from fairlead.registry.validate import ValidationResult, Validator
from tests.harness.properties import examples

SCHEMA = schemas.obj(
    "",
    required=("name",),
    name=schemas.string(),
    size=schemas.integer(bits=32, minimum=1),
    big=schemas.integer(),
    on=schemas.boolean(),
    mode=schemas.enum("", "fast", "slow"),
    data=schemas.string(format="byte"),
    when=schemas.timestamp(),
    maybe=schemas.nullable(schemas.string()),
    tags=schemas.mapping(schemas.string()),
    open=schemas.open_object(),
    any=schemas.any_value(),
    items=schemas.array(schemas.obj("", required=("id",), id=schemas.string(), n=schemas.integer())),
)


def validate(obj: Any, schema: Schema = SCHEMA) -> ValidationResult:
    return Validator(schema).validate(obj)


def problem_reasons(obj: Any, schema: Schema = SCHEMA) -> list[tuple[str, str]]:
    return [(problem.field, problem.reason) for problem in validate(obj, schema).problems]


VALID: list[Object] = [
    {"name": ""},
    {"name": "x", "size": 1, "big": -(2**63), "on": False, "mode": "fast"},
    {"name": "x", "size": 2**31 - 1, "big": 2**63 - 1},
    {"name": "x", "data": "YWI=", "when": "2026-01-02T03:04:05.123+02:00"},
    {"name": "x", "maybe": None},
    {"name": "x", "tags": {"any key": "text"}, "open": {"a": [None, {"b": 1.5}]}, "any": [1, None]},
    {"name": "x", "items": []},
    {"name": "x", "items": [{"id": "a"}, {"id": "b", "n": 0}]},
]

INVALID: list[tuple[Object, list[tuple[str, str]]]] = [
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


@pytest.mark.parametrize("obj", VALID)
def test_a_valid_object_is_not_changed(obj: Object) -> None:
    before = deepcopy(obj)
    findings = validate(obj)
    assert (findings.problems, findings.unknown_fields, obj) == ([], [], before)


@pytest.mark.parametrize(("obj", "problems"), INVALID)
def test_each_problem_has_its_path_and_reason(obj: Object, problems: list[tuple[str, str]]) -> None:
    assert sorted(problem_reasons(obj)) == sorted(problems)


def test_unknown_fields_are_removed_at_every_level_and_named() -> None:
    obj: Object = {
        "name": "x",
        "extra": {"a": 1},
        "items": [{"id": "a", "odd": 1}],
        "tags": {"free": "x"},
        "open": {"a": 1},
    }
    findings = validate(obj)
    assert sorted(findings.unknown_fields) == ["extra", "items[0].odd"]
    assert findings.problems == []
    assert obj == {"name": "x", "items": [{"id": "a"}], "tags": {"free": "x"}, "open": {"a": 1}}


@pytest.mark.parametrize("unknown", [{}, {"unknown": 1}], ids=["alone", "with an unknown field"])
def test_a_null_counts_as_absent_unless_the_field_is_nullable(unknown: Object) -> None:
    obj: Object = {"name": "x", "size": None, "tags": None, "items": [{"id": "a", "n": None}], "maybe": None, **unknown}
    assert validate(obj).problems == []
    assert obj == {"name": "x", "items": [{"id": "a"}], "maybe": None}


@pytest.mark.parametrize("unknown", [{}, {"unknown": 1}], ids=["alone", "with an unknown field"])
def test_a_nullable_field_keeps_null_also_as_the_only_field(unknown: Object) -> None:
    schema = schemas.obj("", required=("maybe",), maybe=schemas.nullable(schemas.string()))
    obj: Object = {"maybe": None, **unknown}
    assert validate(obj, schema).problems == []
    assert obj == {"maybe": None}


@pytest.mark.parametrize("unknown", [{}, {"unknown": 1}], ids=["alone", "with an unknown field"])
def test_a_field_of_any_type_drops_null_too(unknown: Object) -> None:
    obj: Object = {"name": "x", "any": None, **unknown}
    assert validate(obj).problems == []
    assert obj == {"name": "x"}


@pytest.mark.parametrize("unknown", [{}, {"unknown": 1}], ids=["alone", "with an unknown field"])
@pytest.mark.parametrize(("sent", "expected"), [(1.0, "1"), (1e3, "1000")])
def test_a_whole_number_becomes_an_integer(sent: float, expected: str, unknown: Object) -> None:
    """It would be served as sent otherwise, and clients that expect an integer cannot read `1.0`."""
    obj: Object = {"name": "x", "size": sent, "any": {"a": [sent, {"b": sent}]}, **unknown}
    assert validate(obj).problems == []
    assert str(obj["size"]) == expected
    assert str(obj["any"]) == f"{{'a': [{expected}, {{'b': {expected}}}]}}"


@pytest.mark.parametrize(("sent", "expected"), [(-0.0, "0"), (1e18, "1000000000000000000"), (2.0**60, str(2**60))])
def test_a_whole_number_is_normalized_in_every_notation(sent: float, expected: str) -> None:
    obj: Object = {"name": "x", "any": {"a": sent}}
    assert validate(obj).problems == []
    assert str(obj["any"]["a"]) == expected


@pytest.mark.parametrize("sent", [1.5, 1e19, -1e300, 2.0**63])
def test_any_other_float_is_no_integer(sent: float) -> None:
    assert problem_reasons({"name": "x", "size": sent}) == [("size", "FieldValueTypeInvalid")]


@pytest.mark.parametrize("sent", [1.5, 1e19, 1e-7])
def test_any_other_float_is_kept_where_anything_is_allowed(sent: float) -> None:
    obj: Object = {"name": "x", "any": {"a": sent}}
    assert validate(obj).problems == []
    assert obj["any"] == {"a": sent}


DEFAULTS = schemas.obj(
    "",
    mode=schemas.string(default="plain"),
    on=schemas.boolean(default=False),
    inner=schemas.obj("", size=schemas.integer(default=3)),
    listed=schemas.array(schemas.obj("", size=schemas.integer(default=4))),
)


def test_defaults_are_set_for_absent_or_null_fields_of_existing_parents() -> None:
    obj: Object = {"mode": None, "listed": [{}, {"size": 0}]}
    assert validate(obj, DEFAULTS) == ValidationResult()
    assert obj == {"mode": "plain", "on": False, "listed": [{"size": 4}, {"size": 0}]}


def test_default_values_are_not_shared_between_objects() -> None:
    schema = schemas.obj("", inner={**schemas.open_object(), "default": {"list": []}})
    first: Object = {}
    second: Object = {}
    validate(first, schema)
    first["inner"]["list"].append(1)
    validate(second, schema)
    assert second == {"inner": {"list": []}}


def test_a_format_error_is_found_beside_an_unknown_field() -> None:
    assert problem_reasons({"name": "x", "extra": 1, "when": "yesterday"}) == [("when", "FieldValueInvalid")]


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
        schemas.string(),
        schemas.enum("", "a", "b"),
        schemas.string(format="byte"),
        schemas.timestamp(),
        schemas.integer(),
        schemas.integer(bits=32, minimum=0),
        schemas.boolean(),
        schemas.open_object(),
        schemas.any_value(),
        schemas.nullable(schemas.string()),
        schemas.nullable(schemas.integer()),
    ]
)


def object_schemas(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    """Objects of one to three fields, some of them required."""
    fields = st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3)
    return st.builds(
        lambda fields, required: schemas.obj("", required=tuple(sorted(required & fields.keys())), **fields),
        fields,
        st.sets(st.sampled_from("abc")),
    )


def nested_schemas(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.one_of(LEAVES, object_schemas(inner), inner.map(schemas.array), inner.map(schemas.mapping))


SCHEMAS = object_schemas(nested_schemas(nested_schemas(LEAVES)))


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


@st.composite
def mostly_valid(draw: st.DrawFn, schema: Schema) -> Any:
    """A value that mostly matches the schema, so that a single field often decides."""
    if draw(st.integers(0, 9)) == 9:
        return draw(JSON)
    match schema.get("type"):
        case "object" if "additionalProperties" in schema:
            return draw(
                st.dictionaries(st.sampled_from("ab"), mostly_valid(schema["additionalProperties"]), max_size=2)
            )
        case "object" if "properties" in schema:
            fields = schema["properties"].items()
            return {name: draw(mostly_valid(each)) for name, each in fields if draw(st.integers(0, 5)) < 5}
        case "object":
            return draw(st.dictionaries(st.sampled_from("ab"), SCALARS, max_size=2))
        case "array":
            return draw(st.lists(mostly_valid(schema["items"]), max_size=2))
        case "boolean":
            return draw(st.booleans())
        case "integer":
            return draw(st.sampled_from([0, 1, 2, 1.0]))
        case "string":
            return draw(st.sampled_from(schema.get("enum") or ["YQ==", "2026-01-02T03:04:05Z"]))
    return draw(JSON)


CASES = SCHEMAS.flatmap(lambda schema: st.tuples(st.just(schema), mostly_valid(schema).filter(_is_object)))


@settings(max_examples=examples(120), deadline=None)
@given(CASES)
def test_an_unknown_field_does_not_change_the_result(case: tuple[Schema, Object]) -> None:
    """The unknown field forces the walk in Python instead of the compiled validator."""
    schema, obj = case
    without_unknown, with_unknown = deepcopy(obj), {**deepcopy(obj), "unknown": 1}
    first, second = validate(without_unknown, schema), validate(with_unknown, schema)
    assert bool(first.problems) is bool(second.problems)
    assert set(second.unknown_fields) == {*first.unknown_fields, "unknown"}
    if not first.problems:
        assert without_unknown == with_unknown


@settings(max_examples=examples(60), deadline=None)
@given(CASES)
def test_validating_an_accepted_object_again_changes_nothing(case: tuple[Schema, Object]) -> None:
    schema, obj = case
    if validate(obj, schema).problems:
        return
    before = deepcopy(obj)
    assert (validate(obj, schema), obj) == (ValidationResult(), before)


@settings(max_examples=examples(60), deadline=None)
@given(CASES)
def test_an_accepted_object_has_the_types_of_its_schema(case: tuple[Schema, Object]) -> None:
    schema, obj = case
    if not validate(obj, schema).problems:
        assert has_schema_types(obj, schema)


TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
}


def has_schema_types(value: Any, schema: Schema) -> bool:
    """Compares types only, as a reference implementation."""
    if "type" not in schema or (value is None and schema.get("nullable")):
        return True
    if type(value) not in TYPES[schema["type"]]:
        return False
    if schema["type"] == "array":
        return all(has_schema_types(each, schema["items"]) for each in value)
    if schema["type"] != "object" or schema.get("x-kubernetes-preserve-unknown-fields"):
        return True
    if "additionalProperties" in schema:
        return all(has_schema_types(each, schema["additionalProperties"]) for each in value.values())
    fields = schema["properties"]
    return set(schema.get("required", ())) <= value.keys() <= fields.keys() and all(
        has_schema_types(each, fields[name]) for name, each in value.items()
    )


TYPED = schemas.obj(
    texts=schemas.array(schemas.string()),
    parts=schemas.array(schemas.obj("", name=schemas.string())),
    tags=schemas.mapping(schemas.string()),
    blobs=schemas.mapping(schemas.string(format="byte")),
)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"texts": [None, "a"]}, {"texts": ["", "a"]}),
        ({"parts": [None, {"name": None}]}, {"parts": [{}, {}]}),
        ({"tags": {"a": None}}, {"tags": {"a": ""}}),
        ({"blobs": {"a": []}}, {"blobs": {"a": ""}}),
        ({"blobs": {"a": [1, None, 255]}}, {"blobs": {"a": "AQD/"}}),
        ({"tags": None}, {}),
    ],
)
def test_a_built_in_type_reads_null_as_an_empty_value_and_numbers_as_bytes(sent: Object, expected: Object) -> None:
    assert Validator(TYPED).validate(deepcopy(sent)).problems or sent == {"tags": None}, "others do not"
    assert not Validator(TYPED, zero_nulls=True).validate(sent).problems
    assert sent == expected


@pytest.mark.parametrize("wrong", [[256], [-1], [1.5], [True], ["a"], [[]]])
def test_a_list_of_anything_but_bytes_is_of_the_wrong_type(wrong: list[Any]) -> None:
    found = Validator(TYPED, zero_nulls=True).validate({"blobs": {"a": wrong}}).problems
    assert [(problem.field, problem.reason) for problem in found] == [("blobs.a", "FieldValueTypeInvalid")]


def test_null_can_be_rejected_where_a_value_is_expected() -> None:
    schema = schemas.obj(
        spec=schemas.obj("", name=schemas.string(), mode=schemas.string(default="x"), free=schemas.any_value())
    )
    for sent, fields in (
        ({"spec": None}, ["spec"]),
        ({"spec": {"name": None}}, ["spec.name"]),
        ({"spec": {"mode": None, "free": None}}, []),
    ):
        result = Validator(schema).validate(deepcopy(sent), reject_nulls=True)
        assert [problem.field for problem in result.problems] == fields
        assert not Validator(schema).validate(sent).problems


def test_fields_of_what_should_have_none_are_unknown() -> None:
    sent = {"name": {"a": 1, "b": {}}, "items": {"x": 1}, "tags": [{"y": 1}, 2]}
    result = validate(sent)
    assert sorted(result.unknown_fields) == ["items.x", "name.a", "name.b", "tags[0].y"]
    assert sorted(problem.field for problem in result.problems) == ["items", "name", "tags"]


@pytest.mark.parametrize(("text", "fits"), [("ab1", True), ("1", True), ("ab", False), ("", False)])
def test_a_text_must_match_its_pattern(text: str, fits: bool) -> None:
    schema = schemas.obj(
        name={**schemas.string(), "pattern": "[0-9]$"}, names=schemas.array({**schemas.string(), "pattern": "1"})
    )
    assert problem_reasons({"name": text, "names": ["1"]}, schema) == ([] if fits else [("name", "FieldValueInvalid")])
    assert problem_reasons({"names": [text]}, schema) == ([] if fits else [("names[0]", "FieldValueInvalid")])


def test_a_value_of_the_wrong_type_is_none_of_an_enumeration_either() -> None:
    assert problem_reasons({"name": "x", "mode": 5}) == [
        ("mode", "FieldValueTypeInvalid"),
        ("mode", "FieldValueNotSupported"),
    ]
