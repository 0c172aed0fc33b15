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
def deploying(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelmFixture]:
    with open_helm(tmp_path_factory.mktemp("helm"), plane.kubeconfig()) as (world, server):
        yield world
        assert "Traceback" not in server.log.read_text()


def test_a_chart_is_deployed_upgraded_and_removed(deploying: HelmFixture) -> None:
    check_release_lifecycle(deploying)


def test_what_the_cluster_refuses_is_told_in_its_words(deploying: HelmFixture) -> None:
    deploying.create_from_template("refused", deploying.release("invalid"))
    message = deploying.wait_for_condition("refused", DEPLOYED, "HelmFailed")
    assert 'ConfigMap "UPPER" is invalid: metadata.name: Invalid value' in message
    deploying.delete("refused")


def test_a_kind_that_the_cluster_does_not_have_is_named(deploying: HelmFixture) -> None:
    deploying.create_from_template("strange", deploying.release("unknown-kind"))
    message = deploying.wait_for_condition("strange", DEPLOYED, "HelmFailed")
    assert 'no matches for kind "Thing" in version "example.com/v1"' in message
    deploying.delete("strange")


def test_a_chart_written_out_in_place_stays_in_its_namespace(deploying: HelmFixture) -> None:
    check_namespace_confinement(deploying)
