"""Tests of `fairlead.controllers.clusters.identity`: two installations that use one cluster."""

import asyncio
import json
from typing import cast

import orjson
import pytest

from fairlead.controllers.clusters.clusters import ClusterController
from fairlead.controllers.clusters.identity import (
    CONFIG_MAPS_PATH,
    Installation,
    claim_identity,
    release_identity,
)
from fairlead.core.objects import Object, get_path
from fairlead.domain.cluster_identity import ClusterIdentityMapper, find_identity_conflict
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.clusters import UpstreamRegistry
from fairlead.upstream.errors import Unreachable
from fairlead.upstream.upstream import Request, Upstream
from tests.controllers.clusters.cluster_fixture import (
    CONFIG,
    FakeResponse,
    FakeUpstream,
    FakeUpstreams,
    cluster_status,
    condition_status,
    server,
    upstreams,
)
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture

__all__ = ["server", "upstreams"]
ONE = Installation("id-1", "https://one.example", "fairlead:")
TWO = Installation("id-2", "https://two.example", "fairlead:")
NOW = "2026-01-01T00:00:00Z"
BINDINGS_PATH = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


class SharedCluster(FakeUpstream):
    """A cluster with ConfigMaps, as Kubernetes has them: with a resourceVersion that a write must know."""

    def __init__(self) -> None:
        super().__init__()
        self.config_map: Object | None = None
        self.refusal = 0
        """The HTTP status for all requests about ConfigMaps."""
        self.intruder: Installation | None = None
        """Another installation that records itself after the next read."""
        self.responses[BINDINGS_PATH] = (201, {})

    async def send(self, request: Request, *, seconds: float | None = None) -> FakeResponse:
        if not request.target.startswith(CONFIG_MAPS_PATH) or self.error is not None:
            return await super().send(request, seconds=seconds)
        if self.refusal:
            return FakeResponse(self.refusal, {"kind": "Status"})
        body: Object = orjson.loads(request.body) if isinstance(request.body, bytes) and request.body else {}
        if request.method == "GET":
            found = FakeResponse(404, None) if self.config_map is None else FakeResponse(200, self.config_map)
            if self.intruder is not None:
                intruder = self.intruder
                self.intruder = None
                await claim_identity(cast(Upstream, self), intruder, NOW)
            return found
        known = get_path(self.config_map, "metadata.resourceVersion")
        if known != get_path(body, "metadata.resourceVersion"):
            return FakeResponse(409, {"kind": "Status"})
        version = str(int(known or 0) + 1)
        self.config_map = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        return FakeResponse(200 if known else 201, self.config_map)

    def list_records(self) -> list[tuple[str, str, str]]:
        """Installation, prefix and URL of each record."""
        records = [json.loads(text) for text in (get_path(self.config_map, "data") or {}).values()]
        return sorted((each["installation"], each["prefix"], each["url"]) for each in records)


async def claim(cluster: SharedCluster, installation: Installation) -> str:
    """The id of the installation that has the prefix; empty if it is this one."""
    result = await claim_identity(cast(Upstream, cluster), installation, NOW)
    assert result is not None
    return result.other


async def test_the_first_installation_with_a_prefix_wins() -> None:
    cluster = SharedCluster()
    assert await claim(cluster, ONE) == ""
    assert (await claim(cluster, TWO), await claim(cluster, ONE)) == ("id-1", "")
    other_prefix = Installation("id-2", "https://two.example", "two:")
    assert await claim(cluster, other_prefix) == ""
    assert cluster.list_records() == [
        ("id-1", "fairlead:", "https://one.example"),
        ("id-2", "two:", "https://two.example"),
    ]


@pytest.mark.parametrize("exists", [False, True])
async def test_of_two_at_the_same_time_one_wins(exists: bool) -> None:
    cluster = SharedCluster()
    if exists:
        await claim(cluster, Installation("id-3", "", "three:"))
    cluster.intruder = TWO
    assert await claim(cluster, ONE) == "id-2"
    assert ("id-1", "fairlead:", "https://one.example") not in cluster.list_records()


async def test_a_record_follows_the_prefix_and_the_url_of_its_installation() -> None:
    cluster = SharedCluster()
    await claim(cluster, ONE)
    await claim(cluster, Installation("id-1", "https://new.example", "mine:"))
    assert cluster.list_records() == [("id-1", "mine:", "https://new.example")]
    assert await claim(cluster, TWO) == ""


async def test_a_removed_cluster_frees_the_prefix() -> None:
    cluster = SharedCluster()
    await claim(cluster, ONE)
    await release_identity(cast(Upstream, cluster), TWO)
    assert await claim(cluster, TWO) == "id-1"
    await release_identity(cast(Upstream, cluster), ONE)
    assert await claim(cluster, TWO) == ""


async def test_what_is_no_record_is_replaced() -> None:
    cluster = SharedCluster()
    await claim(cluster, ONE)
    assert cluster.config_map is not None
    (key,) = cluster.config_map["data"]
    for text in ("", "no json", "[]", '{"installation": 7}'):
        cluster.config_map["data"][key] = text
        assert await claim(cluster, TWO) == ""


async def test_a_credential_without_the_permission_is_a_warning() -> None:
    cluster = SharedCluster()
    cluster.refusal = 403
    result = await claim_identity(cast(Upstream, cluster), ONE, NOW)
    assert result is not None
    (probe,) = result.probes
    assert (probe.ok, probe.severity) == (False, "Warning")
    assert "`fairlead cluster role gateways` prints a suitable role" in probe.message
    assert not result.other


async def test_a_cluster_that_does_not_answer_tells_nothing() -> None:
    cluster = SharedCluster()
    cluster.error = Unreachable("gone")
    assert await claim_identity(cast(Upstream, cluster), ONE, NOW) is None


async def connect_taken_cluster(api: RegistryFixture, upstreams: FakeUpstreams) -> SharedCluster:
    """A cluster that another installation uses with the same prefix."""
    cluster = SharedCluster()
    await claim(cluster, ONE)
    upstreams.by_name["berlin"] = cluster
    await api.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: condition_status(api, "Ready") == ("False", "IdentityPrefixTaken"))
    return cluster


async def test_a_cluster_of_another_installation_with_the_same_prefix_fails(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    cluster = await connect_taken_cluster(server, upstreams)
    status = cluster_status(server)
    assert (status["phase"], status["reason"], status["online"]) == ("Failed", "IdentityPrefixTaken", True)
    assert condition_status(server, "Stalled") == ("True", "IdentityPrefixTaken")
    for part in ("https://one.example", "id-1", "cluster_identity_prefix", "service.sh/shared-identity=id-1"):
        assert part in status["message"]
    assert not any(target.startswith(BINDINGS_PATH) for _, target, _ in cluster.sent), "no administrator is bound"
    found = server.get("Cluster", "berlin") or {}
    assert find_identity_conflict(found)


async def test_the_conflict_lasts_while_the_cluster_is_offline(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    cluster = await connect_taken_cluster(server, upstreams)
    cluster.error = Unreachable("gone")
    await eventually(lambda: cluster_status(server).get("reason") == "Offline")
    assert find_identity_conflict(server.get("Cluster", "berlin") or {})


@pytest.mark.parametrize(("declared", "reason"), [("id-1", ""), ("id-9", "IdentityPrefixTaken")])
async def test_an_administrator_may_declare_that_the_users_are_the_same(
    server: RegistryFixture, upstreams: FakeUpstreams, declared: str, reason: str
) -> None:
    await connect_taken_cluster(server, upstreams)
    annotation = {"annotations": {"service.sh/shared-identity": declared}}
    await server.patch("Cluster", "berlin", lambda each: each["metadata"].update(annotation), server_write_options())
    await asyncio.sleep(30)
    assert cluster_status(server)["reason"] == reason
    assert bool(find_identity_conflict(server.get("Cluster", "berlin") or {})) is bool(reason)


async def test_the_cluster_is_usable_when_the_other_one_is_gone(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    cluster = await connect_taken_cluster(server, upstreams)
    await release_identity(cast(Upstream, cluster), ONE)
    await eventually(lambda: condition_status(server, "Ready") == ("True", "Healthy"))
    await eventually(lambda: condition_status(server, "AdministratorsBound")[0] == "True")
    assert "identity" not in cluster_status(server)
    ((installation, _, _),) = cluster.list_records()
    assert installation == (server.get("Namespace", NAMESPACE) or {})["metadata"]["uid"]


async def test_a_deleted_cluster_has_no_record_of_this_installation(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstreams.by_name["berlin"] = cluster = SharedCluster()
    await server.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: condition_status(server, "Ready") == ("True", "Healthy"))
    assert len(cluster.list_records()) == 1
    await server.delete("Cluster", "berlin")
    await eventually(lambda: server.get("Cluster", "berlin") is None)
    assert cluster.list_records() == []


async def test_another_prefix_ends_the_conflict(api: RegistryFixture, upstreams: FakeUpstreams) -> None:
    cluster = SharedCluster()
    await claim(cluster, ONE)
    upstreams.by_name["berlin"] = cluster
    await api.create("Cluster", "berlin", spec={"config": CONFIG})
    for prefix, reason in (("fairlead:", "IdentityPrefixTaken"), ("mine:", "Healthy")):
        names = ClusterIdentityMapper(prefix)
        upstream_registry = cast(UpstreamRegistry, upstreams)
        controller = ClusterController(api.registry, MANAGEMENT_GROUP, NAMESPACE, upstream_registry, names)
        async with running_controllers(api, controller):
            await eventually(lambda: condition_status(api, "Ready")[1] == reason)  # noqa: B023
