"""Apps deployed with real Helm into another Fairlead."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.apps import check_annotations, check_app_lifecycle, check_chart_login, check_template_releases
from tests.harness.gateways import gateway_kubeconfig
from tests.harness.helm import HelmFixture, open_helm
from tests.harness.server_process import MANAGEMENT, running_server


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelmFixture]:
    folder = tmp_path_factory.mktemp("apps")
    with (
        running_server(folder / "remote") as remote,
        open_helm(folder / "server", gateway_kubeconfig(remote, MANAGEMENT, remote.key)) as (helm, server),
    ):
        yield helm
        assert "Traceback" not in server.log.read_text()


def test_an_app_is_deployed_upgraded_rolled_back_and_uninstalled(helm: HelmFixture) -> None:
    check_app_lifecycle(helm)


def test_the_charts_and_apps_of_a_template_are_deployed(helm: HelmFixture) -> None:
    check_template_releases(helm)


def test_the_annotations_of_an_app_are_on_its_objects(helm: HelmFixture) -> None:
    check_annotations(helm)


def test_the_login_at_a_repository_comes_from_a_project_secret(helm: HelmFixture, tmp_path: Path) -> None:
    check_chart_login(helm, tmp_path)
