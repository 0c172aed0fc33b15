from tests.harness.kind_examples import complaints, example, problems, warnings, write


def test_a_secret_without_its_namespace_is_kept_with_a_warning() -> None:
    half = example("Cluster", spec={"config": {"secretName": "berlin"}})
    assert problems(half) == []
    [warning] = warnings(half)
    assert warning.startswith("spec.config.secretNamespace is empty")


def test_a_whole_reference_or_none_is_not_warned_about() -> None:
    assert warnings(example("Cluster")) == []
    assert warnings(example("Cluster", spec={"networkPeer": True})) == []
    assert warnings(example("Cluster", spec=None)) == []


def test_writers_of_the_status_are_not_told_about_the_spec() -> None:
    half = example("Cluster", spec={"config": {"secretName": "berlin"}})
    change = write(half, half, "status")
    change.kind.default(change)
    assert change.warnings == []


def test_an_owner_is_a_user_or_a_team() -> None:
    both = example("Cluster", spec={"owner": {"user": "ada", "team": "core"}})
    assert complaints(both) == [("spec.owner.team", "FieldValueForbidden")]
