"""Charts that a real Helm deploys into a cluster that dials out: another Fairlead, reached only by the agent."""

from collections.abc import Iterator

import pytest

from tests.harness.apps import check_app_lifecycle
from tests.harness.gateways import M, create_resource, gateway_kubeconfig
from tests.harness.helm import (
    CLUSTER,
    HelmFixture,
    check_release_lifecycle,
    create_project,
    open_repository,
    spell_otherwise,
)
from tests.harness.joined_agents import create_join_token, joined_agent
from tests.harness.server_process import MANAGEMENT, running_server


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelmFixture]:
    folder = tmp_path_factory.mktemp("agent")
    with (
        running_server(folder / "remote") as remote,
        open_repository(folder / "charts") as repository,
        running_server(folder / "data", chart_repositories=repository.url) as server,
        server.client() as admin,
    ):
        kubeconfig = gateway_kubeconfig(remote, MANAGEMENT, remote.key)
        create_resource(admin, "clusters", "Cluster", CLUSTER, networkPeer=True)
        with joined_agent(folder / "agent", server, kubeconfig.encode(), create_join_token(admin, CLUSTER)):
            create_project(admin)
            assert "config" not in admin.get(f"{M}/clusters/{CLUSTER}").json()["spec"]
            yield HelmFixture(admin, repository, spell_otherwise(kubeconfig))
        assert "Traceback" not in server.log.read_text()


def test_a_chart_is_deployed_upgraded_and_removed_through_the_agent(helm: HelmFixture) -> None:
    check_release_lifecycle(helm)


def test_an_app_is_deployed_upgraded_rolled_back_and_uninstalled_through_the_agent(helm: HelmFixture) -> None:
    check_app_lifecycle(helm)
