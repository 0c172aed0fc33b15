"""What the commands say about a cluster, held against the statuses that the server's controller really writes."""

from datetime import UTC, datetime

import pytest

from fairlead.cli.resources.cluster_status import advice, is_connected, is_healthy, is_settled, probe_lines, standing
from fairlead.controllers.clusters.status import Details, Found, Probe, Trouble, let_go, told
from fairlead.core.objects import Object

NOW = "2026-01-01T00:00:00Z"
REACHED = Probe("connection", True, "the cluster answers")
DETAILS = Details((Probe("nodes", True, "1 node"),), "uid-1", 1)
WELL = Found((REACHED,), version="v1.31.0", details=DETAILS)
POWERLESS = Details((Probe("impersonation", False, "bind it to a role"),), missing_rights="bind it to a role")


def berlin(found: Found, twin: str = "") -> Object:
    cluster: Object = {"metadata": {"name": "berlin", "generation": 1}, "spec": {"config": {"secretName": "s"}}}
    return cluster | {"status": told(cluster, found, twin, None, NOW)}


def test_a_cluster_that_nobody_has_looked_at_is_still_to_be_waited_for() -> None:
    new: Object = {"metadata": {"name": "berlin"}, "spec": {"config": {"secretName": "s"}}}
    assert (is_settled(new), is_healthy(new), is_connected(new)) == (False, False, False)
    assert standing(new) == "the cluster berlin is not connected: the server has not probed it yet"


def test_a_cluster_that_is_well_is_told_with_what_it_is() -> None:
    cluster = berlin(WELL)
    assert (is_settled(cluster), is_healthy(cluster)) == (True, True)
    assert standing(cluster) == "the cluster berlin is connected: Kubernetes v1.31.0, 1 node"
    assert probe_lines(cluster) == ["✓ connection   the cluster answers", "✓ nodes        1 node"]


@pytest.mark.parametrize("lasting", [False, True])
def test_a_cluster_that_is_not_reached_is_told_with_the_exact_reason(lasting: bool) -> None:
    why = Trouble("Untrusted", "the certificate is from a stranger", lasting)
    cluster = berlin(Found((Probe("connection", False, why.message),), why))
    assert (is_settled(cluster), is_healthy(cluster), is_connected(cluster)) == (True, False, False)
    assert standing(cluster) == "the cluster berlin is not connected: Untrusted: the certificate is from a stranger"
    assert probe_lines(cluster) == ["✗ connection   the certificate is from a stranger"]


@pytest.mark.parametrize(
    ("found", "twin", "why"),
    [
        (Found((REACHED,), unready="etcd is down", version="v1.31.0"), "", "NotReady: etcd is down"),
        (Found((REACHED,), version="v1.31.0", details=POWERLESS), "", "ImpersonationForbidden: bind it to a role"),
        (WELL, "munich", 'ClusterUID: this is the same cluster as "munich"'),
    ],
)
def test_a_cluster_that_is_reached_and_yet_of_no_use_is_told_so(found: Found, twin: str, why: str) -> None:
    cluster = berlin(found, twin)
    assert (is_settled(cluster), is_healthy(cluster), is_connected(cluster)) == (True, False, True)
    assert standing(cluster).startswith(f"the cluster berlin is connected, but not healthy: {why}")


def test_what_a_person_has_to_do_is_not_said_to_get_on_by_itself() -> None:
    cluster = berlin(Found((REACHED,), version="v1.31.0", details=POWERLESS))
    assert next(advice(cluster, datetime.now(UTC))).startswith("after you have fixed it")


def test_what_costs_only_a_feature_is_shown_and_leaves_the_cluster_well() -> None:
    extra = Probe("impersonation-extra", False, "no --as", "Warning")
    cluster = berlin(Found((REACHED,), version="v1.31.0", details=Details((extra,))))
    assert is_healthy(cluster)
    assert probe_lines(cluster)[-1] == "! impersonation-extra   no --as"


def test_a_cluster_without_its_kubeconfig_is_no_longer_connected() -> None:
    cluster = berlin(WELL)
    cluster["status"] = let_go(cluster, NOW)
    assert (is_settled(cluster), is_healthy(cluster)) == (True, False)
    assert "is not connected: NoConfig: " in standing(cluster)
