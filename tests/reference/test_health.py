"""How soon it shows that a real cluster is away, back, or presents another certificate; figures are in the table."""

from collections.abc import Callable, Iterator

import pytest

from tests.fake_cluster.certificates import get_authority
from tests.harness.eventually import seconds_until
from tests.harness.gateways import cluster_status
from tests.reference.connected_cluster import CLUSTER, World, condition, connected_world
from tests.reference.control_plane import ControlPlane

SECONDS = 60.0
Measured = Callable[[str], None]


@pytest.fixture(scope="module")
def own(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with connected_world(plane, tmp_path_factory.mktemp("health")) as world:
        yield world


def ready(world: World) -> tuple[str, str]:
    with world.server.client() as admin:
        found = condition({"status": cluster_status(admin, CLUSTER)}, "Ready")
    return found.get("status", ""), found.get("reason", "")


def until_ready(world: World, *wanted: tuple[str, str]) -> float:
    return seconds_until(lambda: ready(world) in wanted, SECONDS)


WELL = ("True", "Healthy")


def test_a_restart_is_noticed_in_both_directions(own: World, measured: Measured) -> None:
    own.plane.stop_api_server()
    away = until_ready(own, ("False", "Unreachable"), ("False", "TimedOut"))
    own.plane.start_api_server()
    measured(f"away seen after {away:.1f} s, back {until_ready(own, WELL):.1f} s after it was ready")


def test_a_silent_cluster_is_noticed_in_both_directions(own: World, measured: Measured) -> None:
    own.plane.pause_api_server()
    try:
        away = until_ready(own, ("False", "TimedOut"))
    finally:
        own.plane.resume_api_server()
    measured(f"silence seen after {away:.1f} s, the end of it after {until_ready(own, WELL):.1f} s")


def test_a_reloaded_certificate_is_noticed_in_both_directions(own: World, measured: Measured) -> None:
    own.plane.write_serving_certificate(get_authority("a stranger"))
    try:
        bad = until_ready(own, ("False", "CertificateNotTrusted"))
    finally:
        own.plane.write_serving_certificate()
    measured(f"untrusted seen after {bad:.1f} s, trusted after {until_ready(own, WELL):.1f} s")
