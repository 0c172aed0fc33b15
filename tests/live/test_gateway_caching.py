"""kubectl keeps discovery in its home folder and only asks whether it still holds: the second command is the test.

The headers of a 304 are written into the answer that kubectl has kept. One too many, and it reads that answer as
something else from then on.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fake_cluster.pods import serve_pod
from tests.fake_cluster.server import FakeCluster
from tests.harness.gateways import connect, gateway_path, is_online, kubeconfig_of, kubectl_at, wait_until
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import Server, running
from tests.live.test_agent import agent, equip, token
from tests.live.test_agent import furnish as furnish_server

RESOURCES = ["pods"]


@pytest.fixture(scope="module")
def far() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        serve_pod(made)
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("caching") / "data") as made:
        yield made


def assert_discovery_lasts(kubectl: Kubectl, far: FakeCluster) -> None:
    confirmed = len([each for each in far.requests if each.header("if-none-match")])
    for _ in range(3):
        assert [line.split()[0] for line in kubectl("api-resources", "--no-headers").splitlines()] == RESOURCES
    assert len([each for each in far.requests if each.header("if-none-match")]) == confirmed + 4, (
        "twice for each of two"
    )
    assert kubectl.names("pod", "p") == ["p"]


def test_discovery_through_a_gateway_lasts(
    server: Server, far: FakeCluster, component: Callable[[str], Path], tmp_path: Path
) -> None:
    with server.client() as admin:
        connect(admin, "oslo", far.build_kubeconfig())
        wait_until(lambda: is_online(admin, "oslo"))
    content = kubeconfig_of(server.url + gateway_path("oslo"), Path(server.ca_file), server.key)
    assert_discovery_lasts(kubectl_at(component("kubectl"), tmp_path, content), far)


def test_discovery_through_an_agent_lasts(
    server: Server, far: FakeCluster, component: Callable[[str], Path], tmp_path: Path
) -> None:
    with server.client() as admin:
        key = furnish_server(admin)
    good = token(server, key)
    equip(tmp_path / "agent", server, far)
    with agent(tmp_path / "agent", server) as client:
        authority = tmp_path / "agent" / "state" / "tls" / "ca.crt"
        content = kubeconfig_of(f"{client.base_url}/kubernetes/cluster", authority, good)
        assert_discovery_lasts(kubectl_at(component("kubectl"), tmp_path / "home", content), far)
