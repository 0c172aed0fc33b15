"""Virtual clusters are deployed with real Helm, into a real Kubernetes."""

from collections.abc import Iterator

import pytest

from tests.live.entrances import until
from tests.live.helm_world import HelmWorld, helm_world
from tests.reference.control_plane import ControlPlane

DEPLOYED = "VirtualClusterDeployed"


@pytest.fixture(scope="module")
def deploying(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelmWorld]:
    with helm_world(tmp_path_factory.mktemp("helm"), plane.kubeconfig()) as (world, server):
        yield world
        assert "Traceback" not in server.log.read_text()


def test_a_chart_is_deployed_upgraded_and_removed(deploying: HelmWorld) -> None:
    deploying.make_from_template("whole", deploying.release(version="1.2.3", size=1))
    deploying.await_condition("whole", "VirtualClusterReady", "Ready")
    assert deploying.settings("whole") == {"size": "1", "namespace": "demo-v-whole"}
    deploying.change_template("whole", deploying.release(size=2))
    until(lambda: deploying.settings("whole")["size"] == "2")
    until(lambda: deploying.revisions("whole") == ["sh.helm.release.v1.whole.v1", "sh.helm.release.v1.whole.v2"])
    deploying.delete("whole")
    assert deploying.far("/api/v1/namespaces/demo-v-whole") == {}


def test_what_the_cluster_refuses_is_told_in_its_words(deploying: HelmWorld) -> None:
    deploying.make_from_template("refused", deploying.release("invalid"))
    message = deploying.await_condition("refused", DEPLOYED, "HelmFailed")
    assert 'ConfigMap "UPPER" is invalid: metadata.name: Invalid value' in message
    deploying.delete("refused")


def test_a_kind_that_the_cluster_does_not_have_is_named(deploying: HelmWorld) -> None:
    deploying.make_from_template("strange", deploying.release("unknown-kind"))
    message = deploying.await_condition("strange", DEPLOYED, "HelmFailed")
    assert 'no matches for kind "Thing" in version "example.com/v1"' in message
    deploying.delete("strange")


def test_a_chart_written_out_in_place_stays_in_its_namespace(deploying: HelmWorld) -> None:
    deploying.make_virtual_cluster("inside", template=deploying.release())
    deploying.await_condition("inside", DEPLOYED, "Deployed")
    deploying.make_virtual_cluster("outside", template=deploying.release("reaching-out"))
    message = deploying.await_condition("outside", DEPLOYED, "HelmFailed")
    assert 'User "service:deployer:demo-v-outside" cannot get resource "clusterroles"' in message
    deploying.delete("inside")
    deploying.delete("outside")
    assert deploying.far("/apis/rbac.authorization.k8s.io/v1/clusterroles/from-outside") == {}
