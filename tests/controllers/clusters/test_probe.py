"""Looks at a real server over TLS, well-behaved and otherwise. In real time, as it is in a thread of its own."""

import asyncio
import json

import pytest

from fairlead.controllers.clusters import probe
from fairlead.controllers.clusters.probe import REVIEWS_PATH, probe_cluster
from fairlead.controllers.clusters.status import ClusterDetails, ProbeResult
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.kubeconfig import parse_kubeconfig
from fairlead.upstream.upstream import Limits, Upstream
from tests.fake_cluster.behaviours import BEHAVIOURS
from tests.fake_cluster.certificates import authority
from tests.fake_cluster.exchange import Answer, as_json, status_object
from tests.fake_cluster.server import ClusterBehaviour, FakeCluster, fake_cluster

__all__ = ["fake_cluster"]

CANARY = "canary-of-the-far-side"


async def opened(far: FakeCluster, token: str) -> Upstream:
    policy = AddressPolicy(("127.0.0.0/8",), lambda: ())
    return Upstream(parse_kubeconfig(far.kubeconfig(token=token)), policy.resolve, Limits())


def looked(far: FakeCluster, known: ClusterDetails | None = None, token: str = "far-token") -> ProbeResult:
    async def run() -> ProbeResult:
        upstream = await opened(far, token)
        try:
            return await probe_cluster(upstream, known)
        finally:
            await upstream.close()

    found = asyncio.run(run())
    assert CANARY not in str(found)
    assert str(far.port) not in str(found)
    return found


def names(found: ProbeResult) -> dict[str, bool]:
    return {each.name: each.ok for each in (*found.probes, *found.details.probes)}


def test_a_kubernetes_that_is_well(fake_cluster: FakeCluster) -> None:
    found = looked(fake_cluster)
    assert (found.failure, found.not_ready, found.version, found.is_incomplete) == (None, "", "v1.34.1", False)
    assert (found.details.uid, found.details.nodes) == (fake_cluster.manner.uid, 1)
    told = ("config", "connection", "version", "readyz", "kube-system", "nodes", "impersonation", "impersonation-extra")
    assert names(found) == dict.fromkeys(told, True)
    assert {each.header("authorization") for each in fake_cluster.seen} == {"Bearer far-token"}
    assert fake_cluster.connections == 1


def test_what_is_known_is_not_asked_for_again(fake_cluster: FakeCluster) -> None:
    known = ClusterDetails((), "u", 7)
    assert looked(fake_cluster, known).details is known
    assert fake_cluster.paths() == ["GET /version", "GET /readyz"]


def test_a_server_without_namespaces_nodes_and_reviews_is_connected(fake_cluster: FakeCluster) -> None:
    for path in ("/readyz", "/api/v1/namespaces/kube-system", "/api/v1/nodes", REVIEWS_PATH):
        fake_cluster.answer(path, status_object(404, "NotFound", CANARY))
    found = looked(fake_cluster)
    assert (found.failure, found.not_ready, found.details) == (None, "", ClusterDetails())
    assert all(names(found).values())


def test_what_the_credential_may_not_see_is_left_out_and_said(fake_cluster: FakeCluster) -> None:
    for path in ("/readyz", "/api/v1/namespaces/kube-system", "/api/v1/nodes", REVIEWS_PATH):
        fake_cluster.answer(path, status_object(403, "Forbidden", CANARY))
    found = looked(fake_cluster)
    assert (found.failure, found.not_ready, found.details.uid, found.details.nodes) == (None, "", "", None)
    assert all(names(found).values())
    assert ["may not" in each.message for each in found.details.probes] == [True, True]


def test_many_nodes_are_counted_by_one(fake_cluster: FakeCluster) -> None:
    page = {"items": [{}], "metadata": {"remainingItemCount": 249}}
    fake_cluster.answer("/api/v1/nodes", as_json(page))
    assert looked(fake_cluster).details.nodes == 250


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (("users",), "impersonate users, so"),
        (("groups",), "impersonate groups, so"),
        (("uids",), "impersonate uids (authentication.k8s.io), so"),
        (("users", "groups", "uids"), "impersonate users, groups, uids (authentication.k8s.io), so"),
    ],
)
def test_each_missing_right_to_impersonate_is_named_with_the_command_that_prints_a_role(
    refused: tuple[str, ...], said: str
) -> None:
    with FakeCluster(manner=ClusterBehaviour(refused=refused)) as far:
        found = looked(far)
    assert (found.failure, found.not_ready) == (None, "")
    assert said in found.details.missing_rights
    assert "`fairlead cluster role gateways`" in found.details.missing_rights
    assert names(found)["impersonation"] is False
    assert [each.message for each in found.details.probes if not each.ok] == [found.details.missing_rights]


def test_a_missing_right_to_the_extra_value_is_a_warning_only() -> None:
    with FakeCluster(manner=ClusterBehaviour(refused=("userextras/service.sh/impersonator",))) as far:
        found = looked(far)
    assert found.details.missing_rights == ""
    warned = [(each.name, each.severity) for each in found.details.probes if not each.ok]
    assert warned == [("impersonation-extra", "Warning")]


def test_rights_are_reviewed_by_the_names_that_kubernetes_authorizes_impersonation_with(
    fake_cluster: FakeCluster,
) -> None:
    looked(fake_cluster)
    reviewed = [
        json.loads(each.body)["spec"]["resourceAttributes"] for each in fake_cluster.seen if each.method == "POST"
    ]
    assert {each["verb"] for each in reviewed} == {"impersonate"}
    assert [(each.get("group", ""), each["resource"], each.get("subresource", "")) for each in reviewed] == [
        ("", "users", ""),
        ("", "groups", ""),
        ("authentication.k8s.io", "uids", ""),
        ("authentication.k8s.io", "userextras", "service.sh/impersonator"),
    ]


@pytest.mark.parametrize("status", [500, 503])
def test_a_cluster_that_says_it_is_not_ready_is_believed(fake_cluster: FakeCluster, status: int) -> None:
    fake_cluster.answer("/readyz", Answer(status, CANARY.encode()))
    found = looked(fake_cluster)
    assert found.failure is None
    assert str(status) in found.not_ready
    assert not names(found)["readyz"]


@pytest.mark.parametrize(
    ("answer", "reason", "lasting"),
    [
        (status_object(401, "Unauthorized", CANARY), "Unauthorized", True),
        (status_object(403, "Forbidden", CANARY), "Forbidden", True),
        (status_object(404, "NotFound", CANARY), "NotKubernetes", True),
        (Answer(302, b"", headers={"location": f"https://{CANARY}/"}), "NotKubernetes", True),
        (Answer(200, CANARY.encode()), "NotKubernetes", True),
        (as_json({"gitVersion": f"{CANARY}\n" * 100}), "NotKubernetes", True),
        (as_json({"gitVersion": 7}), "NotKubernetes", True),
        (status_object(429, "TooManyRequests", CANARY), "Unhealthy", False),
        (status_object(503, "ServiceUnavailable", CANARY), "Unhealthy", False),
    ],
)
def test_t22_what_is_no_good_answer_is_told_without_repeating_it(
    fake_cluster: FakeCluster, answer: Answer, reason: str, lasting: bool
) -> None:
    fake_cluster.answer("/version", answer)
    trouble = looked(fake_cluster).failure
    assert trouble is not None
    assert (trouble.reason, trouble.is_permanent) == (reason, lasting)


def test_a_credential_that_is_not_accepted_is_a_probe_of_its_own() -> None:
    with FakeCluster(manner=ClusterBehaviour(token="right")) as far:
        found = looked(far, token="wrong")
    assert names(found) == {"config": True, "connection": True, "credential": False}


@pytest.mark.parametrize(
    "manner",
    [
        ClusterBehaviour(names=("other.example",)),
        ClusterBehaviour(days=-1),
        ClusterBehaviour(issuer=authority("a stranger")),
    ],
)
def test_a_certificate_that_is_not_trusted_is_to_be_mended(manner: ClusterBehaviour) -> None:
    with FakeCluster(manner=manner) as far:
        found = looked(far)
        assert far.seen == []
    assert found.failure is not None
    assert (found.failure.reason, found.failure.is_permanent) == ("CertificateNotTrusted", True)


def test_a_cluster_that_is_gone_may_come_back(fake_cluster: FakeCluster) -> None:
    fake_cluster.stop()
    found = looked(fake_cluster)
    assert found.failure is not None
    assert (found.failure.reason, found.failure.is_permanent) == ("Unreachable", False)
    fake_cluster.start()
    assert looked(fake_cluster).failure is None


@pytest.mark.parametrize("behaviour", ["/far/never", "/far/stall"])
def test_a_silent_cluster_is_not_waited_for(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    monkeypatch.setattr(probe, "PROBE_TIMEOUT", 0.3)
    fake_cluster.behave("/version", BEHAVIOURS[behaviour])
    trouble = looked(fake_cluster).failure
    assert trouble is not None
    assert (trouble.reason, trouble.is_permanent) == ("TimedOut", False)


@pytest.mark.parametrize("path", ["/readyz", "/api/v1/nodes"])
@pytest.mark.parametrize("behaviour", ["/far/never", "/far/hang-up", "/far/garbage", "/far/break-off"])
def test_one_that_answers_only_at_first_is_connected_and_shaky(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, path: str, behaviour: str
) -> None:
    monkeypatch.setattr(probe, "PROBE_TIMEOUT", 0.5)
    fake_cluster.behave(path, BEHAVIOURS[behaviour])
    found = looked(fake_cluster)
    assert found.failure is None
    assert found.is_incomplete
    assert found.not_ready
