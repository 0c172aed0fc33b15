"""Tests of `fairlead.controllers.clusters.probe` with a fake cluster over TLS, which runs in its own thread."""

import asyncio
import json

import pytest

from fairlead.controllers.clusters import probe
from fairlead.controllers.clusters.probe import OWN_SERVER_MESSAGE, OwnServer, probe_cluster
from fairlead.controllers.clusters.rights import REVIEWS_PATH
from fairlead.controllers.clusters.status import ClusterDetails, ProbeFailure, ProbeResult
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.dial import DirectDialer
from fairlead.upstream.kubeconfig import parse_kubeconfig
from fairlead.upstream.upstream import Limits, Upstream, dialled_upstream
from tests.fake_cluster.behaviours import BEHAVIOURS
from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.exchange import CannedResponse, build_json_response, build_status_response
from tests.fake_cluster.server import ClusterOptions, FakeCluster, fake_cluster

__all__ = ["fake_cluster"]

CANARY = "canary-of-the-cluster"


async def build_upstream(fake_cluster: FakeCluster, token: str) -> Upstream:
    policy = AddressPolicy(("127.0.0.0/8",), lambda: ())
    endpoint = parse_kubeconfig(fake_cluster.build_kubeconfig(token=token))
    return dialled_upstream(endpoint, DirectDialer(endpoint, policy.resolve), Limits())


def run_probe(
    fake_cluster: FakeCluster,
    known_details: ClusterDetails | None = None,
    token: str = "fake-token",
    own: OwnServer | None = None,
) -> ProbeResult:
    async def run() -> ProbeResult:
        upstream = await build_upstream(fake_cluster, token)
        try:
            return await probe_cluster(upstream, known_details, own)
        finally:
            await upstream.close()

    result = asyncio.run(run())
    assert CANARY not in str(result)
    assert str(fake_cluster.port) not in str(result)
    return result


def outcomes_by_name(result: ProbeResult) -> dict[str, bool]:
    return {probe.name: probe.ok for probe in (*result.probes, *result.details.probes)}


def test_a_healthy_cluster(fake_cluster: FakeCluster) -> None:
    result = run_probe(fake_cluster)
    assert (result.failure, result.not_ready, result.version, result.is_incomplete) == (None, "", "v1.34.1", False)
    assert (result.details.uid, result.details.nodes) == (fake_cluster.options.uid, 1)
    probe_names = (
        "config",
        "connection",
        "version",
        "readyz",
        "kube-system",
        "nodes",
        "impersonation",
        "impersonation-extra",
    )
    assert outcomes_by_name(result) == dict.fromkeys(probe_names, True)
    assert {request.header("authorization") for request in fake_cluster.requests} == {"Bearer fake-token"}
    assert fake_cluster.connection_count == 1


def test_known_details_are_not_requested_again(fake_cluster: FakeCluster) -> None:
    known_details = ClusterDetails((), "u", 7)
    assert run_probe(fake_cluster, known_details).details is known_details
    assert fake_cluster.request_lines() == ["GET /version", "GET /readyz"]


def test_a_server_without_namespaces_nodes_and_reviews_is_connected(fake_cluster: FakeCluster) -> None:
    for path in ("/readyz", "/api/v1/namespaces/kube-system", "/api/v1/nodes", REVIEWS_PATH):
        fake_cluster.set_response(path, build_status_response(404, "NotFound", CANARY))
    result = run_probe(fake_cluster)
    assert (result.failure, result.not_ready, result.details) == (None, "", ClusterDetails())
    assert all(outcomes_by_name(result).values())


@pytest.mark.parametrize(("uid", "is_own"), [("uid-of-this-server", True), ("uid-of-another-server", False)])
def test_this_server_is_not_a_cluster_of_itself(fake_cluster: FakeCluster, uid: str, is_own: bool) -> None:
    """By whatever address it is reached. Another Fairlead may be connected."""
    fake_cluster.set_response("/api/v1/namespaces/kube-system", build_status_response(404, "NotFound", ""))
    fake_cluster.set_response("/api/v1/namespaces/service-system", build_json_response({"metadata": {"uid": uid}}))
    result = run_probe(fake_cluster, own=OwnServer("service-system", "uid-of-this-server"))
    if is_own:
        assert result.failure == ProbeFailure("OwnServer", OWN_SERVER_MESSAGE, True)
        assert outcomes_by_name(result)["identity"] is False
    else:
        assert result.failure is None


def test_a_cluster_of_kubernetes_gets_no_request_for_the_namespace_of_this_server(fake_cluster: FakeCluster) -> None:
    run_probe(fake_cluster, own=OwnServer("service-system", "uid-of-this-server"))
    assert "GET /api/v1/namespaces/service-system" not in fake_cluster.request_lines()


def test_details_that_the_credential_cannot_read_are_left_out_with_a_message(fake_cluster: FakeCluster) -> None:
    for path in ("/readyz", "/api/v1/namespaces/kube-system", "/api/v1/nodes", REVIEWS_PATH):
        fake_cluster.set_response(path, build_status_response(403, "Forbidden", CANARY))
    result = run_probe(fake_cluster)
    assert (result.failure, result.not_ready, result.details.uid, result.details.nodes) == (None, "", "", None)
    assert all(outcomes_by_name(result).values())
    assert ["may not" in probe.message for probe in result.details.probes] == [True, True]


def test_nodes_are_counted_with_one_request(fake_cluster: FakeCluster) -> None:
    page = {"items": [{}], "metadata": {"remainingItemCount": 249}}
    fake_cluster.set_response("/api/v1/nodes", build_json_response(page))
    assert run_probe(fake_cluster).details.nodes == 250


@pytest.mark.parametrize(
    ("rejected", "expected"),
    [
        (("users",), "impersonate users, so"),
        (("groups",), "impersonate groups, so"),
        (("uids",), "impersonate uids (authentication.k8s.io), so"),
        (("users", "groups", "uids"), "impersonate users, groups, uids (authentication.k8s.io), so"),
    ],
)
def test_missing_impersonation_permissions_are_named_with_a_command_that_prints_a_role(
    rejected: tuple[str, ...], expected: str
) -> None:
    with FakeCluster(options=ClusterOptions(denied_impersonations=rejected)) as fake_cluster:
        result = run_probe(fake_cluster)
    assert (result.failure, result.not_ready) == (None, "")
    assert expected in result.details.missing_rights
    assert "`fairlead cluster role gateways`" in result.details.missing_rights
    assert outcomes_by_name(result)["impersonation"] is False
    assert [probe.message for probe in result.details.probes if not probe.ok] == [result.details.missing_rights]


def test_a_missing_permission_for_the_extra_value_is_only_a_warning() -> None:
    with FakeCluster(
        options=ClusterOptions(denied_impersonations=("userextras/service.sh/impersonator",))
    ) as fake_cluster:
        result = run_probe(fake_cluster)
    assert result.details.missing_rights == ""
    warnings = [(probe.name, probe.severity) for probe in result.details.probes if not probe.ok]
    assert warnings == [("impersonation-extra", "Warning")]


def test_permissions_are_reviewed_with_the_resources_that_kubernetes_checks(
    fake_cluster: FakeCluster,
) -> None:
    run_probe(fake_cluster)
    reviews = [
        json.loads(request.body)["spec"]["resourceAttributes"]
        for request in fake_cluster.requests
        if request.method == "POST"
    ]
    assert {review["verb"] for review in reviews} == {"impersonate"}
    assert [(review.get("group", ""), review["resource"], review.get("subresource", "")) for review in reviews] == [
        ("", "users", ""),
        ("", "groups", ""),
        ("authentication.k8s.io", "uids", ""),
        ("authentication.k8s.io", "userextras", "service.sh/impersonator"),
    ]


@pytest.mark.parametrize("status", [500, 503])
def test_a_cluster_that_reports_not_ready_is_not_ready(fake_cluster: FakeCluster, status: int) -> None:
    fake_cluster.set_response("/readyz", CannedResponse(status, CANARY.encode()))
    result = run_probe(fake_cluster)
    assert result.failure is None
    assert str(status) in result.not_ready
    assert not outcomes_by_name(result)["readyz"]


@pytest.mark.parametrize(
    ("answer", "reason", "is_permanent"),
    [
        (build_status_response(401, "Unauthorized", CANARY), "Unauthorized", True),
        (build_status_response(403, "Forbidden", CANARY), "Forbidden", True),
        (build_status_response(404, "NotFound", CANARY), "NotKubernetes", True),
        (CannedResponse(302, b"", headers={"location": f"https://{CANARY}/"}), "NotKubernetes", True),
        (CannedResponse(200, CANARY.encode()), "NotKubernetes", True),
        (build_json_response({"gitVersion": f"{CANARY}\n" * 100}), "NotKubernetes", True),
        (build_json_response({"gitVersion": 7}), "NotKubernetes", True),
        (build_status_response(429, "TooManyRequests", CANARY), "Unhealthy", False),
        (build_status_response(503, "ServiceUnavailable", CANARY), "Unhealthy", False),
    ],
)
def test_t22_an_unexpected_response_is_reported_without_its_content(
    fake_cluster: FakeCluster, answer: CannedResponse, reason: str, is_permanent: bool
) -> None:
    fake_cluster.set_response("/version", answer)
    failure = run_probe(fake_cluster).failure
    assert failure is not None
    assert (failure.reason, failure.is_permanent) == (reason, is_permanent)


def test_a_rejected_credential_is_a_separate_probe() -> None:
    with FakeCluster(options=ClusterOptions(token="right")) as fake_cluster:
        result = run_probe(fake_cluster, token="wrong")
    assert outcomes_by_name(result) == {"config": True, "connection": True, "credential": False}


@pytest.mark.parametrize(
    "cluster_behaviour",
    [
        ClusterOptions(names=("other.example",)),
        ClusterOptions(days=-1),
        ClusterOptions(issuer=get_authority("an unknown authority")),
    ],
)
def test_an_untrusted_certificate_is_a_permanent_failure(cluster_behaviour: ClusterOptions) -> None:
    with FakeCluster(options=cluster_behaviour) as fake_cluster:
        result = run_probe(fake_cluster)
        assert fake_cluster.requests == []
    assert result.failure is not None
    assert (result.failure.reason, result.failure.is_permanent) == ("CertificateNotTrusted", True)


def test_an_unreachable_cluster_is_a_temporary_failure(fake_cluster: FakeCluster) -> None:
    fake_cluster.stop()
    result = run_probe(fake_cluster)
    assert result.failure is not None
    assert (result.failure.reason, result.failure.is_permanent) == ("Unreachable", False)
    fake_cluster.start()
    assert run_probe(fake_cluster).failure is None


@pytest.mark.parametrize("behaviour", ["/fake/never", "/fake/stall"])
def test_a_cluster_that_does_not_respond_is_a_timeout(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    monkeypatch.setattr(probe, "PROBE_TIMEOUT", 0.3)
    fake_cluster.set_behaviour("/version", BEHAVIOURS[behaviour])
    failure = run_probe(fake_cluster).failure
    assert failure is not None
    assert (failure.reason, failure.is_permanent) == ("TimedOut", False)


@pytest.mark.parametrize("path", ["/readyz", "/api/v1/nodes"])
@pytest.mark.parametrize("behaviour", ["/fake/never", "/fake/hang-up", "/fake/garbage", "/fake/break-off"])
def test_a_cluster_that_fails_after_the_first_request_is_connected_and_incomplete(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, path: str, behaviour: str
) -> None:
    monkeypatch.setattr(probe, "PROBE_TIMEOUT", 0.5)
    fake_cluster.set_behaviour(path, BEHAVIOURS[behaviour])
    result = run_probe(fake_cluster)
    assert result.failure is None
    assert result.is_incomplete
    assert result.not_ready
