"""registry/patching/managed_fields.py: field ownership after creates, updates and patches, as in kube-apiserver."""

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
    keep_unchanged_entries,
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
MERGE_SCHEMA = build_merge_schema(SCHEMA)
LABELS = {"run": "1"}
LABEL_FIELDS = ["f:metadata/f:labels", "f:metadata/f:labels/f:run"]


def create(spec: Object | None = None, *, manager: str = "maker", at: int = 0, **rest: Any) -> Object:
    obj: Object = {"kind": "App", "metadata": {"name": "a", "uid": "u", "labels": dict(LABELS)}, **rest}
    if spec is not None:
        obj["spec"] = spec
    record_update(None, obj, MERGE_SCHEMA, FieldManager(manager, VERSION, timestamp(at)))
    return obj


def update(
    old: Object, *, manager: str, at: int = 1, subresource: str = "", managed: Any = ..., **parts: Any
) -> Object:
    """Replaces these parts; `managed` is the managedFields list of the request body."""
    new = deepcopy({**old, **parts})
    if managed is not ...:
        new["metadata"]["managedFields"] = managed
    record_update(old, new, MERGE_SCHEMA, FieldManager(manager, VERSION, timestamp(at), subresource))
    return new


def timestamp(second: int) -> str:
    return f"2025-01-01T00:00:{second:02}Z"


def owned_paths(obj: Object) -> dict[str, list[str]]:
    """Returns the owned paths by manager."""
    entries = obj["metadata"].get("managedFields", [])
    return {entry["manager"]: sorted("/".join(path) for path in iter_paths(entry["fieldsV1"])) for entry in entries}


def test_the_creator_owns_all_fields_not_set_by_the_server():
    obj = create({"displayName": "one"})
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "maker",
            "operation": "Update",
            "apiVersion": VERSION,
            "time": timestamp(0),
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:run": {}}},
                "f:spec": {".": {}, "f:displayName": {}},
            },
        }
    ]


def test_an_update_owns_exactly_the_fields_it_changes():
    obj = update(
        create({"displayName": "one", "icon": "i"}), manager="editor", spec={"displayName": "two", "icon": "i"}
    )
    assert owned_paths(obj) == {"maker": [*LABEL_FIELDS, "f:spec", "f:spec/f:icon"], "editor": ["f:spec/f:displayName"]}


def test_the_parent_object_stays_with_its_owner_when_its_last_field_is_taken():
    obj = update(create({"displayName": "one"}), manager="editor", spec={"displayName": "two"})
    assert obj["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"] == {}


def test_a_removed_field_leaves_every_entry():
    obj = update(create({"displayName": "one", "icon": "i"}), manager="editor", spec={"displayName": "one"})
    assert owned_paths(obj) == {"maker": [*LABEL_FIELDS, "f:spec", "f:spec/f:displayName"]}


def test_an_entry_without_fields_is_removed():
    first = update(create({"displayName": "one"}), manager="editor", spec={"displayName": "two"})
    assert set(owned_paths(update(first, manager="third", spec={"displayName": "three"}))) == {"maker", "third"}


def test_a_manager_that_writes_again_has_one_entry():
    first = update(create({"displayName": "one"}), manager="editor", at=1, spec={"displayName": "two"})
    second = update(first, manager="editor", at=2, spec={"displayName": "two", "icon": "i"})
    assert owned_paths(second)["editor"] == ["f:spec/f:displayName", "f:spec/f:icon"]
    assert [entry["time"] for entry in second["metadata"]["managedFields"]] == [timestamp(0), timestamp(2)]


def test_the_time_changes_only_with_the_managers_own_changes():
    first = update(
        create({"displayName": "one", "icon": "i"}), manager="editor", at=1, spec={"displayName": "two", "icon": "i"}
    )
    assert first["metadata"]["managedFields"][0]["time"] == timestamp(0)
    removed = update(first, manager="maker", at=2, spec={"displayName": "two"})
    assert {entry["manager"]: entry["time"] for entry in removed["metadata"]["managedFields"]} == {
        "maker": timestamp(2),
        "editor": timestamp(1),
    }


def test_a_write_without_changes_keeps_the_entries():
    old = create({"displayName": "one"})
    new = update(old, manager="editor", at=9)
    assert new["metadata"]["managedFields"] is old["metadata"]["managedFields"]


def test_a_body_without_managed_fields_keeps_the_stored_ones():
    old = create({"displayName": "one"})
    for nothing in (None, ...):
        new = update(old, manager="editor", managed=nothing)
        assert new["metadata"]["managedFields"] is old["metadata"]["managedFields"]


@pytest.mark.parametrize("empty", [[], [{}]])
def test_empty_managed_fields_in_the_body_clear_them_and_stop_tracking(empty):
    cleared = update(create({"displayName": "one"}), manager="cleaner", managed=empty, spec={"displayName": "two"})
    assert "managedFields" not in cleared["metadata"]
    assert "managedFields" not in update(cleared, manager="editor", spec={"displayName": "three"})["metadata"]


def test_managed_fields_in_the_body_replace_the_stored_ones():
    sent = {
        "manager": "other",
        "operation": "Apply",
        "apiVersion": VERSION,
        "time": "2025-01-01T02:00:00+02:00",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {".": {}, "f:displayName": {".": {}}}},
    }
    new = update(create({"displayName": "one"}), manager="editor", managed=[sent])
    stored = {**sent, "time": timestamp(0), "fieldsV1": {"f:spec": {".": {}, "f:displayName": {}}}}
    assert new["metadata"]["managedFields"] == [stored]


def test_entries_without_fields_in_the_body_are_dropped_and_the_write_is_tracked():
    sent = {"manager": "x", "operation": "Update", "apiVersion": VERSION, "fieldsType": "FieldsV1"}
    new = update(create({"displayName": "one"}), manager="editor", managed=[sent], spec={"displayName": "two"})
    assert owned_paths(new) == {"editor": ["f:spec/f:displayName"]}


def build_entry(**changes: Any) -> Object:
    sound = {"manager": "x", "operation": "Update", "apiVersion": VERSION, "fieldsType": "FieldsV1", "fieldsV1": {}}
    return {**sound, **changes}


@pytest.mark.parametrize(
    "wrong",
    [
        build_entry(operation="Create"),
        build_entry(operation=None),
        build_entry(apiVersion=""),
        build_entry(fieldsType=""),
        build_entry(fieldsType="FieldsV2"),
        build_entry(fieldsV1={"nonsense": {}}),
        build_entry(time="yesterday"),
    ],
)
def test_invalid_entries_are_ignored(wrong):
    old = create({"displayName": "one"})
    new = update(old, manager="editor", managed=[build_entry(fieldsV1={"f:spec": {}}), wrong])
    assert new["metadata"]["managedFields"] is old["metadata"]["managedFields"]


def test_entries_of_another_version_are_dropped_or_make_the_object_untracked():
    foreign = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
    for old in (None, create({"icon": "i"})):
        for is_custom, managers in ((False, ["w"]), (True, [])):
            new = deepcopy(old or {"kind": "App", "metadata": {"name": "a"}})
            new["spec"] = {"icon": "j"}
            new["metadata"]["managedFields"] = [foreign]
            writer = FieldManager("w", VERSION, timestamp(1))
            record_update(old, new, MERGE_SCHEMA, writer, is_custom=is_custom)
            assert list(owned_paths(new)) == managers


def test_entries_that_differ_in_their_times_only_are_kept():
    old = create({"icon": "i"})
    new = update(update(old, manager="maker", spec={"icon": "j"}), manager="maker", spec={"icon": "i"})
    assert new != old
    keep_unchanged_entries(old, new)
    assert new == old
    other = update(old, manager="other", spec={"icon": "j"})
    before = deepcopy(other)
    keep_unchanged_entries(old, other)
    assert other == before


def test_an_empty_list_of_entries_of_a_custom_resource_counts_as_none():
    old = create({"icon": "i"})
    new = deepcopy(old)
    new["metadata"]["managedFields"] = []
    record_update(old, new, MERGE_SCHEMA, FieldManager("w", VERSION, timestamp(1)), is_custom=True)
    assert owned_paths(new) == owned_paths(old)


def test_a_subresource_has_its_own_entries_and_ignores_those_in_the_body():
    old = create({"displayName": "one"})
    new = update(old, manager="maker", subresource="status", managed=[{}], status={"phase": "Ready"})
    first, second = new["metadata"]["managedFields"]
    assert first == old["metadata"]["managedFields"][0]
    assert (second["manager"], second["subresource"]) == ("maker", "status")
    assert second["fieldsV1"] == {"f:status": {".": {}, "f:phase": {}}}


def test_the_creator_does_not_own_a_status_written_by_a_controller():
    obj: Object = {"metadata": {}, "spec": {}, "status": {"phase": "Ready"}}
    record_update(
        None, obj, build_merge_schema(SCHEMA, without=("status",)), FieldManager("maker", VERSION, timestamp(0))
    )
    assert owned_paths(obj) == {"maker": ["f:spec"]}


def test_an_object_without_owned_fields_has_no_managed_fields():
    obj: Object = {"kind": "App", "metadata": {"name": "a"}}
    record_update(None, obj, MERGE_SCHEMA, FieldManager("maker", VERSION, timestamp(0)))
    assert "managedFields" not in obj["metadata"]


def test_apply_entries_come_before_update_entries_each_from_the_oldest():
    sent = [
        build_entry(manager="b", time=timestamp(2), fieldsV1={"f:data": {"f:b": {}}}),
        build_entry(manager="c", time=timestamp(1), fieldsV1={"f:data": {"f:c": {}}}),
        build_entry(manager="a", time=timestamp(2), fieldsV1={"f:data": {"f:a": {}}}),
        build_entry(manager="z", time=timestamp(9), operation="Apply", fieldsV1={"f:data": {"f:z": {}}}),
    ]
    new = update(create({"displayName": "one"}), manager="editor", managed=sent)
    assert [each["manager"] for each in new["metadata"]["managedFields"]] == ["z", "c", "a", "b"]


def create_with_managers(count: int) -> Object:
    """Creates an object and has this many managers add one key each."""
    obj = create(data={"k0": "1"}, manager="m00")
    for number in range(1, count):
        obj = update(obj, manager=f"m{number:02}", at=number, data={**obj["data"], f"k{number}": "1"})
    return obj


def test_the_oldest_of_too_many_update_entries_are_merged():
    entries = create_with_managers(MAX_UPDATE_ENTRIES + 3)["metadata"]["managedFields"]
    assert [each["manager"] for each in entries] == [
        ANCIENT_MANAGER,
        *(f"m{n:02}" for n in range(4, MAX_UPDATE_ENTRIES + 3)),
    ]
    assert entries[0]["time"] == timestamp(3)
    assert set(entries[0]["fieldsV1"]["f:data"]) == {".", "f:k0", "f:k1", "f:k2", "f:k3"}


def test_ten_update_entries_are_not_merged():
    assert len(create_with_managers(MAX_UPDATE_ENTRIES)["metadata"]["managedFields"]) == MAX_UPDATE_ENTRIES
    assert ANCIENT_MANAGER not in owned_paths(create_with_managers(MAX_UPDATE_ENTRIES))


def test_merging_update_entries_of_one_second_loses_nothing():
    obj = create(data={"k0": "1"}, manager="aaa")
    for number in range(1, 25):
        obj = update(obj, manager=f"{'b' * number}", at=0, data={**obj["data"], f"k{number}": "1"})
    assert len(obj["metadata"]["managedFields"]) == MAX_UPDATE_ENTRIES
    everything = [path for fields in owned_paths(obj).values() for path in fields]
    assert sorted(everything) == sorted([*LABEL_FIELDS, "f:data", *(f"f:data/f:k{n}" for n in range(25))])


def test_a_client_that_uses_the_name_of_merged_entries_for_a_subresource_loses_nothing():
    sent = [
        build_entry(manager=f"m{n}", time=timestamp(n), fieldsV1={"f:data": {f"f:k{n}": {}}})
        for n in range(MAX_UPDATE_ENTRIES)
    ]
    sent += [
        build_entry(manager=ANCIENT_MANAGER, subresource="status", time=timestamp(0), fieldsV1={"f:data": {"f:s": {}}})
    ]
    sent += [build_entry(manager=ANCIENT_MANAGER, time=timestamp(0), fieldsV1={"f:data": {"f:t": {}}})]
    new = update(create({"displayName": "one"}), manager="editor", managed=sent)
    entries = new["metadata"]["managedFields"]
    assert len(entries) == MAX_UPDATE_ENTRIES
    assert set(entries[0]["fieldsV1"]["f:data"]) == {"f:s", "f:t", "f:k0"}


def test_apply_entries_do_not_count_as_update_entries():
    applied = [
        build_entry(manager=f"a{n}", operation="Apply", fieldsV1={"f:data": {f"f:k{n}": {}}})
        for n in range(MAX_UPDATE_ENTRIES + 1)
    ]
    new = update(create({"displayName": "one"}), manager="editor", managed=applied)
    assert len(new["metadata"]["managedFields"]) == MAX_UPDATE_ENTRIES + 1


states = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)


@given(st.lists(st.tuples(st.sampled_from("xyz"), states), min_size=1, max_size=6))
def test_each_field_has_one_owner_the_last_manager_to_change_it(writes):
    (creator, data), *later = writes
    obj = create(manager=creator, data=data)
    owners = dict.fromkeys(data, creator)
    for second, (writer, wanted) in enumerate(later, 1):
        owners = {key: owners[key] if obj["data"].get(key) == wanted[key] else writer for key in wanted}
        obj = update(obj, manager=writer, at=second, data=wanted)
    found = {path: who for who, fields in owned_paths(obj).items() for path in fields if path.startswith("f:data/")}
    assert found == {f"f:data/f:{key}": who for key, who in owners.items()}


def test_the_old_object_is_not_modified():
    old = create({"displayName": "one"})
    before = deepcopy(old)
    update(old, manager="editor", spec={"icon": "i"})
    assert old == before


def test_manager_names_that_are_too_long_are_rejected():
    entries = [
        build_entry(),
        build_entry(manager="x" * 129),
        build_entry(manager="a\nb"),
        build_entry(subresource="s" * 257),
    ]
    found = list(managed_fields_problems({"metadata": {"managedFields": entries}}))
    assert [problem.field for problem in found] == [
        "metadata.managedFields[1].manager",
        "metadata.managedFields[2].manager",
        "metadata.managedFields[3].subresource",
    ]
