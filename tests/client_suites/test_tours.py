"""The tours of kubectl: their format, what is compared, and that they cover enough."""

import pytest

from tests.client_suites.kubectl_tours import Outcome
from tests.client_suites.normalization import Normalizer
from tests.client_suites.python_suites import SUITES, Result, find_differences, not_applicable
from tests.client_suites.tours import Answer, Command, parse_tour, read_tours

TOUR = """\
# A comment.

$ kubectl get configmaps
? Its message is longer.
$ kubectl apply -f - <<'END'
kind: ConfigMap

metadata: {name: a}
END
! There are no nodes.
$ kubectl get nodes
"""


def test_a_tour_has_commands_of_several_lines_and_reasons_for_differences() -> None:
    assert parse_tour("some", TOUR).commands == (
        Command(3, "kubectl get configmaps"),
        Command(5, "kubectl apply -f - <<'END'\nkind: ConfigMap\n\nmetadata: {name: a}\nEND", "Its message is longer."),
        Command(11, "kubectl get nodes", "There are no nodes.", has_other_code=True),
    )


def test_the_tours_have_hundreds_of_commands_and_namespaces_of_their_own() -> None:
    tours = read_tours()
    assert len({tour.namespace for tour in tours}) == len(tours)
    assert len({command.text for tour in tours for command in tour.commands if "kubectl" in command.text}) > 500


def test_unknown_tours_are_an_error() -> None:
    with pytest.raises(ValueError, match="unheard"):
        read_tours(["unheard"])


OK, FAILED, OTHER = Answer(0, "a", ""), Answer(1, "", "b"), Answer(0, "c", "")
SAME, OUTPUT, CODE = Command(1, "x"), Command(1, "x", "why"), Command(1, "x", "why", has_other_code=True)


@pytest.mark.parametrize(
    ("command", "got", "is_right"),
    [
        *((SAME, OK, True), (SAME, OTHER, False), (SAME, FAILED, False)),
        *((OUTPUT, OK, False), (OUTPUT, OTHER, True), (OUTPUT, FAILED, False)),
        *((CODE, OK, False), (CODE, OTHER, False), (CODE, FAILED, True)),
    ],
)
def test_answers_must_differ_exactly_as_the_tour_says(command: Command, got: Answer, is_right: bool) -> None:
    assert Outcome(command, OK, got).is_right == is_right


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("at https://127.0.0.1:8443/x", "at <server>/x"),
        ("uid: 0a1b2c3d-1234-4123-8123-0123456789ab", "uid: <uid>"),
        ('"resourceVersion": "123"', '"resourceVersion": "<version>"'),
        ('{\\"resourceVersion\\":\\"123\\"}', '{\\"resourceVersion\\":\\"<version>\\"}'),
        ("created: 2026-11-16T11:35:38Z", "created: <time>"),
        ("given: 2026-01-02T03:04:05Z", "given: 2026-01-02T03:04:05Z"),
        ("a     1      3m20s", "a  1  <age>"),
        ("  indented: 5", "  indented: 5"),
        ("replicas: 10 of 12", "replicas: 10 of 12"),
    ],
)
def test_only_what_differs_between_runs_is_replaced(text: str, normal: str) -> None:
    assert Normalizer({"https://127.0.0.1:8443": "<server>"}).text(text) == normal


def test_json_is_compared_without_the_order_of_its_keys() -> None:
    normalizer = Normalizer({})
    one, other = (normalizer.answer(Answer(0, text, "")) for text in ('{"a": 1, "b": [2]}', '{"b":[2],"a":1}\n'))
    assert one == other


def test_a_test_that_fails_on_the_reference_as_well_is_no_difference() -> None:
    failed, passed = Result("failed", "why"), Result("passed", "")
    got = {"both": failed, "ours": failed, "none": passed, "theirs": passed}
    expected = {"both": failed, "ours": passed, "none": passed, "theirs": failed}
    assert list(find_differences(expected, got)) == [("ours", failed)]
    assert [test for test, _ in find_differences({}, got)] == ["both", "ours"]


@pytest.mark.parametrize("suite", [suite.name for suite in SUITES])
def test_each_suite_has_reasons_for_what_is_left_out(suite: str) -> None:
    assert all(reason and "*" in pattern for pattern, reason in not_applicable(suite).items())
