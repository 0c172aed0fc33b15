"""kinds/core/lease.py: times, durations and strategies of leases."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.registry.validate import Validator
from tests.harness.kind_examples import BY_NAME, apply_defaults, build_example, find_problems, problem_reasons


def build_lease(**spec: Any) -> Object:
    return build_example("Lease", spec=spec)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("2026-01-02T05:04:05.000006+02:00", "2026-01-02T03:04:05.000006Z"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000Z"),
        ("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05.123456Z"),
        ("2026-01-02T00:30:00.5+01:00", "2026-01-01T23:30:00.500000Z"),
    ],
)
def test_times_are_normalized_to_utc_with_six_digits(sent: str, expected: str) -> None:
    new = apply_defaults(build_lease(acquireTime=sent, renewTime=sent))
    assert new["spec"] == {"acquireTime": expected, "renewTime": expected}


@pytest.mark.parametrize(
    "sent", ["soon", "2026-01-02", "20260102T030405Z", "2026-13-01T00:00:00Z", "2026-01-02T03:04:05"]
)
def test_an_invalid_time_is_left_for_the_schema_to_reject(sent: str) -> None:
    assert apply_defaults(build_lease(renewTime=sent))["spec"] == {"renewTime": sent}


@pytest.mark.parametrize(
    ("time", "is_valid"),
    [
        ("2026-01-02T03:04:05.000000Z", True),
        ("2026-01-02T03:04:05.123456+02:00", True),
        *((time, False) for time in ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.1Z", "2026-01-02T03:04:05.1234567Z")),
    ],
)
def test_times_are_sent_with_six_digits(time: str, is_valid: bool) -> None:
    found = Validator(BY_NAME["Lease"].schema()).validate(build_lease(renewTime=time)).problems
    assert [problem.field for problem in found] == ([] if is_valid else ["spec.renewTime"])


def test_a_lease_always_has_a_spec() -> None:
    assert apply_defaults(build_example("Lease", spec=None))["spec"] == {}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"leaseDurationSeconds": 1, "leaseTransitions": 0, "holderIdentity": ""}, []),
        ({"leaseDurationSeconds": 0}, ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"]),
        (
            {"leaseDurationSeconds": -5, "leaseTransitions": -1},
            [
                "spec.leaseDurationSeconds: Invalid value: -5: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
    ],
)
def test_durations_and_transition_counts_are_validated(spec: Object, expected: list[str]) -> None:
    assert [str(problem) for problem in find_problems(build_lease(**spec))] == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"strategy": "OldestEmulationVersion", "preferredHolder": "two"}, []),
        ({"strategy": "example.com/mine"}, []),
        ({"strategy": "mine"}, [("spec.strategy", "FieldValueNotSupported")]),
        ({"preferredHolder": "two"}, [("spec.preferredHolder", "FieldValueForbidden")]),
    ],
)
def test_strategies_are_validated(spec: Object, expected: list[tuple[str, str]]) -> None:
    assert problem_reasons(build_lease(**spec)) == expected


def test_an_update_of_a_lease_needs_a_resource_version() -> None:
    assert not BY_NAME["Lease"].allows_unconditional_update
