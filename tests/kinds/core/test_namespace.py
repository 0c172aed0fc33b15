import pytest

from fairlead.core.objects import Object
from fairlead.registry.write_options import DeleteOptions
from fairlead.registry.write_rules import is_deletion_complete, mark_deleted
from tests.harness.kind_examples import BY_NAME, complaints, example, prepared, problems

KIND = BY_NAME["Namespace"]
LABEL = {"kubernetes.io/metadata.name": "demo"}
ENDING = {"name": "demo", "deletionTimestamp": "2026-01-02T03:04:05Z"}


def stored(**fields: object) -> Object:
    return prepared(example("Namespace", **fields))


def test_a_new_namespace_gets_its_finalizer_phase_and_label() -> None:
    new = prepared(example("Namespace", spec=None, status=None))
    assert new["spec"] == {"finalizers": ["kubernetes"]}
    assert new["status"] == {"phase": "Active"}
    assert new["metadata"]["labels"] == LABEL


def test_own_finalizers_come_first_and_a_status_sent_along_is_not_taken() -> None:
    new = prepared(example("Namespace", spec={"finalizers": ["x.io/mine"]}, status={"phase": "Terminating"}))
    assert new["spec"] == {"finalizers": ["x.io/mine", "kubernetes"]}
    assert new["status"] == {"phase": "Active"}


@pytest.mark.parametrize("labels", [None, {}, {"kubernetes.io/metadata.name": "other"}])
def test_the_name_label_cannot_be_lost(labels: Object | None) -> None:
    new = example("Namespace", metadata={"name": "demo", "labels": labels})
    assert prepared(new, stored())["metadata"]["labels"] == LABEL


@pytest.mark.parametrize("subresource", ["", "status"])
def test_finalizers_of_the_spec_stay_on_ordinary_writes(subresource: str) -> None:
    new = example("Namespace", spec={"finalizers": []})
    assert prepared(new, stored(), subresource)["spec"] == {"finalizers": ["kubernetes"]}


def test_the_subresource_finalize_sets_the_finalizers() -> None:
    new = example("Namespace", spec={"finalizers": ["x.io/mine"]})
    assert prepared(new, stored(), "finalize")["spec"] == {"finalizers": ["x.io/mine"]}


@pytest.mark.parametrize(("name", "fine"), [("kubernetes", True), ("x.io/mine", True), ("mine", False), ("a b", False)])
def test_finalizers_are_standard_or_qualified(name: str, fine: bool) -> None:
    found = complaints(example("Namespace", spec={"finalizers": [name]}), stored(), "finalize")
    assert {field for field, _ in found} == (set() if fine else {"spec.finalizers[0]"})


def test_the_phase_follows_the_deletion_mark() -> None:
    old = stored()
    assert complaints(example("Namespace", status={"phase": "Terminating"}), old, "status") == [
        ("status.phase", "FieldValueInvalid")
    ]
    ending = example("Namespace", metadata=dict(ENDING))
    assert complaints(ending, old, "status") == [("status.phase", "FieldValueInvalid")]
    assert problems(example("Namespace", metadata=dict(ENDING), status={"phase": "Terminating"}), old, "status") == []


def test_conditions_can_be_written_without_saying_the_phase() -> None:
    new = example("Namespace", status={"conditions": [{"type": "x.io/Ready", "status": "True"}]})
    assert prepared(new, stored(), "status")["status"] == {
        "conditions": [{"type": "x.io/Ready", "status": "True"}],
        "phase": "Active",
    }


def test_a_deleted_namespace_ends_when_the_finalizers_of_its_spec_are_gone() -> None:
    ending = mark_deleted(stored(), KIND, DeleteOptions(), "2026-01-02T03:04:05Z")
    assert ending is not None
    assert ending["status"] == {"phase": "Terminating"}
    assert "deletionGracePeriodSeconds" not in ending["metadata"]
    assert not is_deletion_complete(ending, KIND)
    assert is_deletion_complete({**ending, "spec": {"finalizers": []}}, KIND)


def test_a_change_of_an_ending_namespace_keeps_its_phase() -> None:
    ending = example("Namespace", metadata=dict(ENDING), status={"phase": "Terminating"})
    assert problems(example("Namespace", metadata=dict(ENDING), status={"phase": "Terminating"}), ending) == []


def test_namespaces_are_not_deleted_by_the_dozen() -> None:
    assert "deletecollection" not in KIND.verbs
