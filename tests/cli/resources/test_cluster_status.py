"""What the commands say about a cluster, held against the statuses that the server's controller really writes."""

from datetime import UTC, datetime

import pytest

from fairlead.cli.resources.cluster_status import advice, is_connected, is_healthy, is_probed, probe_lines, summary_line
from fairlead.controllers.clusters.status import (
    ClusterDetails,
    Probe,
    ProbeFailure,
    ProbeResult,
    disconnected_status,
    next_status,
)
from fairlead.core.objects import Object

NOW = "2026-01-01T00:00:00Z"
REACHED = Probe("connection", True, "the cluster answers")
DETAILS = ClusterDetails((Probe("nodes", True, "1 node"),), "uid-1", 1)
WELL = ProbeResult((REACHED,), version="v1.31.0", details=DETAILS)
POWERLESS = ClusterDetails((Probe("impersonation", False, "bind it to a role"),), missing_rights="bind it to a role")


def berlin(found: ProbeResult, twin: str = "") -> Object:
    cluster: Object = {"metadata": {"name": "berlin", "generation": 1}, "spec": {"config": {"secretName": "s"}}}
    return cluster | {"status": next_status(cluster, found, twin, None, NOW)}


def test_a_cluster_that_nobody_has_looked_at_is_still_to_be_waited_for() -> None:
    new: Object = {"metadata": {"name": "berlin"}, "spec": {"config": {"secretName": "s"}}}
    assert (is_probed(new), is_healthy(new), is_connected(new)) == (False, False, False)
    assert summary_line(new) == "the cluster berlin is not connected: the server has not probed it yet"


def test_a_cluster_that_is_well_is_told_with_what_it_is() -> None:
    cluster = berlin(WELL)
    assert (is_probed(cluster), is_healthy(cluster)) == (True, True)
    assert summary_line(cluster) == "the cluster berlin is connected: Kubernetes v1.31.0, 1 node"
    assert probe_lines(cluster) == ["✓ connection   the cluster answers", "✓ nodes        1 node"]


@pytest.mark.parametrize("lasting", [False, True])
def test_a_cluster_that_is_not_reached_is_told_with_the_exact_reason(lasting: bool) -> None:
    why = ProbeFailure("CertificateNotTrusted", "the certificate is from a stranger", lasting)
    cluster = berlin(ProbeResult((Probe("connection", False, why.message),), why))
    assert (is_probed(cluster), is_healthy(cluster), is_connected(cluster)) == (True, False, False)
    assert (
        summary_line(cluster)
        == "the cluster berlin is not connected: CertificateNotTrusted: the certificate is from a stranger"
    )
    assert probe_lines(cluster) == ["✗ connection   the certificate is from a stranger"]


@pytest.mark.parametrize(
    ("found", "twin", "why"),
    [
        (ProbeResult((REACHED,), not_ready="etcd is down", version="v1.31.0"), "", "NotReady: etcd is down"),
        (
            ProbeResult((REACHED,), version="v1.31.0", details=POWERLESS),
            "",
            "ImpersonationForbidden: bind it to a role",
        ),
        (WELL, "munich", 'ClusterUID: this is the same cluster as "munich"'),
    ],
)
def test_a_cluster_that_is_reached_and_yet_of_no_use_is_told_so(found: ProbeResult, twin: str, why: str) -> None:
    cluster = berlin(found, twin)
    assert (is_probed(cluster), is_healthy(cluster), is_connected(cluster)) == (True, False, True)
    assert summary_line(cluster).startswith(f"the cluster berlin is connected, but not healthy: {why}")


def test_what_a_person_has_to_do_is_not_said_to_get_on_by_itself() -> None:
    cluster = berlin(ProbeResult((REACHED,), version="v1.31.0", details=POWERLESS))
    assert next(advice(cluster, datetime.now(UTC))).startswith("after you have fixed it")


def test_what_costs_only_a_feature_is_shown_and_leaves_the_cluster_well() -> None:
    extra = Probe("impersonation-extra", False, "no --as", "Warning")
    cluster = berlin(ProbeResult((REACHED,), version="v1.31.0", details=ClusterDetails((extra,))))
    assert is_healthy(cluster)
    assert probe_lines(cluster)[-1] == "! impersonation-extra   no --as"


def test_a_cluster_without_its_kubeconfig_is_no_longer_connected() -> None:
    cluster = berlin(WELL)
    cluster["status"] = disconnected_status(cluster, NOW)
    assert (is_probed(cluster), is_healthy(cluster)) == (True, False)
    assert "is not connected: KubeconfigNotSet: " in summary_line(cluster)
