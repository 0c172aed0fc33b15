"""Who owns which field after creates, updates and patches: conversations as a kube-apiserver holds them."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.objects import Object
from fairlead.registry import schema as words
from fairlead.registry.patching.field_set import iter_paths
from fairlead.registry.patching.managed_fields import (
    ANCIENT_MANAGER,
    MAX_UPDATE_ENTRIES,
    FieldManager,
    managed_fields_problems,
    record_update,
)
from fairlead.registry.patching.merge_schema import build_merge_schema

VERSION = "example.io/v1"
SCHEMA = words.obj(
    spec=words.obj("", displayName=words.string(), icon=words.string(), description=words.string()),
    data=words.mapping(words.string()),
    status=words.open_object(),
)
SHAPE = build_merge_schema(SCHEMA)
LABELS = {"run": "1"}
LABEL_FIELDS = ["f:metadata/f:labels", "f:metadata/f:labels/f:run"]


def made(spec: Object | None = None, *, by: str = "maker", at: int = 0, **rest: Any) -> Object:
    obj: Object = {"kind": "App", "metadata": {"name": "a", "uid": "u", "labels": dict(LABELS)}, **rest}
    if spec is not None:
        obj["spec"] = spec
    record_update(None, obj, SHAPE, FieldManager(by, VERSION, moment(at)))
    return obj


def after(old: Object, *, by: str, at: int = 1, subresource: str = "", managed: Any = ..., **parts: Any) -> Object:
    """The object after somebody replaced these parts of it; `managed` are the entries that the body carried."""
    new = deepcopy({**old, **parts})
    if managed is not ...:
        new["metadata"]["managedFields"] = managed
    record_update(old, new, SHAPE, FieldManager(by, VERSION, moment(at), subresource))
    return new


def moment(second: int) -> str:
    return f"2025-01-01T00:00:{second:02}Z"


def owned(obj: Object) -> dict[str, list[str]]:
    """Manager -> the paths it owns."""
    entries = obj["metadata"].get("managedFields", [])
    return {entry["manager"]: sorted("/".join(path) for path in iter_paths(entry["fieldsV1"])) for entry in entries}


def test_the_creator_owns_everything_but_what_the_server_sets():
    obj = made({"displayName": "one"})
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "maker",
            "operation": "Update",
            "apiVersion": VERSION,
            "time": moment(0),
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:run": {}}},
                "f:spec": {".": {}, "f:displayName": {}},
            },
        }
    ]


def test_an_update_takes_what_it_changes_and_nothing_else():
    obj = after(made({"displayName": "one", "icon": "i"}), by="editor", spec={"displayName": "two", "icon": "i"})
    assert owned(obj) == {"maker": [*LABEL_FIELDS, "f:spec", "f:spec/f:icon"], "editor": ["f:spec/f:displayName"]}


def test_the_last_field_taken_leaves_the_structure_to_its_owner():
    obj = after(made({"displayName": "one"}), by="editor", spec={"displayName": "two"})
    assert obj["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"] == {}


def test_a_field_that_goes_leaves_every_entry():
    obj = after(made({"displayName": "one", "icon": "i"}), by="editor", spec={"displayName": "one"})
    assert owned(obj) == {"maker": [*LABEL_FIELDS, "f:spec", "f:spec/f:displayName"]}


def test_an_entry_without_fields_goes():
    first = after(made({"displayName": "one"}), by="editor", spec={"displayName": "two"})
    assert set(owned(after(first, by="third", spec={"displayName": "three"}))) == {"maker", "third"}


def test_a_manager_that_writes_again_keeps_one_entry():
    first = after(made({"displayName": "one"}), by="editor", at=1, spec={"displayName": "two"})
    second = after(first, by="editor", at=2, spec={"displayName": "two", "icon": "i"})
    assert owned(second)["editor"] == ["f:spec/f:displayName", "f:spec/f:icon"]
    assert [entry["time"] for entry in second["metadata"]["managedFields"]] == [moment(0), moment(2)]


def test_the_time_moves_with_the_managers_own_changes_only():
    first = after(
        made({"displayName": "one", "icon": "i"}), by="editor", at=1, spec={"displayName": "two", "icon": "i"}
    )
    assert first["metadata"]["managedFields"][0]["time"] == moment(0)
    removed = after(first, by="maker", at=2, spec={"displayName": "two"})
    assert {entry["manager"]: entry["time"] for entry in removed["metadata"]["managedFields"]} == {
        "maker": moment(2),
        "editor": moment(1),
    }


def test_a_write_without_effect_keeps_the_very_entries():
    old = made({"displayName": "one"})
    new = after(old, by="editor", at=9)
    assert new["metadata"]["managedFields"] is old["metadata"]["managedFields"]


def test_a_body_without_entries_keeps_the_stored_ones():
    old = made({"displayName": "one"})
    for nothing in (None, ...):
        new = after(old, by="editor", managed=nothing)
        assert new["metadata"]["managedFields"] is old["metadata"]["managedFields"]


@pytest.mark.parametrize("empty", [[], [{}]])
def test_an_empty_record_in_the_body_clears_it_and_the_object_stays_untracked(empty):
    cleared = after(made({"displayName": "one"}), by="cleaner", managed=empty, spec={"displayName": "two"})
    assert "managedFields" not in cleared["metadata"]
    assert "managedFields" not in after(cleared, by="editor", spec={"displayName": "three"})["metadata"]


def test_entries_in_the_body_replace_the_stored_ones():
    sent = {
        "manager": "other",
        "operation": "Apply",
        "apiVersion": VERSION,
        "time": "2025-01-01T02:00:00+02:00",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {".": {}, "f:displayName": {".": {}}}},
    }
    new = after(made({"displayName": "one"}), by="editor", managed=[sent])
    stored = {**sent, "time": moment(0), "fieldsV1": {"f:spec": {".": {}, "f:displayName": {}}}}
    assert new["metadata"]["managedFields"] == [stored]


def test_entries_in_the_body_without_fields_are_dropped_and_the_write_is_still_tracked():
    sent = {"manager": "x", "operation": "Update", "apiVersion": VERSION, "fieldsType": "FieldsV1"}
    new = after(made({"displayName": "one"}), by="editor", managed=[sent], spec={"displayName": "two"})
    assert owned(new) == {"editor": ["f:spec/f:displayName"]}


def entry(**changes: Any) -> Object:
    sound = {"manager": "x", "operation": "Update", "apiVersion": VERSION, "fieldsType": "FieldsV1", "fieldsV1": {}}
    return {**sound, **changes}


@pytest.mark.parametrize(
    "wrong",
    [
        entry(operation="Create"),
        entry(operation=None),
        entry(apiVersion=""),
        entry(fieldsType=""),
        entry(fieldsType="FieldsV2"),
        entry(fieldsV1={"nonsense": {}}),
        entry(time="yesterday"),
    ],
)
def test_entries_that_make_no_sense_are_passed_over(wrong):
    old = made({"displayName": "one"})
    new = after(old, by="editor", managed=[entry(fieldsV1={"f:spec": {}}), wrong])
    assert new["metadata"]["managedFields"] is old["metadata"]["managedFields"]


def test_a_subresource_has_entries_of_its_own_and_ignores_those_in_the_body():
    old = made({"displayName": "one"})
    new = after(old, by="maker", subresource="status", managed=[{}], status={"phase": "Ready"})
    first, second = new["metadata"]["managedFields"]
    assert first == old["metadata"]["managedFields"][0]
    assert (second["manager"], second["subresource"]) == ("maker", "status")
    assert second["fieldsV1"] == {"f:status": {".": {}, "f:phase": {}}}


def test_where_a_controller_owns_the_status_its_creator_does_not():
    obj: Object = {"metadata": {}, "spec": {}, "status": {"phase": "Ready"}}
    record_update(None, obj, build_merge_schema(SCHEMA, without=("status",)), FieldManager("maker", VERSION, moment(0)))
    assert owned(obj) == {"maker": ["f:spec"]}


def test_an_object_without_any_field_to_own_has_no_record():
    obj: Object = {"kind": "App", "metadata": {"name": "a"}}
    record_update(None, obj, SHAPE, FieldManager("maker", VERSION, moment(0)))
    assert "managedFields" not in obj["metadata"]


def test_what_was_applied_comes_before_what_was_updated_and_each_from_the_oldest_on():
    sent = [
        entry(manager="b", time=moment(2), fieldsV1={"f:data": {"f:b": {}}}),
        entry(manager="c", time=moment(1), fieldsV1={"f:data": {"f:c": {}}}),
        entry(manager="a", time=moment(2), fieldsV1={"f:data": {"f:a": {}}}),
        entry(manager="z", time=moment(9), operation="Apply", fieldsV1={"f:data": {"f:z": {}}}),
    ]
    new = after(made({"displayName": "one"}), by="editor", managed=sent)
    assert [each["manager"] for each in new["metadata"]["managedFields"]] == ["z", "c", "a", "b"]


def many(count: int) -> Object:
    """An object to which so many managers have added a key each."""
    obj = made(data={"k0": "1"}, by="m00")
    for number in range(1, count):
        obj = after(obj, by=f"m{number:02}", at=number, data={**obj["data"], f"k{number}": "1"})
    return obj


def test_of_too_many_updaters_the_oldest_are_thrown_together():
    entries = many(MAX_UPDATE_ENTRIES + 3)["metadata"]["managedFields"]
    assert [each["manager"] for each in entries] == [
        ANCIENT_MANAGER,
        *(f"m{n:02}" for n in range(4, MAX_UPDATE_ENTRIES + 3)),
    ]
    assert entries[0]["time"] == moment(3)
    assert set(entries[0]["fieldsV1"]["f:data"]) == {".", "f:k0", "f:k1", "f:k2", "f:k3"}


def test_ten_updaters_are_not_too_many():
    assert len(many(MAX_UPDATE_ENTRIES)["metadata"]["managedFields"]) == MAX_UPDATE_ENTRIES
    assert ANCIENT_MANAGER not in owned(many(MAX_UPDATE_ENTRIES))


def test_updates_within_one_second_lose_nothing_when_thrown_together():
    obj = made(data={"k0": "1"}, by="aaa")
    for number in range(1, 25):
        obj = after(obj, by=f"{'b' * number}", at=0, data={**obj["data"], f"k{number}": "1"})
    assert len(obj["metadata"]["managedFields"]) == MAX_UPDATE_ENTRIES
    everything = [path for fields in owned(obj).values() for path in fields]
    assert sorted(everything) == sorted([*LABEL_FIELDS, "f:data", *(f"f:data/f:k{n}" for n in range(25))])


def test_a_client_that_claims_the_ancient_name_for_a_subresource_loses_nothing():
    sent = [
        entry(manager=f"m{n}", time=moment(n), fieldsV1={"f:data": {f"f:k{n}": {}}}) for n in range(MAX_UPDATE_ENTRIES)
    ]
    sent += [entry(manager=ANCIENT_MANAGER, subresource="status", time=moment(0), fieldsV1={"f:data": {"f:s": {}}})]
    sent += [entry(manager=ANCIENT_MANAGER, time=moment(0), fieldsV1={"f:data": {"f:t": {}}})]
    new = after(made({"displayName": "one"}), by="editor", managed=sent)
    entries = new["metadata"]["managedFields"]
    assert len(entries) == MAX_UPDATE_ENTRIES
    assert set(entries[0]["fieldsV1"]["f:data"]) == {"f:s", "f:t", "f:k0"}


def test_what_was_applied_does_not_count_as_an_update():
    applied = [
        entry(manager=f"a{n}", operation="Apply", fieldsV1={"f:data": {f"f:k{n}": {}}})
        for n in range(MAX_UPDATE_ENTRIES + 1)
    ]
    new = after(made({"displayName": "one"}), by="editor", managed=applied)
    assert len(new["metadata"]["managedFields"]) == MAX_UPDATE_ENTRIES + 1


states = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)


@given(st.lists(st.tuples(st.sampled_from("xyz"), states), min_size=1, max_size=6))
def test_each_field_has_exactly_one_owner_and_that_is_who_last_changed_it(writes):
    (creator, data), *later = writes
    obj = made(by=creator, data=data)
    owners = dict.fromkeys(data, creator)
    for second, (writer, wanted) in enumerate(later, 1):
        owners = {key: owners[key] if obj["data"].get(key) == wanted[key] else writer for key in wanted}
        obj = after(obj, by=writer, at=second, data=wanted)
    found = {path: who for who, fields in owned(obj).items() for path in fields if path.startswith("f:data/")}
    assert found == {f"f:data/f:{key}": who for key, who in owners.items()}


def test_the_old_object_is_left_alone():
    old = made({"displayName": "one"})
    before = deepcopy(old)
    after(old, by="editor", spec={"icon": "i"})
    assert old == before


def test_names_that_are_too_long_to_keep_are_problems():
    entries = [entry(), entry(manager="x" * 129), entry(manager="a\nb"), entry(subresource="s" * 257)]
    found = list(managed_fields_problems({"metadata": {"managedFields": entries}}))
    assert [problem.field for problem in found] == [
        "metadata.managedFields[1].manager",
        "metadata.managedFields[2].manager",
        "metadata.managedFields[3].subresource",
    ]
