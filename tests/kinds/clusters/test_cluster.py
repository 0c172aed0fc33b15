"""kinds/clusters/cluster.py: secret reference and owner of clusters."""

from tests.harness.kind_examples import build_change, build_example, find_problems, problem_reasons
from tests.harness.kind_warnings import find_warnings


def test_a_secret_reference_without_namespace_is_accepted_with_a_warning() -> None:
    incomplete = build_example("Cluster", spec={"config": {"secretName": "berlin"}})
    assert find_problems(incomplete) == []
    [warning] = find_warnings(incomplete)
    assert warning.startswith("spec.config.secretNamespace is empty")


def test_a_complete_or_absent_secret_reference_gets_no_warning() -> None:
    assert find_warnings(build_example("Cluster")) == []
    assert find_warnings(build_example("Cluster", spec={"networkPeer": True})) == []
    assert find_warnings(build_example("Cluster", spec=None)) == []


def test_a_status_write_gets_no_warnings_about_the_spec() -> None:
    incomplete = build_example("Cluster", spec={"config": {"secretName": "berlin"}})
    change = build_change(incomplete, incomplete, "status")
    change.kind.default(change)
    assert change.warnings == []


def test_an_owner_is_a_user_or_a_team() -> None:
    both = build_example("Cluster", spec={"owner": {"user": "ada", "team": "core"}})
    assert problem_reasons(both) == [("spec.owner.team", "FieldValueForbidden")]
