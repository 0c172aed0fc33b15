"""Tests with a real Kubernetes: `REFERENCE=DIR make test-reference`, where DIR/bin has kube-apiserver and its parts.

Without REFERENCE nothing here is collected, so CI neither runs nor skips any of it. What these tests learn
about real servers is reproduced by the fakes of the other tests. etcd is DIR/bin/etcd, or else the system's. The
tests of the open-source chart need that, too: `test_open_source_chart.py`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.reference.connected_cluster import (
    DIALLED,
    LINKS,
    ConnectedCluster,
    connect_plane,
    is_root,
    join_plane,
    run_pod,
)
from tests.reference.control_plane import ControlPlane, Network
from tests.reference.dial_out import dial_out_network
from tests.reference.node import running_node
from tests.reference.report import Report

REFERENCE = os.environ.get("REFERENCE", "")
OPEN_SOURCE_CHART = ("vcluster/chart/Chart.yaml", "bin/vcluster", "bin/kine")
collect_ignore = []
if not REFERENCE:
    collect_ignore_glob = ["test_*.py"]
elif not all((Path(REFERENCE) / each).exists() for each in OPEN_SOURCE_CHART):
    collect_ignore.append("test_open_source_chart.py")

_report = Report()


@pytest.fixture(scope="session")
def binaries() -> Path:
    """The folder with kube-apiserver, kube-controller-manager and kubectl; for pods also kube-scheduler and kubelet."""
    root = Path(REFERENCE).resolve()
    folder = root / "bin" if (root / "bin").is_dir() else root
    missing = [
        each for each in ("kube-apiserver", "kube-controller-manager", "kubectl") if not (folder / each).exists()
    ]
    assert not missing, f"REFERENCE={REFERENCE}: {', '.join(missing)} not found; name a folder with bin/kube-apiserver"
    return folder


@pytest.fixture(scope="session")
def plane(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without nodes, for the whole session. Tests that pause or change it restore it."""
    with ControlPlane(binaries, tmp_path_factory.mktemp("plane")) as control_plane:
        yield control_plane


@pytest.fixture(scope="session", params=LINKS)
def connected(
    request: pytest.FixtureRequest, binaries: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectedCluster]:
    """Fairlead with a control plane as cluster `real`: dialled, or with an agent that dials out."""
    folder = tmp_path_factory.mktemp("connected")
    connect = connect_plane if request.param == DIALLED else join_plane
    with ControlPlane(binaries, folder / "plane") as control_plane, connect(control_plane, folder) as running_cluster:
        yield running_cluster


@pytest.fixture(scope="session", params=LINKS)
def connected_node(
    request: pytest.FixtureRequest, binaries: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectedCluster]:
    """The same with a node, where pods run. Pod `box` in namespace `default` is running. With an agent, the cluster is
    in a network from which connections are opened, and into which none are. What only a dialled one shows says so:
    `@pytest.mark.parametrize("connected_node", [DIALLED], indirect=True)`."""
    assert is_root(), "a node needs root: run this as root, or leave out the tests that need pods (-k 'not pods')"
    folder = tmp_path_factory.mktemp("node")
    is_dialled = request.param == DIALLED
    connect = connect_plane if is_dialled else join_plane
    with (
        nullcontext(Network()) if is_dialled else dial_out_network() as network,
        ControlPlane(binaries, folder / "plane", network=network) as control_plane,
        running_node(control_plane),
        connect(control_plane, folder / "fairlead") as running_cluster,
    ):
        run_pod(running_cluster.direct_kubectl(), "box")
        yield running_cluster


@pytest.fixture
def record_figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`record_figure("back after 3.1 s")` adds a figure to the table at the end."""
    return lambda text: _report.note(request.node.nodeid, text)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "tests/reference/" in report.nodeid and (report.when == "call" or report.outcome != "passed"):
        _report.finish(report.nodeid, report.outcome, report.duration)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _report.rows:
        terminalreporter.section("on the real cluster")
        for line in _report.lines():
            terminalreporter.line(line)
