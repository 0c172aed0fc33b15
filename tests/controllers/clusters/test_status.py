"""What a cluster's status says, by what was found."""

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
WELL = ProbeResult(
    (Probe("connection", True),), None, "", "v1.34.1", ClusterDetails((Probe("nodes", True, "3 nodes"),), "u-1", 3)
)
AWAY = ProbeResult((Probe("connection", False, "nobody there"),), ProbeFailure("Unreachable", "nobody there", False))
STRANGE = ProbeResult(
    (Probe("connection", False, "a stranger"),), ProbeFailure("CertificateNotTrusted", "a stranger", True)
)


def cluster(status: Object | None = None) -> Object:
    return {"metadata": {"name": "berlin", "generation": 3}, "status": status or {}}


def status(
    found: ProbeResult, before: Object | None = None, twin: str = "", now: str = NOW, bound: Any = None
) -> Object:
    return next_status(cluster(before), found, twin, bound, now)


def state(status: Object, type: str) -> tuple[str, str]:
    found = find_condition(status, type) or {}
    return found.get("status", ""), found.get("reason", "")


def test_a_cluster_that_is_well_is_initialized_and_says_what_it_is() -> None:
    after = status(WELL)
    assert (after["phase"], after["reason"], after["message"]) == ("Initialized", "", "")
    assert (after["online"], after["version"], after["clusterUID"], after["nodes"]) == (True, "v1.34.1", "u-1", 3)
    assert state(after, "Connected") == ("True", "Connected")
    assert state(after, "Ready") == ("True", "Healthy")
    assert state(after, "Reconciling") == state(after, "Stalled") == ("", "")
    assert after["probes"] == [
        {"name": "connection", "ok": True, "message": "", "time": NOW},
        {"name": "nodes", "ok": True, "message": "3 nodes", "time": NOW},
    ]
    assert (after["lastProbeTime"], after["observedGeneration"]) == (NOW, 3)


def test_a_cluster_that_is_away_is_offline_and_stays_what_it_was() -> None:
    after = status(AWAY, status(WELL), now=LATER)
    assert (after["phase"], after["reason"], after["message"]) == ("", "Offline", "nobody there")
    assert (after["online"], after["version"], after["clusterUID"], after["nodes"]) == (False, "v1.34.1", "u-1", 3)
    assert state(after, "Connected") == state(after, "Ready") == ("False", "Unreachable")
    assert state(after, "Reconciling") == ("True", "Unreachable")
    assert (find_condition(after, "Connected") or {})["lastTransitionTime"] == LATER


@pytest.mark.parametrize(("before", "reason"), [({}, "InitializeCluster"), (status(WELL), "HealthCheckCluster")])
def test_what_somebody_has_to_mend_fails_it(before: Object, reason: str) -> None:
    after = status(STRANGE, before)
    assert (after["phase"], after["reason"], after["online"]) == ("Failed", reason, False)
    assert state(after, "Stalled") == ("True", "CertificateNotTrusted")
    assert state(after, "Reconciling") == ("", "")


def test_a_cluster_that_recovers_has_no_traces_of_trouble() -> None:
    for trouble in (AWAY, STRANGE):
        after = status(WELL, status(trouble), now=LATER)
        assert state(after, "Stalled") == state(after, "Reconciling") == ("", "")
        assert (after["phase"], after["reason"], after["message"]) == ("Initialized", "", "")


def test_a_cluster_that_is_not_ready_is_connected_all_the_same() -> None:
    after = status(ProbeResult(WELL.probes, None, "not ready", "v1.34.1"))
    assert (after["phase"], after["reason"], after["message"]) == ("Initialized", "NotReady", "not ready")
    assert state(after, "Connected")[0] == "True"
    assert state(after, "Ready") == ("False", "NotReady")
    assert state(after, "Reconciling") == ("True", "NotReady")


def test_the_younger_of_two_fails_and_names_the_older() -> None:
    after = status(WELL, twin="elder")
    assert (after["phase"], after["reason"], after["online"]) == ("Failed", "ClusterUID", True)
    assert '"elder"' in after["message"]
    assert state(after, "Stalled") == ("True", "ClusterUID")


def test_what_a_shaky_cluster_does_not_say_stays() -> None:
    shaky = ProbeResult(WELL.probes, None, "slow", "v1.34.1", ClusterDetails(), True)
    assert status(shaky, status(WELL))["clusterUID"] == "u-1"


def test_what_another_server_does_not_have_is_left_out() -> None:
    after = status(ProbeResult(WELL.probes, None, "", "v1"), status(WELL))
    assert "clusterUID" not in after
    assert "nodes" not in after


def test_news_about_administrators_is_kept_until_there_is_other_news() -> None:
    after = status(WELL, bound=AdministratorsBinding(condition("AdministratorsBound", "True", "Bound"), "g"))
    kept = status(WELL, after)
    assert (state(kept, "AdministratorsBound"), kept["administratorsGroup"]) == (("True", "Bound"), "g")
    lost = status(WELL, kept, bound=AdministratorsBinding(condition("AdministratorsBound", "False", "Forbidden")))
    assert state(lost, "AdministratorsBound") == ("False", "Forbidden") and "administratorsGroup" not in lost


def test_times_alone_are_no_news() -> None:
    before = status(WELL)
    assert equal_ignoring_times(before, status(WELL, before, now=LATER))
    assert not equal_ignoring_times(before, status(AWAY, before, now=LATER))
    assert not equal_ignoring_times({}, before)


def test_a_cluster_that_names_no_secret_any_more_is_said_to_be_let_go() -> None:
    after = disconnected_status(cluster(status(STRANGE, status(WELL))), LATER)
    assert (after["phase"], after["reason"], after["online"]) == ("", "KubeconfigNotSet", False)
    assert state(after, "Connected") == ("False", "KubeconfigNotSet")
    assert state(after, "Stalled") == ("", "")
    assert "probes" not in after
