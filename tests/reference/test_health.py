"""How soon outages, recoveries and certificate changes of a real cluster are detected; figures are in the table."""

from collections.abc import Callable, Iterator

import pytest

from tests.fake_cluster.certificates import get_authority
from tests.harness.eventually import seconds_until
from tests.harness.gateways import cluster_status
from tests.reference.connected_cluster import CLUSTER, ConnectedCluster, connect_plane, find_condition
from tests.reference.control_plane import ControlPlane

SECONDS = 60.0
RecordFigure = Callable[[str], None]


@pytest.fixture(scope="module")
def own_connected(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectedCluster]:
    with connect_plane(plane, tmp_path_factory.mktemp("health")) as connected:
        yield connected


def get_ready_condition(connected: ConnectedCluster) -> tuple[str, str]:
    with connected.server.client() as admin:
        found = find_condition({"status": cluster_status(admin, CLUSTER)}, "Ready")
    return found.get("status", ""), found.get("reason", "")


def measure_until(connected: ConnectedCluster, *expected: tuple[str, str]) -> float:
    return seconds_until(lambda: get_ready_condition(connected) in expected, SECONDS)


HEALTHY = ("True", "Healthy")


def test_stop_and_restart_are_detected(own_connected: ConnectedCluster, record_figure: RecordFigure) -> None:
    own_connected.plane.stop_api_server()
    outage_seconds = measure_until(own_connected, ("False", "Unreachable"), ("False", "TimedOut"))
    own_connected.plane.start_api_server()
    record_figure(
        f"away seen after {outage_seconds:.1f} s, back {measure_until(own_connected, HEALTHY):.1f} s after it was ready"
    )


def test_a_hanging_cluster_and_its_recovery_are_detected(
    own_connected: ConnectedCluster, record_figure: RecordFigure
) -> None:
    own_connected.plane.pause_api_server()
    try:
        outage_seconds = measure_until(own_connected, ("False", "TimedOut"))
    finally:
        own_connected.plane.resume_api_server()
    record_figure(
        f"silence seen after {outage_seconds:.1f} s, the end of it after {measure_until(own_connected, HEALTHY):.1f} s"
    )


def test_an_untrusted_certificate_and_its_replacement_are_detected(
    own_connected: ConnectedCluster, record_figure: RecordFigure
) -> None:
    own_connected.plane.write_serving_certificate(get_authority("another CA"))
    try:
        untrusted_seconds = measure_until(own_connected, ("False", "CertificateNotTrusted"))
    finally:
        own_connected.plane.write_serving_certificate()
    record_figure(
        f"untrusted seen after {untrusted_seconds:.1f} s, trusted after {measure_until(own_connected, HEALTHY):.1f} s"
    )
