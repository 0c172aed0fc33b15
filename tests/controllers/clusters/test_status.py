"""Tests of `fairlead.controllers.clusters.status`: the status of a cluster for each result of a probe."""

from typing import Any

import pytest

from fairlead.controllers.clusters.status import (
    AdministratorsBinding,
    ClusterDetails,
    Probe,
    ProbeFailure,
    ProbeResult,
    disconnected_status,
    equal_ignoring_times,
    next_status,
)
from fairlead.core.objects import Object
from fairlead.registry.conditions import condition, find_condition

NOW, LATER = "2026-01-02T03:04:05Z", "2026-01-02T03:04:10Z"
HEALTHY = ProbeResult(
    (Probe("connection", True),), None, "", "v1.34.1", ClusterDetails((Probe("nodes", True, "3 nodes"),), "u-1", 3)
)
UNREACHABLE = ProbeResult(
    (Probe("connection", False, "no response"),), ProbeFailure("Unreachable", "no response", False)
)
UNTRUSTED = ProbeResult(
    (Probe("connection", False, "unknown authority"),), ProbeFailure("CertificateNotTrusted", "unknown authority", True)
)


def build_cluster(status: Object | None = None) -> Object:
    return {"metadata": {"name": "berlin", "generation": 3}, "status": status or {}}


def build_status(
    result: ProbeResult, previous: Object | None = None, duplicate_of: str = "", now: str = NOW, binding: Any = None
) -> Object:
    return next_status(build_cluster(previous), result, duplicate_of, binding, now)


def condition_status(status: Object, type: str) -> tuple[str, str]:
    condition = find_condition(status, type) or {}
    return condition.get("status", ""), condition.get("reason", "")


def test_a_healthy_cluster_is_initialized_with_its_details() -> None:
    after = build_status(HEALTHY)
    assert (after["phase"], after["reason"], after["message"]) == ("Initialized", "", "")
    assert (after["online"], after["version"], after["clusterUID"], after["nodes"]) == (True, "v1.34.1", "u-1", 3)
    assert condition_status(after, "Connected") == ("True", "Connected")
    assert condition_status(after, "Ready") == ("True", "Healthy")
    assert condition_status(after, "Reconciling") == condition_status(after, "Stalled") == ("", "")
    assert after["probes"] == [
        {"name": "connection", "ok": True, "message": "", "time": NOW},
        {"name": "nodes", "ok": True, "message": "3 nodes", "time": NOW},
    ]
    assert (after["lastProbeTime"], after["observedGeneration"]) == (NOW, 3)


def test_an_unreachable_cluster_is_offline_and_keeps_its_details() -> None:
    after = build_status(UNREACHABLE, build_status(HEALTHY), now=LATER)
    assert (after["phase"], after["reason"], after["message"]) == ("", "Offline", "no response")
    assert (after["online"], after["version"], after["clusterUID"], after["nodes"]) == (False, "v1.34.1", "u-1", 3)
    assert condition_status(after, "Connected") == condition_status(after, "Ready") == ("False", "Unreachable")
    assert condition_status(after, "Reconciling") == ("True", "Unreachable")
    assert (find_condition(after, "Connected") or {})["lastTransitionTime"] == LATER


@pytest.mark.parametrize(
    ("before", "reason"), [({}, "InitializeCluster"), (build_status(HEALTHY), "HealthCheckCluster")]
)
def test_a_permanent_failure_sets_the_phase_failed(before: Object, reason: str) -> None:
    after = build_status(UNTRUSTED, before)
    assert (after["phase"], after["reason"], after["online"]) == ("Failed", reason, False)
    assert condition_status(after, "Stalled") == ("True", "CertificateNotTrusted")
    assert condition_status(after, "Reconciling") == ("", "")


def test_a_recovered_cluster_has_no_conditions_of_the_failure() -> None:
    for result in (UNREACHABLE, UNTRUSTED):
        after = build_status(HEALTHY, build_status(result), now=LATER)
        assert condition_status(after, "Stalled") == condition_status(after, "Reconciling") == ("", "")
        assert (after["phase"], after["reason"], after["message"]) == ("Initialized", "", "")


def test_a_cluster_that_is_not_ready_is_still_connected() -> None:
    after = build_status(ProbeResult(HEALTHY.probes, None, "not ready", "v1.34.1"))
    assert (after["phase"], after["reason"], after["message"]) == ("Initialized", "NotReady", "not ready")
    assert condition_status(after, "Connected")[0] == "True"
    assert condition_status(after, "Ready") == ("False", "NotReady")
    assert condition_status(after, "Reconciling") == ("True", "NotReady")


def test_a_duplicate_fails_and_names_the_older_cluster() -> None:
    after = build_status(HEALTHY, duplicate_of="older")
    assert (after["phase"], after["reason"], after["online"]) == ("Failed", "ClusterUID", True)
    assert '"older"' in after["message"]
    assert condition_status(after, "Stalled") == ("True", "ClusterUID")


def test_an_incomplete_probe_keeps_the_known_details() -> None:
    incomplete = ProbeResult(HEALTHY.probes, None, "slow", "v1.34.1", ClusterDetails(), True)
    assert build_status(incomplete, build_status(HEALTHY))["clusterUID"] == "u-1"


def test_details_that_a_complete_probe_does_not_find_are_removed() -> None:
    after = build_status(ProbeResult(HEALTHY.probes, None, "", "v1"), build_status(HEALTHY))
    assert "clusterUID" not in after
    assert "nodes" not in after


def test_the_condition_of_administrators_is_kept_until_it_changes() -> None:
    after = build_status(HEALTHY, binding=AdministratorsBinding(condition("AdministratorsBound", "True", "Bound"), "g"))
    unchanged = build_status(HEALTHY, after)
    assert (condition_status(unchanged, "AdministratorsBound"), unchanged["administratorsGroup"]) == (
        ("True", "Bound"),
        "g",
    )
    rejected = build_status(
        HEALTHY, unchanged, binding=AdministratorsBinding(condition("AdministratorsBound", "False", "Forbidden"))
    )
    assert (
        condition_status(rejected, "AdministratorsBound") == ("False", "Forbidden")
        and "administratorsGroup" not in rejected
    )


def test_statuses_that_differ_only_in_times_are_equal() -> None:
    before = build_status(HEALTHY)
    assert equal_ignoring_times(before, build_status(HEALTHY, before, now=LATER))
    assert not equal_ignoring_times(before, build_status(UNREACHABLE, before, now=LATER))
    assert not equal_ignoring_times({}, before)


def test_a_cluster_without_a_secret_reference_is_disconnected() -> None:
    after = disconnected_status(build_cluster(build_status(UNTRUSTED, build_status(HEALTHY))), LATER)
    assert (after["phase"], after["reason"], after["online"]) == ("", "KubeconfigNotSet", False)
    assert condition_status(after, "Connected") == ("False", "KubeconfigNotSet")
    assert condition_status(after, "Stalled") == ("", "")
    assert "probes" not in after
