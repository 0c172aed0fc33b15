"""Virtual clusters are deployed with real Helm, into another Fairlead, which is cluster enough for a small chart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_cluster.chart_repository import ChartRepository
from tests.harness.gateways import kubeconfig
from tests.harness.helm import (
    CHARTS,
    DEPLOYED,
    HelmWorld,
    deploy_upgrade_and_remove,
    helm_world,
    keep_charts_in_their_namespaces,
)
from tests.harness.server_process import MANAGEMENT, running


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelmWorld]:
    folder = tmp_path_factory.mktemp("helm")
    with (
        running(folder / "far") as far,
        helm_world(folder / "near", kubeconfig(far, MANAGEMENT, far.key)) as (world, near),
    ):
        yield world
        assert "Traceback" not in near.log.read_text()


def test_a_chart_is_deployed_upgraded_and_removed(world: HelmWorld) -> None:
    deploy_upgrade_and_remove(world)


def test_what_a_chart_demands_is_told_in_its_words(world: HelmWorld) -> None:
    world.make_from_template("incomplete", world.release("demanding"))
    message = world.await_condition("incomplete", DEPLOYED, "HelmFailed")
    assert "(demanding/templates/check.yaml:1:9): set the value `name`" in message
    world.change_template("incomplete", world.release("demanding", name="x"))
    world.await_condition("incomplete", DEPLOYED, "Deployed")
    world.delete("incomplete")


def test_a_chart_that_is_not_there_is_named_without_the_address_of_its_repository(world: HelmWorld) -> None:
    world.make_from_template("unknown", world.release(version="9.9.9"))
    message = world.await_condition("unknown", DEPLOYED, "HelmFailed")
    assert 'chart "vc" version "9.9.9" not found in [...] repository' in message
    assert world.repository.address not in message
    world.delete("unknown")


@pytest.mark.parametrize("sort", ["https", "oci"])
def test_a_repository_with_a_password_is_used_by_those_who_know_it(world: HelmWorld, tmp_path: Path, sort: str) -> None:
    with ChartRepository(tmp_path, CHARTS, "repo-password") as locked:
        repo = locked.url if sort == "https" else locked.oci_url
        world.make_from_template(f"guessing-{sort}", world.locked_release(repo, "wrong-password"))
        message = world.await_condition(f"guessing-{sort}", DEPLOYED, "HelmFailed")
        assert "the chart could not be downloaded" in message and "wrong-password" not in message
        world.delete(f"guessing-{sort}")
        world.make_from_template(f"knowing-{sort}", world.locked_release(repo, "repo-password"))
        world.await_condition(f"knowing-{sort}", DEPLOYED, "Deployed")
        world.delete(f"knowing-{sort}")


def test_a_chart_written_out_in_place_stays_in_its_namespace(world: HelmWorld) -> None:
    keep_charts_in_their_namespaces(world)
