"""registry/patching/json_patch.py: JSON patch by RFC 6902, and limits on its cost."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fairlead.core.body_errors import MAX_DEPTH
from fairlead.core.errors import BadRequest, Invalid, TooLarge
from fairlead.registry import limits
from fairlead.registry.patching import json_patch
from fairlead.registry.patching.field_set import is_equal_json
from fairlead.registry.patching.json_patch import apply

names = st.sampled_from(["a", "b", "c/d", "~", ""])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(names, values, max_size=3)


def list_pointers(value: Any, prefix: str = "") -> list[str]:
    """Returns every JSON pointer into a value except the empty one."""
    if isinstance(value, dict):
        inside = [(name.replace("~", "~0").replace("/", "~1"), each) for name, each in value.items()]
    else:
        inside = [(str(index), each) for index, each in enumerate(value)] if isinstance(value, list) else []
    found = []
    for token, each in inside:
        found += [f"{prefix}/{token}", *list_pointers(each, f"{prefix}/{token}")]
    return found


def resolve(value: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        value = value[int(token)] if isinstance(value, list) else value[token.replace("~1", "/").replace("~0", "~")]
    return value


@st.composite
def documents_and_pointers(draw: st.DrawFn) -> tuple[Any, str]:
    document = draw(documents)
    found = list_pointers(document)
    assume(found)
    return document, draw(st.sampled_from(found))


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        ({"a": 1}, {"op": "add", "path": "/b", "value": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"op": "add", "path": "/a", "value": None}, {"a": None}),
        ({"a": [1, 3]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2, 3]}),
        ({"a": [1]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-", "value": [2]}, {"a": [1, [2]]}),
        ({"a": [1, 3]}, {"op": "add", "path": "/a/-2", "value": 2}, {"a": [1, 2, 3]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-1", "value": 2}, {"a": [1, 2]}),
        ({"a": [1, 3]}, {"op": "add", "path": "/a/+01", "value": 2}, {"a": [1, 2, 3]}),
        ({"a": 1}, {"op": "add", "path": "/a"}, {"a": None}),
        ({"a": 1}, {"op": "add", "path": "ignored/b", "value": 2}, {"a": 1, "b": 2}),
        ({}, {"op": "add", "path": "/~2", "value": 2}, {"~2": 2}),
        ({}, {"op": "add", "path": "/~", "value": 2}, {"~": 2}),
        ({"a": [1, 2, 3]}, {"op": "remove", "path": "/a/-1"}, {"a": [1, 2]}),
        ({"a": {}}, {"op": "copy", "from": "/a/b", "path": "/c"}, {"a": {}, "c": None}),
        ({"a": None}, {"op": "copy", "from": "/a", "path": "/c"}, {"a": None, "c": None}),
        ({"a": {}}, {"op": "test", "path": "/a/b"}, {"a": {}}),
        ({"a": {}}, {"op": "test", "path": "", "value": {"a": {}}}, {"a": {}}),
        ({"a": {}}, {"op": "replace", "path": "/a"}, {"a": None}),
        ({"a": 1}, {"op": "add", "path": "/", "value": 2}, {"a": 1, "": 2}),
        ({"a": 1, "b": 2}, {"op": "remove", "path": "/a"}, {"b": 2}),
        ({"a": [1, 2, 3]}, {"op": "remove", "path": "/a/1"}, {"a": [1, 3]}),
        ({"a": 1}, {"op": "replace", "path": "/a", "value": 2}, {"a": 2}),
        ({"a": [1, 2]}, {"op": "replace", "path": "/a/0", "value": 3}, {"a": [3, 2]}),
        ({"a": {}}, {"op": "replace", "path": "/a/b", "value": 1}, {"a": {"b": 1}}),
        ({"a": 1}, {"op": "replace", "path": "", "value": {}}, {}),
        ({"a": {"b": 1}, "c": {}}, {"op": "move", "from": "/a/b", "path": "/c/d"}, {"a": {}, "c": {"d": 1}}),
        ({"a": [1, 2, 3]}, {"op": "move", "from": "/a/0", "path": "/a/2"}, {"a": [2, 3, 1]}),
        ({"a": {"b": {"c": 1}}}, {"op": "move", "from": "/a/b", "path": "/a"}, {"a": {"c": 1}}),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a", "path": "/a"}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"op": "copy", "from": "/a", "path": "/a/c"}, {"a": {"b": 1, "c": {"b": 1}}}),
        ({"a/b": 1, "m~n": 2}, {"op": "remove", "path": "/a~1b"}, {"m~n": 2}),
        ({"a/b": 1, "m~n": 2}, {"op": "remove", "path": "/m~0n"}, {"a/b": 1}),
        ({"~1": 1}, {"op": "replace", "path": "/~01", "value": 2}, {"~1": 2}),
        ({"0": 1}, {"op": "remove", "path": "/0"}, {}),
        ({"a": 1}, {"op": "add", "path": "/b", "value": 2, "note": "ignored"}, {"a": 1, "b": 2}),
    ],
)
def test_applying_an_operation(document, operation, expected):
    assert apply(document, [operation]) == expected


@pytest.mark.parametrize(
    ("value", "tested"),
    [
        (1, 1),
        (1.5, 1.5),
        ("x", "x"),
        (None, None),
        ([1, {"b": 2}], [1, {"b": 2}]),
        ({"x": 1, "y": 2}, {"y": 2, "x": 1}),
    ],
)
def test_a_test_operation_that_matches(value, tested):
    assert apply({"a": value}, [{"op": "test", "path": "/a", "value": tested}]) == {"a": value}


@pytest.mark.parametrize(
    ("value", "tested"),
    [
        (1, 2),
        (1, 1.0),
        (1000, 1e3),
        (1, "1"),
        (1, None),
        (1, True),
        (0, False),
        ([1, 2], [2, 1]),
        ({"x": 1}, {}),
        ([True], [1]),
    ],
)
def test_a_test_operation_that_does_not_match(value, tested):
    with pytest.raises(Invalid, match="read the object again"):
        apply({"a": value}, [{"op": "test", "path": "/a", "value": tested}])


def test_a_test_for_null_matches_a_missing_field_but_not_a_missing_parent():
    assert apply({"a": {}}, [{"op": "test", "path": "/a/b", "value": None}]) == {"a": {}}
    with pytest.raises(Invalid):
        apply({"a": {}}, [{"op": "test", "path": "/a/b/c", "value": None}])


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/spec/nothing"},
        {"op": "remove", "path": "/nothing/at/all"},
        {"op": "add", "path": "/nothing/x", "value": 1},
        {"op": "replace", "path": "/nothing/x", "value": 1},
        {"op": "add", "path": "/spec/icon/x", "value": 1},
        {"op": "test", "path": "/spec/nothing", "value": 1},
        {"op": "add", "path": "/list/3", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "add", "path": "/list/\u0661", "value": 1},
        {"op": "add", "path": "/list/" + "9" * 5000, "value": 1},
        {"op": "replace", "path": "/list/-", "value": 1},
        {"op": "replace", "path": "/list/2", "value": 1},
        {"op": "remove", "path": "/list/2"},
        {"op": "remove", "path": "/list/-"},
        {"op": "remove", "path": "/list/"},
        {"op": "test", "path": "/list/2", "value": None},
        {"op": "move", "from": "/nothing", "path": "/spec/x"},
        {"op": "move", "from": "/nothing", "path": "/nothing"},
        {"op": "move", "from": "/spec", "path": "/spec/x"},
        {"op": "move", "from": "", "path": "/spec/x"},
        {"op": "move", "path": "/spec/x"},
        {"op": "test", "path": "/spec/icon"},
        {"op": "add", "value": 1},
        {"op": "merge", "path": "/spec", "value": 1},
        {"path": "/spec", "value": 1},
        {},
        {"op": "add", "path": "", "value": {}},
        {"op": "add", "path": "spec", "value": {}},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "", "value": 5},
        {"op": "replace", "path": ""},
        {"op": "add", "path": "/list/-4", "value": 1},
        {"op": "remove", "path": "/list/-3"},
        {"op": "copy", "from": "/nothing/x", "path": "/spec/x"},
        {"op": "copy", "from": "", "path": "/spec/x"},
    ],
)
def test_an_operation_that_cannot_be_applied(operation):
    document = {"spec": {"icon": "i"}, "list": [1, 2]}
    with pytest.raises(Invalid) as caught:
        apply(document, [{"op": "add", "path": "/spec/before", "value": 1}, operation])
    assert (caught.value.code, caught.value.details.problems) == (422, ())
    assert caught.value.message.startswith("the server rejected our request due to an error in our request: ")
    assert document == {"spec": {"icon": "i"}, "list": [1, 2]}


def test_a_result_that_is_not_an_object_is_a_problem_of_the_patch():
    with pytest.raises(Invalid) as caught:
        apply({"a": 1}, [{"op": "replace", "path": "", "value": [1]}])
    assert [problem.field for problem in caught.value.details.problems] == ["patch"]


def test_the_error_names_the_failed_operation():
    operations = [{"op": "add", "path": "/a", "value": 1}, {"op": "remove", "path": "/b"}]
    with pytest.raises(Invalid, match=r"operation 1 \(remove /b\): there is no 'b'"):
        apply({}, operations)


def test_the_error_is_short_for_a_long_path():
    with pytest.raises(Invalid) as caught:
        apply({}, [{"op": "remove", "path": "/" + "x" * 100_000}])
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    "body", [{"op": "add"}, ["x"], [None], "x", 5, [{"op": 1}], [{"op": "add", "path": 1}], [{"from": None}]]
)
def test_a_body_that_is_not_a_list_of_operations_is_rejected(body):
    with pytest.raises(BadRequest, match="error decoding patch"):
        apply({}, body)


def test_an_empty_patch_changes_nothing():
    assert apply({"a": 1}, []) == {"a": 1}


def test_too_many_operations_are_rejected():
    operations = [{"op": "test", "path": "", "value": {}}] * 10_001
    with pytest.raises(TooLarge, match="The allowed maximum operations in a JSON patch is 10000, got 10001"):
        apply({}, operations)
    assert apply({}, operations[1:]) == {}


def test_copies_of_copies_are_rejected_when_too_large():
    operations: list[dict] = [{"op": "add", "path": "/a", "value": {"x": "y" * 100}}]
    operations += [{"op": "copy", "from": "/a", "path": f"/a/c{number}"} for number in range(40)]
    with pytest.raises(TooLarge, match="copy less"):
        apply({}, operations)


def test_repeated_shifts_of_a_long_list_are_rejected(monkeypatch):
    monkeypatch.setattr(json_patch, "MAX_SHIFTED_ENTRIES", 1000)
    at_the_end = [{"op": "add", "path": "/a/-", "value": 0}] * 1000
    assert len(apply({"a": []}, at_the_end)["a"]) == 1000
    with pytest.raises(TooLarge, match="start from its end"):
        apply({"a": list(range(100))}, [{"op": "remove", "path": "/a/0"}] * 20)
    with pytest.raises(TooLarge, match="start from its end"):
        apply({"a": list(range(100))}, [{"op": "add", "path": "/a/0", "value": 0}] * 20)


@pytest.mark.parametrize(
    "last",
    [
        {"op": "test", "path": "/x", "value": {}},
        {"op": "copy", "from": "/x", "path": "/y"},
        {"op": "test", "path": "", "value": 1},
    ],
)
def test_moves_that_nest_too_deeply_are_rejected(last):
    operations: list[dict] = [{"op": "add", "path": "/x", "value": {}}]
    for _ in range(2000):
        operations += [{"op": "add", "path": "/y", "value": {}}, {"op": "move", "from": "/x", "path": "/y/x"}]
        operations += [{"op": "move", "from": "/y", "path": "/x"}]
    with pytest.raises(Invalid):
        apply({}, [*operations, last])
    with pytest.raises(Invalid, match="nested too deeply"):
        apply({}, operations)


def test_copies_that_nest_too_deeply_are_rejected():
    nested: Any = 1
    for _ in range(150):
        nested = {"x": nested}
    grow = [{"op": "copy", "from": "/a", "path": "/a" + "/x" * 149 + "/x"}] * 2
    with pytest.raises(Invalid, match="nested too deeply"):
        apply({"a": nested}, grow)


def test_a_patch_can_nest_as_deeply_as_a_body_and_no_deeper():
    nested: Any = 1
    for _ in range(MAX_DEPTH - 2):
        nested = [nested]
    assert apply({"a": {}}, [{"op": "add", "path": "/a/b", "value": nested}]) == {"a": {"b": nested}}
    with pytest.raises(Invalid, match="nested too deeply"):
        apply({"a": {"b": {}}}, [{"op": "add", "path": "/a/b/c", "value": nested}])


@given(documents_and_pointers())
def test_every_value_matches_a_test_for_itself(pair):
    document, pointer = pair
    assert apply(document, [{"op": "test", "path": pointer, "value": resolve(document, pointer)}]) == document


@given(documents_and_pointers(), values)
def test_a_replaced_value_can_be_read_back(pair, value):
    document, pointer = pair
    assert is_equal_json(resolve(apply(document, [{"op": "replace", "path": pointer, "value": value}]), pointer), value)


@given(documents_and_pointers(), values)
def test_an_added_value_can_be_removed(pair, value):
    document, pointer = pair
    parent = resolve(document, pointer.rpartition("/")[0])
    back = [{"op": "add", "path": pointer, "value": value}, {"op": "remove", "path": pointer}]
    if isinstance(parent, list):
        assert apply(document, back) == document
    else:
        assert apply(document, back) == apply(document, back[1:])


@given(documents_and_pointers(), values)
def test_moving_a_value_and_back_changes_nothing(pair, value):
    document, pointer = pair
    document = {"document": document, "aside": value}
    there = {"op": "move", "from": "/document" + pointer, "path": "/new"}
    assert apply(document, [there, {**there, "from": "/new", "path": "/document" + pointer}]) == document


@given(documents_and_pointers())
def test_a_copy_is_equal_and_independent(pair):
    document, pointer = pair
    copied = apply({"document": document}, [{"op": "copy", "from": "/document" + pointer, "path": "/new"}])
    assert is_equal_json(copied["new"], resolve(document, pointer))
    emptied = apply(copied, [{"op": "replace", "path": "/document" + pointer, "value": "gone"}])
    assert is_equal_json(emptied["new"], resolve(document, pointer))


@given(documents, values)
def test_document_and_patch_are_not_modified(document, value):
    operations = [
        {"op": "add", "path": "/new", "value": {"inner": value}},
        {"op": "add", "path": "/new/more", "value": 1},
        {"op": "copy", "from": "/new", "path": "/again"},
        {"op": "remove", "path": "/again/inner"},
    ]
    before = deepcopy((document, operations))
    result = apply(document, operations)
    result["new"]["inner"] = "changed"
    assert (document, operations) == before


def test_null_is_a_patch_without_operations():
    assert apply({"a": 1}, None) == {"a": 1}


@pytest.mark.parametrize("name", ["path", "from"])
@pytest.mark.parametrize("piece", ["/", "/x", "/~1", "/1", "x"])
def test_a_long_path_is_rejected_with_its_length(name, piece):
    """Before it is split: a path of three million slashes would take 40 ms in a single call."""
    path = "/" + piece * limits.PATCH_PATH
    with pytest.raises(Invalid, match=f"{name} has {len(path)} characters, at most 65536 are allowed"):
        apply({"a": 1}, [{"op": "move", "from": "/a", "path": "/b", name: path}])


def test_a_path_of_the_longest_length_is_accepted():
    path = "/" + "x" * (limits.PATCH_PATH - 1)
    assert apply({}, [{"op": "add", "path": path, "value": 1}]) == {path[1:]: 1}
