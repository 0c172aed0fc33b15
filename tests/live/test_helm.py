"""Virtual clusters deployed with real Helm into another Fairlead, which is sufficient for a small chart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_cluster.chart_repository import ChartRepository
from tests.harness.gateways import gateway_kubeconfig
from tests.harness.helm import (
    CHARTS,
    DEPLOYED,
    HelmFixture,
    check_namespace_confinement,
    check_release_lifecycle,
    open_helm,
)
from tests.harness.server_process import MANAGEMENT, running_server


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelmFixture]:
    folder = tmp_path_factory.mktemp("helm")
    with (
        running_server(folder / "remote") as remote,
        open_helm(folder / "server", gateway_kubeconfig(remote, MANAGEMENT, remote.key)) as (helm, server),
    ):
        yield helm
        assert "Traceback" not in server.log.read_text()


def test_a_chart_is_deployed_upgraded_and_removed(helm: HelmFixture) -> None:
    check_release_lifecycle(helm)


def test_a_failing_chart_is_reported_with_its_message(helm: HelmFixture) -> None:
    helm.create_from_template("incomplete", helm.release("demanding"))
    message = helm.wait_for_condition("incomplete", DEPLOYED, "HelmFailed")
    assert "(demanding/templates/check.yaml:1:9): set the value `name`" in message
    helm.update_template("incomplete", helm.release("demanding", name="x"))
    helm.wait_for_condition("incomplete", DEPLOYED, "Deployed")
    helm.delete("incomplete")


def test_a_missing_chart_is_named_without_the_address_of_its_repository(helm: HelmFixture) -> None:
    helm.create_from_template("unknown", helm.release(version="9.9.9"))
    message = helm.wait_for_condition("unknown", DEPLOYED, "ChartNotFound")
    assert 'the repository has no version "9.9.9" of the chart "vc"' in message
    assert helm.repository.address not in message
    helm.delete("unknown")


@pytest.mark.parametrize("protocol", ["https", "oci"])
def test_a_repository_with_a_password_needs_the_right_one(helm: HelmFixture, tmp_path: Path, protocol: str) -> None:
    with ChartRepository(tmp_path, CHARTS, "repo-password") as repository:
        repo = repository.url if protocol == "https" else repository.oci_url
        helm.create_from_template(f"wrong-{protocol}", helm.locked_release(repo, "wrong-password"))
        message = helm.wait_for_condition(f"wrong-{protocol}", DEPLOYED, "RepositoryLoginFailed")
        assert "correct the username and password" in message and "wrong-password" not in message
        helm.delete(f"wrong-{protocol}")
        helm.create_from_template(f"right-{protocol}", helm.locked_release(repo, "repo-password"))
        helm.wait_for_condition(f"right-{protocol}", DEPLOYED, "Deployed")
        helm.delete(f"right-{protocol}")


def test_an_inline_chart_stays_in_its_namespace(helm: HelmFixture) -> None:
    check_namespace_confinement(helm)
