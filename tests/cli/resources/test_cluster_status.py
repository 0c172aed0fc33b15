"""fairlead.cli.resources.cluster_status: summaries and advice for statuses that the cluster controller writes."""

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
HEALTHY = ProbeResult((REACHED,), version="v1.31.0", details=DETAILS)
FORBIDDEN = ClusterDetails((Probe("impersonation", False, "bind it to a role"),), missing_rights="bind it to a role")


def build_cluster(result: ProbeResult, duplicate: str = "") -> Object:
    cluster: Object = {"metadata": {"name": "berlin", "generation": 1}, "spec": {"config": {"secretName": "s"}}}
    return cluster | {"status": next_status(cluster, result, duplicate, None, NOW)}


def test_a_new_cluster_is_not_probed_yet() -> None:
    new: Object = {"metadata": {"name": "berlin"}, "spec": {"config": {"secretName": "s"}}}
    assert (is_probed(new), is_healthy(new), is_connected(new)) == (False, False, False)
    assert summary_line(new) == "the cluster berlin is not connected: the server has not probed it yet"


def test_a_healthy_cluster_is_summarized_with_version_and_nodes() -> None:
    cluster = build_cluster(HEALTHY)
    assert (is_probed(cluster), is_healthy(cluster)) == (True, True)
    assert summary_line(cluster) == "the cluster berlin is connected: Kubernetes v1.31.0, 1 node"
    assert probe_lines(cluster) == ["✓ connection   the cluster answers", "✓ nodes        1 node"]


@pytest.mark.parametrize("permanent", [False, True])
def test_an_unreachable_cluster_is_summarized_with_the_reason(permanent: bool) -> None:
    reason = ProbeFailure("CertificateNotTrusted", "the certificate is of an unknown CA", permanent)
    cluster = build_cluster(ProbeResult((Probe("connection", False, reason.message),), reason))
    assert (is_probed(cluster), is_healthy(cluster), is_connected(cluster)) == (True, False, False)
    assert (
        summary_line(cluster)
        == "the cluster berlin is not connected: CertificateNotTrusted: the certificate is of an unknown CA"
    )
    assert probe_lines(cluster) == ["✗ connection   the certificate is of an unknown CA"]


@pytest.mark.parametrize(
    ("result", "duplicate", "reason"),
    [
        (ProbeResult((REACHED,), not_ready="etcd is down", version="v1.31.0"), "", "NotReady: etcd is down"),
        (
            ProbeResult((REACHED,), version="v1.31.0", details=FORBIDDEN),
            "",
            "ImpersonationForbidden: bind it to a role",
        ),
        (HEALTHY, "munich", 'ClusterUID: this is the same cluster as "munich"'),
    ],
)
def test_a_connected_cluster_that_is_not_healthy_is_summarized_with_the_reason(
    result: ProbeResult, duplicate: str, reason: str
) -> None:
    cluster = build_cluster(result, duplicate)
    assert (is_probed(cluster), is_healthy(cluster), is_connected(cluster)) == (True, False, True)
    assert summary_line(cluster).startswith(f"the cluster berlin is connected, but not healthy: {reason}")


def test_a_problem_that_needs_an_administrator_gets_advice_to_fix_it() -> None:
    cluster = build_cluster(ProbeResult((REACHED,), version="v1.31.0", details=FORBIDDEN))
    assert next(advice(cluster, datetime.now(UTC))).startswith("after you have fixed it")


def test_a_failed_probe_with_a_warning_leaves_the_cluster_healthy() -> None:
    extra = Probe("impersonation-extra", False, "no --as", "Warning")
    cluster = build_cluster(ProbeResult((REACHED,), version="v1.31.0", details=ClusterDetails((extra,))))
    assert is_healthy(cluster)
    assert probe_lines(cluster)[-1] == "! impersonation-extra   no --as"


def test_a_cluster_without_its_kubeconfig_is_no_longer_connected() -> None:
    cluster = build_cluster(HEALTHY)
    cluster["status"] = disconnected_status(cluster, NOW)
    assert (is_probed(cluster), is_healthy(cluster)) == (True, False)
    assert "is not connected: KubeconfigNotSet: " in summary_line(cluster)
