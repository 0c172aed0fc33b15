"""Going over from `kubectl apply` to `kubectl apply --server-side` on the same object."""

import json
from typing import Any

import pytest

from fairlead.core.errors import Conflict
from fairlead.core.objects import LAST_APPLIED, Object
from fairlead.registry.object_metadata import MAX_ANNOTATIONS_BYTES
from fairlead.registry.patching.managed_fields import UPDATE, FieldManager, record_update
from tests.registry.patching.test_apply import SHAPES, applied, config, moment, owned

CLIENT_SIDE = "kubectl-client-side-apply"


def made(text: str | None = None, **parts: Any) -> Object:
    """An object as the older way leaves it: what was applied is in the annotation, too."""
    said = json.dumps(config(**parts)) if text is None else text
    obj = config({"annotations": {LAST_APPLIED: said}}, **parts)
    record_update(None, obj, SHAPES.by_subresource[""], FieldManager(CLIENT_SIDE, "example.io/v1", moment(0)))
    return obj


def test_kubectl_takes_over_what_it_applied_the_older_way():
    obj = applied(made(spec={"displayName": "one"}, data={"k": "1"}), by="kubectl", spec={"displayName": "two"})
    assert obj["spec"] == {"displayName": "two"}
    assert owned(obj)["kubectl", "Apply"] == ["f:spec/f:displayName"]
    assert "f:spec/f:displayName" not in owned(obj)[CLIENT_SIDE, UPDATE]


def test_other_managers_do_not():
    with pytest.raises(Conflict, match=CLIENT_SIDE):
        applied(made(spec={"displayName": "one"}), by="other", spec={"displayName": "two"})


def test_what_somebody_has_changed_since_is_not_taken_over():
    obj = made(spec={"displayName": "one", "icon": "i"})
    changed = {**obj, "spec": {"displayName": "hers", "icon": "i"}}
    record_update(obj, changed, SHAPES.by_subresource[""], FieldManager("editor", "example.io/v1", moment(1)))
    with pytest.raises(Conflict) as caught:
        applied(changed, by="kubectl", spec={"displayName": "two", "icon": "j"})
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
def test_an_annotation_that_makes_no_sense_allows_nothing(text: str) -> None:
    with pytest.raises(Conflict):
        applied(made(text, spec={"displayName": "one"}), by="kubectl", spec={"displayName": "two"})


def test_the_annotation_follows_what_kubectl_applies_and_stays_with_its_owner():
    meta = {"labels": {"x": "1"}, "annotations": {"n": "v", "none": None}}
    obj = applied(made(data={"k": "1"}), by="kubectl", meta=meta, data={"k": "2"})
    text = obj["metadata"]["annotations"][LAST_APPLIED]
    assert (json.loads(text), text[-1]) == (config(meta, data={"k": "2"}), "\n")
    assert f"f:metadata/f:annotations/f:{LAST_APPLIED}" in owned(obj)[CLIENT_SIDE, UPDATE]


def test_under_another_name_the_annotation_is_left_alone():
    before = made(data={"k": "1"})
    obj = applied(before, by="other", data={"l": "2"})
    assert obj["metadata"]["annotations"] == before["metadata"]["annotations"]


def test_where_there_is_no_annotation_none_is_made():
    obj = applied(applied(None, by="kubectl", data={"k": "1"}), by="kubectl", data={"k": "2"})
    assert "annotations" not in obj["metadata"]


def test_an_annotation_that_would_be_too_large_goes():
    obj = applied(made(data={"k": "1"}), by="kubectl", data={"k": "x" * MAX_ANNOTATIONS_BYTES})
    assert "annotations" not in obj["metadata"] or LAST_APPLIED not in obj["metadata"]["annotations"]
