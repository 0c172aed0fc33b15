"""Who applies what, and what becomes of it: conversations as a kube-apiserver holds them, without a store."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import BadRequest, Conflict
from fairlead.core.objects import Object
from fairlead.registry import schema as words
from fairlead.registry.kind import Kind, Sensitivity
from fairlead.registry.patching.apply import BEFORE_FIRST_APPLY, ApplyEngine
from fairlead.registry.patching.field_set import iter_paths
from fairlead.registry.patching.managed_fields import APPLY, FieldManager, record_apply, record_update
from fairlead.registry.patching.merge_schema import build_merge_schemas

KIND = Kind(
    name="Gadget",
    plural="gadgets",
    namespaced=False,
    group="example.io",
    fields={
        "spec": words.obj(
            "",
            displayName=words.string(),
            icon=words.string(),
            chart=words.obj("", name=words.string(), values=words.mapping(words.string())),
            users=words.array(words.string()),
            ports=words.array_map(("port",), words.obj("", port=words.integer(), name=words.string())),
            extra=words.open_object(),
        ),
        "data": words.mapping(words.string()),
        "status": words.obj("", phase=words.string()),
    },
    description="",
    status_subresource=True,
    sensitivity=Sensitivity.NORMAL,
)
SHAPES = build_merge_schemas(KIND)
APPLYING = ApplyEngine.for_kind(KIND, SHAPES)


def moment(second: int) -> str:
    return f"2025-01-01T00:00:{second:02}Z"


def config(meta: Object | None = None, **parts: Any) -> Object:
    return {"apiVersion": "example.io/v1", "kind": "Gadget", "metadata": {"name": "a", **(meta or {})}, **parts}


def applied(
    live: Object | None, *, by: str, at: int = 1, force: bool = False, subresource: str = "", **parts: Any
) -> Object:
    """The object after somebody applied these parts of it."""
    wanted = APPLYING.check_config(config(**parts))
    writer = FieldManager(by, "example.io/v1", moment(at), subresource, APPLY)
    new = (
        APPLYING.build_new(wanted, writer) if live is None else APPLYING.apply_config(live, wanted, writer, force=force)
    )
    record_apply(live, new, writer)
    return new


def updated(live: Object | None, *, by: str, at: int = 1, **parts: Any) -> Object:
    """The object after somebody replaced these parts of it, or made it of them."""
    new = deepcopy({**(live or config()), **parts})
    record_update(live, new, SHAPES.by_subresource[""], FieldManager(by, "example.io/v1", moment(at)))
    return new


def owned(obj: Object) -> dict[tuple[str, str], list[str]]:
    """Manager and operation -> the paths it owns."""
    entries = obj["metadata"].get("managedFields", [])
    return {
        (entry["manager"], entry["operation"]): sorted("/".join(path) for path in iter_paths(entry["fieldsV1"]))
        for entry in entries
    }


def refused(live: Object | None, **asked: Any) -> Conflict:
    with pytest.raises(Conflict) as caught:
        applied(live, **asked)
    return caught.value


def test_who_applies_owns_the_fields_that_were_named_and_no_structures_around_them():
    obj = applied(None, by="a", meta={"labels": {"x": "1"}}, spec={"displayName": "one", "chart": {"name": "n"}})
    assert obj["spec"] == {"displayName": "one", "chart": {"name": "n"}}
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "a",
            "operation": "Apply",
            "apiVersion": "example.io/v1",
            "time": moment(1),
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:x": {}}},
                "f:spec": {"f:displayName": {}, "f:chart": {"f:name": {}}},
            },
        }
    ]


def test_two_managers_share_an_object():
    obj = applied(applied(None, by="a", spec={"displayName": "one"}), by="b", data={"k": "1"})
    assert (obj["spec"], obj["data"]) == ({"displayName": "one"}, {"k": "1"})
    assert owned(obj) == {("a", "Apply"): ["f:spec/f:displayName"], ("b", "Apply"): ["f:data/f:k"]}


def test_another_value_for_what_others_own_is_a_conflict_that_names_all_of_them():
    obj = applied(None, by="a", data={"k": "1", "l": "1"})
    obj = updated(applied(obj, by="b", data={"k": "1"}), by="writer", data={"k": "1", "l": "1", "m": "1"})
    error = refused(obj, by="c", data={"k": "2", "l": "2", "m": "2", "n": "2"})
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


def test_a_single_conflict_is_told_in_one_line():
    obj = applied(None, by="a", spec={"ports": [{"port": 1, "name": "x"}]})
    error = refused(obj, by="b", spec={"ports": [{"port": 1, "name": "y"}]})
    assert error.message == 'Apply failed with 1 conflict: conflict with "a": .spec.ports[port=1].name'


def test_force_takes_the_fields_over_and_leaves_the_rest_to_their_owner():
    obj = applied(None, by="a", spec={"displayName": "one", "icon": "i"})
    obj = applied(obj, by="b", force=True, spec={"displayName": "two"})
    assert obj["spec"] == {"displayName": "two", "icon": "i"}
    assert owned(obj) == {("a", "Apply"): ["f:spec/f:icon"], ("b", "Apply"): ["f:spec/f:displayName"]}


def test_equal_values_are_owned_together_and_go_with_the_last_owner():
    obj = applied(applied(None, by="a", data={"k": "1", "l": "1"}), by="b", data={"k": "1"})
    assert owned(obj) == {("a", "Apply"): ["f:data/f:k", "f:data/f:l"], ("b", "Apply"): ["f:data/f:k"]}
    obj = applied(obj, by="a", data={"l": "1"})
    assert obj["data"] == {"k": "1", "l": "1"}
    assert applied(obj, by="b")["data"] == {"l": "1"}


def test_a_field_left_out_goes_with_the_structures_that_held_nothing_else():
    obj = applied(None, by="a", spec={"displayName": "one", "chart": {"name": "n", "values": {"k": "1"}}})
    assert applied(obj, by="a", spec={"displayName": "one"})["spec"] == {"displayName": "one"}


def test_a_field_left_out_stays_while_an_updater_owns_it():
    obj = updated(applied(None, by="a", data={"k": "1"}), by="w", data={"k": "2"})
    obj = applied(obj, by="a", force=True, data={"k": "2", "l": "1"})
    assert owned(obj)["w", "Update"] == ["f:data/f:k"]
    obj = applied(obj, by="a", data={})
    assert obj["data"] == {"k": "2"}


def test_what_nobody_owns_stays_in_a_structure_that_stays_and_goes_with_one_that_goes():
    obj = applied(None, by="a", spec={"extra": {"mine": 1}})
    obj["spec"]["extra"]["nobodys"] = 2
    assert applied(obj, by="a", spec={"extra": {}})["spec"] == {"extra": {"nobodys": 2}}
    assert applied(obj, by="a", spec={"extra": {"more": 3}})["spec"] == {"extra": {"nobodys": 2, "more": 3}}
    assert applied(obj, by="a", spec={"icon": "i"})["spec"] == {"icon": "i"}


def test_a_structure_that_others_put_something_into_stays_for_them():
    obj = applied(applied(None, by="a", spec={"chart": {"name": "n"}}), by="b", spec={"chart": {"values": {"k": "1"}}})
    assert applied(obj, by="a", spec={"icon": "i"})["spec"] == {"chart": {"values": {"k": "1"}}, "icon": "i"}


def test_an_emptied_structure_that_is_still_wanted_stays_empty():
    obj = applied(None, by="a", spec={"displayName": "one"}, data={"k": "1"})
    obj = applied(obj, by="a", spec={}, data={"k": "1"})
    assert obj["spec"] == {}
    assert owned(obj) == {("a", "Apply"): ["f:data/f:k", "f:spec"]}


def test_giving_up_everything_takes_the_entry_away_but_not_the_object():
    obj = applied(None, by="a", meta={"labels": {"x": "1"}, "finalizers": ["x.io/a"]}, data={"k": "1"})
    obj["metadata"]["uid"] = "u"
    assert applied(obj, by="a") == config({"uid": "u"})


def test_lists_by_keys_are_owned_and_given_up_entry_by_entry():
    obj = applied(None, by="a", spec={"ports": [{"port": 1, "name": "x"}, {"port": 2}]})
    obj = applied(obj, by="b", spec={"ports": [{"port": 3}, {"port": 2, "name": "two"}]})
    assert obj["spec"]["ports"] == [{"port": 1, "name": "x"}, {"port": 3}, {"port": 2, "name": "two"}]
    obj = applied(obj, by="a", spec={"ports": [{"port": 1}]})
    assert obj["spec"]["ports"] == [{"port": 1}, {"port": 3}, {"port": 2, "name": "two"}]


def test_lists_without_keys_are_owned_as_one():
    obj = applied(None, by="a", spec={"users": ["x"]})
    assert refused(obj, by="b", spec={"users": ["y"]}).details.problems[0].field == ".spec.users"
    assert applied(obj, by="b", force=True, spec={"users": ["y"]})["spec"]["users"] == ["y"]


def test_an_update_takes_what_it_changes_and_the_next_apply_conflicts_also_under_the_same_name():
    obj = updated(applied(None, by="a", data={"k": "1"}), by="a", data={"k": "2", "l": "2"})
    assert owned(obj) == {("a", "Update"): ["f:data/f:k", "f:data/f:l"]}
    assert refused(obj, by="a", data={"k": "1"}).details.problems[0].message == 'conflict with "a" using example.io/v1'
    obj = applied(obj, by="a", force=True, data={"k": "1"})
    assert owned(obj) == {("a", "Apply"): ["f:data/f:k"], ("a", "Update"): ["f:data/f:l"]}


def test_what_was_there_before_anybody_was_recorded_belongs_to_a_manager_of_its_own():
    obj = config(data={"k": "1"}, status={"phase": "x"})
    assert refused(obj, by="a", data={"k": "2"}).message.endswith(
        f'conflict with "{BEFORE_FIRST_APPLY}" using example.io/v1: .data.k'
    )
    obj = applied(obj, by="a", data={"k": "1", "l": "2"})
    assert owned(obj) == {
        ("a", "Apply"): ["f:data/f:k", "f:data/f:l"],
        (BEFORE_FIRST_APPLY, "Update"): ["f:data", "f:data/f:k"],
    }


def test_the_time_is_that_of_the_last_change_of_the_object_or_of_the_claims():
    first = applied(None, by="a", at=1, data={"k": "1"})
    assert applied(first, by="a", at=2, data={"k": "1"}) == first
    shared = applied(first, by="b", at=3, data={"k": "1"})
    assert [entry["time"] for entry in shared["metadata"]["managedFields"]] == [moment(1), moment(3)]
    changed = applied(first, by="a", at=4, data={"k": "2"})
    assert [entry["time"] for entry in changed["metadata"]["managedFields"]] == [moment(4)]


def test_a_status_that_a_controller_owns_is_applied_through_its_subresource_alone():
    obj = applied(None, by="a", spec={"icon": "i"}, status={"phase": "no"})
    assert owned(obj) == {("a", "Apply"): ["f:spec/f:icon"]}
    obj = {**obj, "status": {}}
    obj = applied(obj, by="a", subresource="status", spec={"icon": "j"}, status={"phase": "Ready"})
    entries = obj["metadata"]["managedFields"]
    assert [(entry.get("subresource"), entry["fieldsV1"]) for entry in entries] == [
        (None, {"f:spec": {"f:icon": {}}}),
        ("status", {"f:status": {"f:phase": {}}}),
    ]


def test_conflicts_name_the_subresource_of_the_owner():
    obj = applied(config(), by="a", subresource="status", status={"phase": "x"})
    error = refused(obj, by="b", subresource="status", status={"phase": "y"})
    assert error.details.problems[0].message == 'conflict with "a" with subresource "status"'


def test_conditions_on_the_version_are_left_to_the_registry():
    live = applied(None, by="a", data={"k": "1"})
    live["metadata"].update(uid="u", resourceVersion="5", creationTimestamp="t")
    asked = applied(live, by="a", meta={"resourceVersion": "4", "uid": "v", "creationTimestamp": None})
    assert asked["metadata"] == {"name": "a", "uid": "v", "resourceVersion": "4", "creationTimestamp": "t"}
    for nothing in ("", None):
        asked = applied(live, by="a", meta={"resourceVersion": nothing, "uid": nothing})
        assert (asked["metadata"]["uid"], asked["metadata"]["resourceVersion"]) == ("u", "5")


def test_what_is_created_has_no_version_to_fit_and_no_uid():
    assert "resourceVersion" not in applied(None, by="a", meta={"resourceVersion": "4"})["metadata"]
    assert "uid mismatch: the provided object specified uid u" in refused(None, by="a", meta={"uid": "u"}).message


WRONG: list[tuple[str, Any, str]] = [
    ("no object", [], "the body must be an object"),
    ("nothing", None, "invalid object type: /, Kind=; expected example.io/v1, Kind=Gadget"),
    ("no kind", {"apiVersion": "example.io/v1"}, "invalid object type: example.io/v1, Kind=;"),
    ("no version", {"kind": "Gadget"}, "invalid object type: /, Kind=Gadget;"),
    ("another version", {**config(), "apiVersion": "v1"}, "invalid object type: /v1, Kind=Gadget;"),
    ("no version at all", {**config(), "apiVersion": "a/b/c"}, "invalid object type: /, Kind=Gadget;"),
    ("another kind", {**config(), "kind": 5}, "invalid object type: example.io/v1, Kind=;"),
    ("a record", config({"managedFields": []}), "metadata.managedFields must be nil"),
    ("metadata of a wrong type", {**config(), "metadata": []}, ".metadata: expected map, got []"),
    ("a name of a wrong type", config({"name": 5}), ".metadata.name: expected string, got 5"),
    ("an unknown field", config(spec={"x": 1}), "(/a; example.io/v1, Kind=Gadget): .spec.x: field not declared"),
]


@pytest.mark.parametrize(("what", "body", "message"), WRONG, ids=[row[0] for row in WRONG])
def test_a_configuration_is_refused_that_is_or_has(what: str, body: Any, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        APPLYING.check_config(body)
    assert message in caught.value.message


def test_neither_the_live_object_nor_the_configuration_is_changed():
    live = applied(None, by="a", spec={"ports": [{"port": 1}], "extra": {"a": {"b": 1}}}, data={"k": "1"})
    wanted = config(spec={"ports": [{"port": 2}], "extra": {"a": {"c": 1}}})
    before = deepcopy((live, wanted))
    new = APPLYING.apply_config(live, wanted, FieldManager("a", "example.io/v1", moment(1), "", APPLY), force=True)
    new["spec"]["extra"]["a"]["d"] = new["spec"]["ports"][0]["x"] = 1
    assert (live, wanted) == before


states = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)


@given(st.lists(st.tuples(st.sampled_from("xyz"), states, st.booleans()), min_size=1, max_size=8))
def test_of_any_conversation_everybody_has_what_they_applied_last_or_lost_to_force(writes):
    obj: Object | None = None
    claims: dict[str, dict[str, str]] = {}
    for who, data, force in writes:
        others = {name: claim for name, claim in claims.items() if name != who}
        contested = [key for key in data for claim in others.values() if claim.get(key, data[key]) != data[key]]
        if contested and not force:
            assert obj is not None
            refused(obj, by=who, data=data)
            continue
        obj = applied(obj, by=who, force=force, data=data)
        for claim in others.values():
            for key in contested:
                claim.pop(key, None)
        claims = {**others, who: dict(data)}
        wanted = {key: value for claim in claims.values() for key, value in claim.items()}
        assert (obj.get("data") or {}) == wanted
        expected = {(name, "Apply"): sorted(f"f:data/f:{key}" for key in claim) for name, claim in claims.items()}
        found = {key: [path for path in fields if path != "f:data"] for key, fields in owned(obj).items()}
        assert {key: fields for key, fields in found.items() if fields} == {k: v for k, v in expected.items() if v}


@given(states, states, states)
def test_applying_the_same_again_changes_nothing(made, mine, again):
    obj = updated(None, by="w", data=made)
    first = applied(obj, by="a", at=2, force=True, data=mine, spec={"extra": again})
    assert applied(first, by="a", at=3, data=mine, spec={"extra": again}) == first
