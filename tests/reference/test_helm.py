"""Virtual clusters are deployed with real Helm, into a real Kubernetes."""

from collections.abc import Iterator

import pytest

from tests.harness.helm import (
    DEPLOYED,
    HelmFixture,
    check_namespace_confinement,
    check_release_lifecycle,
    open_helm,
)
from tests.reference.control_plane import ControlPlane


@pytest.fixture(scope="module")
def helm(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelmFixture]:
    with open_helm(tmp_path_factory.mktemp("helm"), plane.kubeconfig()) as (fixture, server):
        yield fixture
        assert "Traceback" not in server.log.read_text()


def test_a_chart_is_deployed_upgraded_and_removed(helm: HelmFixture) -> None:
    check_release_lifecycle(helm)


def test_an_error_of_the_cluster_is_shown_unchanged(helm: HelmFixture) -> None:
    helm.create_from_template("refused", helm.release("invalid"))
    message = helm.wait_for_condition("refused", DEPLOYED, "HelmFailed")
    assert 'ConfigMap "UPPER" is invalid: metadata.name: Invalid value' in message
    helm.delete("refused")


def test_the_error_for_an_unknown_kind_names_it(helm: HelmFixture) -> None:
    helm.create_from_template("strange", helm.release("unknown-kind"))
    message = helm.wait_for_condition("strange", DEPLOYED, "HelmFailed")
    assert 'no matches for kind "Thing" in version "example.com/v1"' in message
    helm.delete("strange")


def test_an_inline_chart_stays_in_its_namespace(helm: HelmFixture) -> None:
    check_namespace_confinement(helm)
