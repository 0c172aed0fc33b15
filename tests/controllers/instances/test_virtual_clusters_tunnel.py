"""Tests of `fairlead.controllers.instances.virtual_clusters`: what the status says about a tunnel."""

import pytest

from fairlead.controllers.instances.virtual_clusters import conditions_from_probe
from fairlead.core.objects import get_path
from fairlead.upstream.errors import TunnelError
from fairlead.upstream.tunnel_pods import PodTarget
from tests.controllers.instances.helm_fixture import (
    VC,
    FakeHelm,
    access,
    create_from_template,
    helm,
    server,
    wait_until_ready,
)
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import FakeAccess, condition_message, condition_status, create_cluster

__all__ = ["access", "helm", "server"]
ONLINE = "VirtualClusterOnline"


async def test_the_status_names_the_pod_of_a_tunnel(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    access.virtual_target = PodTarget("one", "one-0", "uid-1", 8443)
    await create_from_template(server)
    await wait_until_ready(server, access)
    assert condition_status(server, VC, ONLINE) == ("True", "Tunnelled")
    assert condition_message(server, VC, ONLINE) == 'it is reached by port-forward to pod "one-0"'
    expected = {"mode": "Tunnel", "service": "one", "port": 8443, "pod": "one-0", "podUID": "uid-1"}
    assert get_path(server.get(VC, "one"), "status.connection") == expected
    access.virtual_down = TunnelError("WaitingForPod", 'no ready pod behind Service "one": Pending')
    await eventually(lambda: condition_status(server, VC, ONLINE) == ("False", "WaitingForPod"))
    assert get_path(server.get(VC, "one"), "status.online") is False
    access.virtual_down = None
    access.virtual_target = PodTarget("one", "one-1", "uid-2", 8443)
    await eventually(lambda: get_path(server.get(VC, "one"), "status.connection.pod") == "one-1")


async def test_the_status_says_that_it_is_reached_directly(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await create_from_template(server)
    await wait_until_ready(server, access)
    assert condition_status(server, VC, ONLINE) == ("True", "Reachable")
    assert get_path(server.get(VC, "one"), "status.connection") == {"mode": "Direct"}


@pytest.mark.parametrize(
    ("reason", "severity"),
    [
        ("WaitingForPod", "Warning"),
        ("ClusterFailing", "Warning"),
        ("TunnelForbidden", "Error"),
        ("TunnelNotSupported", "Error"),
        ("ServiceNotFound", "Error"),
    ],
)
def test_what_does_not_pass_by_itself_is_an_error(reason: str, severity: str) -> None:
    online, ready = conditions_from_probe(TunnelError(reason, "because"))
    assert (online["status"], online["reason"], online["severity"]) == ("False", reason, severity)
    assert online["message"] == "it cannot be reached: because"
    assert ready["status"] == "Unknown"
