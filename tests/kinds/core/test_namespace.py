"""kinds/core/namespace.py: finalizers, phase and labels of namespaces."""

import pytest

from fairlead.core.objects import Object
from fairlead.kinds.core.namespace import add_finalizer
from fairlead.registry.write_options import DeleteOptions
from fairlead.registry.write_rules import is_deletion_complete, mark_deleted
from tests.harness.kind_examples import BY_NAME, apply_defaults, build_example, find_problems, problem_reasons

KIND = BY_NAME["Namespace"]
LABEL = {"kubernetes.io/metadata.name": "demo"}
TERMINATING = {"name": "demo", "deletionTimestamp": "2026-01-02T03:04:05Z"}


def build_namespace(**fields: object) -> Object:
    return apply_defaults(build_example("Namespace", **fields))


def test_a_new_namespace_gets_its_finalizer_phase_and_label() -> None:
    new = apply_defaults(build_example("Namespace", spec=None, status=None))
    add_finalizer(new)
    assert new["spec"] == {"finalizers": ["kubernetes"]}
    assert new["status"] == {"phase": "Active"}
    assert new["metadata"]["labels"] == LABEL


def test_own_finalizers_come_first_and_a_sent_status_is_ignored() -> None:
    new = apply_defaults(
        build_example("Namespace", spec={"finalizers": ["x.io/mine"]}, status={"phase": "Terminating"})
    )
    add_finalizer(new)
    assert new["spec"] == {"finalizers": ["x.io/mine", "kubernetes"]}
    assert new["status"] == {"phase": "Active"}


def test_a_namespace_that_exists_keeps_its_finalizers() -> None:
    stored: Object = {"metadata": {"name": "demo", "resourceVersion": "5"}, "spec": {}}
    add_finalizer(stored)
    assert stored["spec"] == {}


@pytest.mark.parametrize("labels", [None, {}, {"kubernetes.io/metadata.name": "other"}])
def test_the_name_label_cannot_be_removed(labels: Object | None) -> None:
    new = build_example("Namespace", metadata={"name": "demo", "labels": labels})
    assert apply_defaults(new, build_namespace())["metadata"]["labels"] == LABEL


@pytest.mark.parametrize("subresource", ["", "status"])
def test_ordinary_updates_keep_the_finalizers_of_the_spec(subresource: str) -> None:
    new = build_example("Namespace", spec={"finalizers": []})
    assert apply_defaults(new, build_namespace(), subresource)["spec"] == {"finalizers": ["kubernetes"]}


def test_the_finalize_subresource_sets_the_finalizers() -> None:
    new = build_example("Namespace", spec={"finalizers": ["x.io/mine"]})
    assert apply_defaults(new, build_namespace(), "finalize")["spec"] == {"finalizers": ["x.io/mine"]}


@pytest.mark.parametrize(
    ("name", "is_valid"), [("kubernetes", True), ("x.io/mine", True), ("mine", False), ("a b", False)]
)
def test_finalizers_must_be_standard_or_qualified_names(name: str, is_valid: bool) -> None:
    new = build_example("Namespace", spec={"finalizers": [name]})
    finalized = problem_reasons(new, build_namespace(), "finalize")
    assert {field for field, _ in finalized} == (set() if is_valid else {"spec.finalizers[0]"})
    created = problem_reasons(new)
    assert {field for field, _ in created} == (set() if is_valid else {"spec.finalizers"})


def test_the_phase_follows_the_deletion_timestamp() -> None:
    old = build_namespace()
    assert problem_reasons(build_example("Namespace", status={"phase": "Terminating"}), old, "status") == [
        ("status.phase", "FieldValueInvalid")
    ]
    terminating = build_example("Namespace", metadata=dict(TERMINATING))
    assert problem_reasons(terminating, old, "status") == [("status.phase", "FieldValueInvalid")]
    assert (
        find_problems(
            build_example("Namespace", metadata=dict(TERMINATING), status={"phase": "Terminating"}), old, "status"
        )
        == []
    )


def test_conditions_can_be_written_without_the_phase() -> None:
    new = build_example("Namespace", status={"conditions": [{"type": "x.io/Ready", "status": "True"}]})
    assert apply_defaults(new, build_namespace(), "status")["status"] == {
        "conditions": [{"type": "x.io/Ready", "status": "True"}],
        "phase": "Active",
    }


def test_deletion_completes_when_the_finalizers_of_the_spec_are_removed() -> None:
    terminating = mark_deleted(build_namespace(), KIND, DeleteOptions(), "2026-01-02T03:04:05Z")
    assert terminating is not None
    assert terminating["status"] == {"phase": "Terminating"}
    assert "deletionGracePeriodSeconds" not in terminating["metadata"]
    assert not is_deletion_complete(terminating, KIND)
    assert is_deletion_complete({**terminating, "spec": {"finalizers": []}}, KIND)


def test_an_update_of_a_terminating_namespace_keeps_its_phase() -> None:
    terminating = build_example("Namespace", metadata=dict(TERMINATING), status={"phase": "Terminating"})
    assert (
        find_problems(
            build_example("Namespace", metadata=dict(TERMINATING), status={"phase": "Terminating"}), terminating
        )
        == []
    )


def test_namespaces_do_not_support_deletecollection() -> None:
    assert "deletecollection" not in KIND.verbs
