"""Fixtures for tests of the commands that manage resources."""

import pytest

from tests.cli.resources.cluster_responses import (
    CLUSTERS,
    EVENTS,
    SECRET,
    SECRETS,
    TOKEN,
    build_cluster,
    build_cluster_watch,
    build_healthy_cluster,
    write_kubeconfig,
)
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, list_response


@pytest.fixture
def ops(user: CliFixture) -> CliFixture:
    """A CLI with a cluster in its kubeconfig, and a fake server that accepts and connects the cluster."""
    user.fake.on("POST", SECRETS, lambda request: (201, request.body))
    user.fake.on("POST", CLUSTERS, (201, build_cluster()))
    user.fake.on("GET", CLUSTERS, build_cluster_watch(build_healthy_cluster()))
    user.fake.on("DELETE", SECRET, (200, {}))
    user.fake.on("DELETE", f"{CLUSTERS}/berlin", (200, {}))
    for plural in ("spaceinstances", "virtualclusterinstances", "appinstances", "runners"):
        user.fake.on("GET", f"{M}/{plural}", list_response())
    user.fake.on("GET", EVENTS, list_response())
    write_kubeconfig(user, {"token": TOKEN})
    return user
