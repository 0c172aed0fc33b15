"""kubectl's discovery cache, through a gateway and through an agent: kubectl revalidates it with ETags.

kubectl merges the headers of a 304 into the cached response. A wrong header would corrupt the cache for later commands.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fake_cluster.pods import serve_pod
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import build_kubeconfig, build_kubectl, connect_cluster, gateway_path, is_online
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import Server, running_server
from tests.live.agent_setup import create_cluster_and_user, create_token, prepare_agent, run_agent

RESOURCES = ["pods"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        serve_pod(cluster)
        yield cluster


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("caching") / "data") as server:
        yield server


def check_discovery_cache(kubectl: Kubectl, cluster: FakeCluster) -> None:
    revalidations = len([each for each in cluster.requests if each.header("if-none-match")])
    for _ in range(3):
        assert [line.split()[0] for line in kubectl("api-resources", "--no-headers").splitlines()] == RESOURCES
    assert len([each for each in cluster.requests if each.header("if-none-match")]) == revalidations + 4, (
        "two commands revalidate two documents each"
    )
    assert kubectl.get_names("pod", "p") == ["p"]


def test_the_discovery_cache_works_through_a_gateway(
    server: Server, cluster: FakeCluster, component: Callable[[str], Path], tmp_path: Path
) -> None:
    with server.client() as admin:
        connect_cluster(admin, "oslo", cluster.build_kubeconfig())
        wait_until(lambda: is_online(admin, "oslo"))
    content = build_kubeconfig(server.url + gateway_path("oslo"), Path(server.ca_file), server.key)
    check_discovery_cache(build_kubectl(component("kubectl"), tmp_path, content), cluster)


def test_the_discovery_cache_works_through_an_agent(
    server: Server, cluster: FakeCluster, component: Callable[[str], Path], tmp_path: Path
) -> None:
    with server.client() as admin:
        key = create_cluster_and_user(admin)
    token = create_token(server, key)
    prepare_agent(tmp_path / "agent", server, cluster)
    with run_agent(tmp_path / "agent", server) as client:
        ca_file = tmp_path / "agent" / "state" / "tls" / "ca.crt"
        content = build_kubeconfig(f"{client.base_url}/kubernetes/cluster", ca_file, token)
        check_discovery_cache(build_kubectl(component("kubectl"), tmp_path / "home", content), cluster)
