"""Changing from `kubectl apply` to `kubectl apply --server-side` on the same object."""

import json
from typing import Any

import pytest

from fairlead.core.errors import Conflict
from fairlead.core.objects import LAST_APPLIED, Object
from fairlead.registry.object_metadata import MAX_ANNOTATIONS_BYTES
from fairlead.registry.patching.managed_fields import UPDATE, FieldManager, record_update
from tests.registry.patching.apply_requests import SCHEMAS, apply, build_config, owned_paths, timestamp

CLIENT_SIDE = "kubectl-client-side-apply"


def build_client_side_object(text: str | None = None, **parts: Any) -> Object:
    """Returns an object created by client-side apply, with the last-applied annotation."""
    annotation = json.dumps(build_config(**parts)) if text is None else text
    obj = build_config({"annotations": {LAST_APPLIED: annotation}}, **parts)
    record_update(None, obj, SCHEMAS.by_subresource[""], FieldManager(CLIENT_SIDE, "example.io/v1", timestamp(0)))
    return obj


def test_kubectl_takes_over_fields_of_its_client_side_apply():
    obj = apply(
        build_client_side_object(spec={"displayName": "one"}, data={"k": "1"}),
        manager="kubectl",
        spec={"displayName": "two"},
    )
    assert obj["spec"] == {"displayName": "two"}
    assert owned_paths(obj)["kubectl", "Apply"] == ["f:spec/f:displayName"]
    assert "f:spec/f:displayName" not in owned_paths(obj)[CLIENT_SIDE, UPDATE]


def test_other_managers_do_not_take_over_client_side_fields():
    with pytest.raises(Conflict, match=CLIENT_SIDE):
        apply(build_client_side_object(spec={"displayName": "one"}), manager="other", spec={"displayName": "two"})


def test_fields_changed_since_by_another_manager_are_not_taken_over():
    obj = build_client_side_object(spec={"displayName": "one", "icon": "i"})
    changed = {**obj, "spec": {"displayName": "hers", "icon": "i"}}
    record_update(obj, changed, SCHEMAS.by_subresource[""], FieldManager("editor", "example.io/v1", timestamp(1)))
    with pytest.raises(Conflict) as caught:
        apply(changed, manager="kubectl", spec={"displayName": "two", "icon": "j"})
    assert [(problem.field, problem.message) for problem in caught.value.details.problems] == [
        (".spec.displayName", 'conflict with "editor" using example.io/v1')
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        '{"apiVersion": "example.io/v0"}',
        '{"apiVersion": "example.io/v1", "spec": {"displayName": 1}}',
    ],
)
def test_an_invalid_annotation_takes_over_nothing(text: str) -> None:
    with pytest.raises(Conflict):
        apply(
            build_client_side_object(text, spec={"displayName": "one"}), manager="kubectl", spec={"displayName": "two"}
        )


def test_server_side_apply_by_kubectl_updates_the_annotation():
    meta = {"labels": {"x": "1"}, "annotations": {"n": "v", "none": None}}
    obj = apply(build_client_side_object(data={"k": "1"}), manager="kubectl", meta=meta, data={"k": "2"})
    text = obj["metadata"]["annotations"][LAST_APPLIED]
    assert (json.loads(text), text[-1]) == (build_config(meta, data={"k": "2"}), "\n")
    assert f"f:metadata/f:annotations/f:{LAST_APPLIED}" in owned_paths(obj)[CLIENT_SIDE, UPDATE]


@pytest.mark.parametrize(
    ("sent", "recorded"),
    [({}, {}), ({"annotations": {}}, {"annotations": {}})],
)
def test_the_annotation_has_annotations_only_if_the_configuration_has(sent: Object, recorded: Object) -> None:
    obj = apply(build_client_side_object(data={"k": "1"}), manager="kubectl", meta=sent, data={"k": "2"})
    assert json.loads(obj["metadata"]["annotations"][LAST_APPLIED]) == build_config(recorded, data={"k": "2"})


def test_an_updated_annotation_is_no_change_by_the_manager():
    before = build_client_side_object(data={"k": "1"})
    obj = apply(before, manager="kubectl", data={"k": "1"})
    assert obj["metadata"]["annotations"] != before["metadata"]["annotations"]
    assert [entry.get("time") for entry in obj["metadata"]["managedFields"] if entry["operation"] == "Apply"] == [None]


def test_apply_by_another_manager_keeps_the_annotation():
    before = build_client_side_object(data={"k": "1"})
    obj = apply(before, manager="other", data={"l": "2"})
    assert obj["metadata"]["annotations"] == before["metadata"]["annotations"]


def test_no_annotation_is_added_if_there_was_none():
    obj = apply(apply(None, manager="kubectl", data={"k": "1"}), manager="kubectl", data={"k": "2"})
    assert "annotations" not in obj["metadata"]


def test_an_annotation_that_would_be_too_large_is_removed():
    obj = apply(build_client_side_object(data={"k": "1"}), manager="kubectl", data={"k": "x" * MAX_ANNOTATIONS_BYTES})
    assert "annotations" not in obj["metadata"] or LAST_APPLIED not in obj["metadata"]["annotations"]
