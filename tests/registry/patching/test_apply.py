"""registry/patching/apply.py: server-side apply and field ownership, compared with kube-apiserver."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import BadRequest, Conflict
from fairlead.core.objects import Object
from fairlead.registry.patching.apply import BEFORE_FIRST_APPLY
from fairlead.registry.patching.managed_fields import APPLY, FieldManager, record_update
from tests.registry.patching.apply_requests import ENGINE, SCHEMAS, apply, build_config, owned_paths, timestamp


def update(live: Object | None, *, manager: str, at: int = 1, **parts: Any) -> Object:
    """Replaces these parts, or creates the object with them, and returns the new object."""
    new = deepcopy({**(live or build_config()), **parts})
    record_update(live, new, SCHEMAS.by_subresource[""], FieldManager(manager, "example.io/v1", timestamp(at)))
    return new


def expect_conflict(live: Object | None, **options: Any) -> Conflict:
    with pytest.raises(Conflict) as caught:
        apply(live, **options)
    return caught.value


def test_a_manager_owns_the_applied_fields_and_not_their_parents():
    obj = apply(None, manager="a", meta={"labels": {"x": "1"}}, spec={"displayName": "one", "chart": {"name": "n"}})
    assert obj["spec"] == {"displayName": "one", "chart": {"name": "n"}}
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "a",
            "operation": "Apply",
            "apiVersion": "example.io/v1",
            "time": timestamp(1),
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:x": {}}},
                "f:spec": {"f:displayName": {}, "f:chart": {"f:name": {}}},
            },
        }
    ]


def test_two_managers_share_an_object():
    obj = apply(apply(None, manager="a", spec={"displayName": "one"}), manager="b", data={"k": "1"})
    assert (obj["spec"], obj["data"]) == ({"displayName": "one"}, {"k": "1"})
    assert owned_paths(obj) == {("a", "Apply"): ["f:spec/f:displayName"], ("b", "Apply"): ["f:data/f:k"]}


def test_changing_fields_of_other_managers_is_a_conflict_that_names_all_of_them():
    obj = apply(None, manager="a", data={"k": "1", "l": "1"})
    obj = update(apply(obj, manager="b", data={"k": "1"}), manager="writer", data={"k": "1", "l": "1", "m": "1"})
    error = expect_conflict(obj, manager="c", data={"k": "2", "l": "2", "m": "2", "n": "2"})
    assert [(problem.field, problem.reason, problem.message) for problem in error.details.problems] == [
        (".data.k", "FieldManagerConflict", 'conflict with "a"'),
        (".data.l", "FieldManagerConflict", 'conflict with "a"'),
        (".data.k", "FieldManagerConflict", 'conflict with "b"'),
        (".data.m", "FieldManagerConflict", 'conflict with "writer" using example.io/v1'),
    ]
    assert error.message == (
        'Apply failed with 4 conflicts: conflicts with "a":\n- .data.k\n- .data.l\nconflicts with "b":\n- .data.k\n'
        'conflicts with "writer" using example.io/v1:\n- .data.m'
    )


def test_a_single_conflict_is_reported_in_one_line():
    obj = apply(None, manager="a", spec={"ports": [{"port": 1, "name": "x"}]})
    error = expect_conflict(obj, manager="b", spec={"ports": [{"port": 1, "name": "y"}]})
    assert error.message == 'Apply failed with 1 conflict: conflict with "a": .spec.ports[port=1].name'


def test_force_takes_over_the_fields_and_leaves_the_rest_to_their_owner():
    obj = apply(None, manager="a", spec={"displayName": "one", "icon": "i"})
    obj = apply(obj, manager="b", force=True, spec={"displayName": "two"})
    assert obj["spec"] == {"displayName": "two", "icon": "i"}
    assert owned_paths(obj) == {("a", "Apply"): ["f:spec/f:icon"], ("b", "Apply"): ["f:spec/f:displayName"]}


def test_equal_values_are_owned_together_and_removed_with_the_last_owner():
    obj = apply(apply(None, manager="a", data={"k": "1", "l": "1"}), manager="b", data={"k": "1"})
    assert owned_paths(obj) == {("a", "Apply"): ["f:data/f:k", "f:data/f:l"], ("b", "Apply"): ["f:data/f:k"]}
    obj = apply(obj, manager="a", data={"l": "1"})
    assert obj["data"] == {"k": "1", "l": "1"}
    assert apply(obj, manager="b")["data"] == {"l": "1"}


def test_a_field_no_longer_applied_is_removed_with_its_empty_parents():
    obj = apply(None, manager="a", spec={"displayName": "one", "chart": {"name": "n", "values": {"k": "1"}}})
    assert apply(obj, manager="a", spec={"displayName": "one"})["spec"] == {"displayName": "one"}


def test_a_field_no_longer_applied_stays_while_an_updater_owns_it():
    obj = update(apply(None, manager="a", data={"k": "1"}), manager="w", data={"k": "2"})
    obj = apply(obj, manager="a", force=True, data={"k": "2", "l": "1"})
    assert owned_paths(obj)["w", "Update"] == ["f:data/f:k"]
    obj = apply(obj, manager="a", data={})
    assert obj["data"] == {"k": "2"}


def test_unowned_fields_stay_unless_their_parent_is_removed():
    obj = apply(None, manager="a", spec={"extra": {"mine": 1}})
    obj["spec"]["extra"]["unowned"] = 2
    assert apply(obj, manager="a", spec={"extra": {}})["spec"] == {"extra": {"unowned": 2}}
    assert apply(obj, manager="a", spec={"extra": {"more": 3}})["spec"] == {"extra": {"unowned": 2, "more": 3}}
    assert apply(obj, manager="a", spec={"icon": "i"})["spec"] == {"icon": "i"}


def test_an_object_with_fields_of_other_managers_stays():
    obj = apply(
        apply(None, manager="a", spec={"chart": {"name": "n"}}), manager="b", spec={"chart": {"values": {"k": "1"}}}
    )
    assert apply(obj, manager="a", spec={"icon": "i"})["spec"] == {"chart": {"values": {"k": "1"}}, "icon": "i"}


def test_an_emptied_object_that_is_still_applied_is_null():
    obj = apply(None, manager="a", spec={"displayName": "one"}, data={"k": "1"})
    obj = apply(obj, manager="a", spec={}, data={"k": "1"})
    assert obj["spec"] is None
    assert owned_paths(obj) == {("a", "Apply"): ["f:data/f:k", "f:spec"]}


def test_applying_nothing_removes_the_managed_fields_entry_but_not_the_object():
    obj = apply(None, manager="a", meta={"labels": {"x": "1"}, "finalizers": ["x.io/a"]}, data={"k": "1"})
    obj["metadata"]["uid"] = "u"
    assert apply(obj, manager="a") == build_config({"uid": "u"})


def test_list_maps_are_owned_and_removed_item_by_item():
    obj = apply(None, manager="a", spec={"ports": [{"port": 1, "name": "x"}, {"port": 2}]})
    obj = apply(obj, manager="b", spec={"ports": [{"port": 3}, {"port": 2, "name": "two"}]})
    assert obj["spec"]["ports"] == [{"port": 1, "name": "x"}, {"port": 3}, {"port": 2, "name": "two"}]
    obj = apply(obj, manager="a", spec={"ports": [{"port": 1}]})
    assert obj["spec"]["ports"] == [{"port": 1}, {"port": 3}, {"port": 2, "name": "two"}]


def test_atomic_lists_are_owned_as_one():
    obj = apply(None, manager="a", spec={"users": ["x"]})
    assert expect_conflict(obj, manager="b", spec={"users": ["y"]}).details.problems[0].field == ".spec.users"
    assert apply(obj, manager="b", force=True, spec={"users": ["y"]})["spec"]["users"] == ["y"]


def test_an_update_owns_what_it_changes_and_the_next_apply_conflicts():
    obj = update(apply(None, manager="a", data={"k": "1"}), manager="a", data={"k": "2", "l": "2"})
    assert owned_paths(obj) == {("a", "Update"): ["f:data/f:k", "f:data/f:l"]}
    assert (
        expect_conflict(obj, manager="a", data={"k": "1"}).details.problems[0].message
        == 'conflict with "a" using example.io/v1'
    )
    obj = apply(obj, manager="a", force=True, data={"k": "1"})
    assert owned_paths(obj) == {("a", "Apply"): ["f:data/f:k"], ("a", "Update"): ["f:data/f:l"]}


def test_fields_without_managed_fields_belong_to_the_before_first_apply_manager():
    obj = build_config(data={"k": "1"}, status={"phase": "x"})
    assert expect_conflict(obj, manager="a", data={"k": "2"}).message.endswith(
        f'conflict with "{BEFORE_FIRST_APPLY}" using example.io/v1: .data.k'
    )
    obj = apply(obj, manager="a", data={"k": "1", "l": "2"})
    assert owned_paths(obj) == {
        ("a", "Apply"): ["f:data/f:k", "f:data/f:l"],
        (BEFORE_FIRST_APPLY, "Update"): ["f:data", "f:data/f:k"],
    }


def test_the_time_is_that_of_the_last_change_of_the_object():
    first = apply(None, manager="a", at=1, data={"k": "1", "l": "1"})
    assert apply(first, manager="a", at=2, data={"k": "1", "l": "1"}) == first
    shared = apply(first, manager="b", at=3, data={"k": "1"})
    assert entry_times(shared) == {"a": timestamp(1), "b": None}
    assert entry_times(apply(shared, manager="b", at=4, data={"k": "1", "l": "1"})) == entry_times(shared)
    changed = apply(shared, manager="b", at=5, data={"k": "1", "m": "2"})
    assert entry_times(changed) == {"a": timestamp(1), "b": timestamp(5)}
    claimed = apply(changed, manager="a", at=6, data={"k": "1", "l": "1", "m": "2"})
    assert entry_times(claimed) == entry_times(changed)


def entry_times(obj: Object) -> dict[str, str | None]:
    return {entry["manager"]: entry.get("time") for entry in obj["metadata"]["managedFields"]}


def test_the_status_is_applied_through_its_subresource_only():
    obj = apply(None, manager="a", spec={"icon": "i"}, status={"phase": "no"})
    assert owned_paths(obj) == {("a", "Apply"): ["f:spec/f:icon"]}
    obj = {**obj, "status": {}}
    obj = apply(obj, manager="a", subresource="status", spec={"icon": "j"}, status={"phase": "Ready"})
    entries = obj["metadata"]["managedFields"]
    assert [(entry.get("subresource"), entry["fieldsV1"]) for entry in entries] == [
        (None, {"f:spec": {"f:icon": {}}}),
        ("status", {"f:status": {"f:phase": {}}}),
    ]


def test_conflicts_name_the_subresource_of_the_owner():
    obj = apply(build_config(), manager="a", subresource="status", status={"phase": "x"})
    error = expect_conflict(obj, manager="b", subresource="status", status={"phase": "y"})
    assert error.details.problems[0].message == 'conflict with "a" with subresource "status"'


def test_the_resource_version_is_left_to_the_registry_to_check():
    live = apply(None, manager="a", data={"k": "1"})
    live["metadata"].update(uid="u", resourceVersion="5", creationTimestamp="t")
    result = apply(live, manager="a", meta={"resourceVersion": "4", "uid": "v", "creationTimestamp": None})
    assert result["metadata"] == {"name": "a", "uid": "v", "resourceVersion": "4", "creationTimestamp": "t"}
    for nothing in ("", None):
        result = apply(live, manager="a", meta={"resourceVersion": nothing, "uid": nothing})
        assert (result["metadata"]["uid"], result["metadata"]["resourceVersion"]) == ("u", "5")


def test_a_new_object_has_no_resource_version_and_no_uid():
    assert "resourceVersion" not in apply(None, manager="a", meta={"resourceVersion": "4"})["metadata"]
    assert (
        "uid mismatch: the provided object specified uid u"
        in expect_conflict(None, manager="a", meta={"uid": "u"}).message
    )


INVALID: list[tuple[str, Any, str]] = [
    ("no object", [], "the body must be an object"),
    ("nothing", None, "invalid object type: /, Kind=; expected example.io/v1, Kind=Gadget"),
    ("no kind", {"apiVersion": "example.io/v1"}, "invalid object type: example.io/v1, Kind=;"),
    ("no version", {"kind": "Gadget"}, "invalid object type: /, Kind=Gadget;"),
    ("another version", {**build_config(), "apiVersion": "v1"}, "invalid object type: /v1, Kind=Gadget;"),
    ("no version at all", {**build_config(), "apiVersion": "a/b/c"}, "invalid object type: /, Kind=Gadget;"),
    ("another kind", {**build_config(), "kind": 5}, "invalid object type: example.io/v1, Kind=;"),
    ("managed fields", build_config({"managedFields": []}), "metadata.managedFields must be nil"),
    ("metadata of a wrong type", {**build_config(), "metadata": []}, ".metadata: expected map, got []"),
    ("a name of a wrong type", build_config({"name": 5}), ".metadata.name: expected string, got 5"),
    ("an unknown field", build_config(spec={"x": 1}), "(/a; example.io/v1, Kind=Gadget): .spec.x: field not declared"),
]


@pytest.mark.parametrize(("what", "body", "message"), INVALID, ids=[row[0] for row in INVALID])
def test_an_invalid_configuration_is_rejected(what: str, body: Any, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        ENGINE.check_config(body)
    assert message in caught.value.message


def test_the_live_object_and_the_configuration_are_not_modified():
    live = apply(None, manager="a", spec={"ports": [{"port": 1}], "extra": {"a": {"b": 1}}}, data={"k": "1"})
    wanted = build_config(spec={"ports": [{"port": 2}], "extra": {"a": {"c": 1}}})
    before = deepcopy((live, wanted))
    new = ENGINE.apply_config(live, wanted, FieldManager("a", "example.io/v1", timestamp(1), "", APPLY), force=True)
    new["spec"]["extra"]["a"]["d"] = new["spec"]["ports"][0]["x"] = 1
    assert (live, wanted) == before


states = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)
contents = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), min_size=1, max_size=3)


@given(st.lists(st.tuples(st.sampled_from("xyz"), contents, st.booleans()), min_size=1, max_size=8))
def test_after_any_sequence_each_manager_has_its_last_values_unless_forced_away(writes):
    obj: Object | None = None
    claims: dict[str, dict[str, str]] = {}
    for who, data, force in writes:
        others = {name: claim for name, claim in claims.items() if name != who}
        contested = [key for key in data for claim in others.values() if claim.get(key, data[key]) != data[key]]
        if contested and not force:
            assert obj is not None
            expect_conflict(obj, manager=who, data=data)
            continue
        obj = apply(obj, manager=who, force=force, data=data)
        for claim in others.values():
            for key in contested:
                claim.pop(key, None)
        claims = {**others, who: dict(data)}
        wanted = {key: value for claim in claims.values() for key, value in claim.items()}
        assert (obj.get("data") or {}) == wanted
        expected = {(name, "Apply"): sorted(f"f:data/f:{key}" for key in claim) for name, claim in claims.items()}
        found = {key: [path for path in fields if path != "f:data"] for key, fields in owned_paths(obj).items()}
        assert {key: fields for key, fields in found.items() if fields} == {k: v for k, v in expected.items() if v}


@given(states, states, states)
def test_applying_the_same_again_changes_nothing(made, mine, again):
    obj = update(None, manager="w", data=made)
    first = apply(obj, manager="a", at=2, force=True, data=mine, spec={"extra": again})
    assert apply(first, manager="a", at=3, data=mine, spec={"extra": again}) == first
