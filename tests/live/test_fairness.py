"""A quiet user beside a loud one, on a real server: counted, not timed."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.gateways import grant, key_of, make
from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, Server, configmap, running
from tests.live.http2_client import Http2

CONNECTIONS, STREAMS = 4, 100
ALL = CONNECTIONS * STREAMS
OBJECTS = 500
SEARCH = f"{CONFIGMAPS}?labelSelector=" + ",".join([f"!absent-{number}" for number in range(40)]) + ",there"
"""Every object is tested and none is found: much to do for the server, little to read for the client, which must be
the faster one here."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("fairness") / "data"
    with running(folder) as server:
        yield server


@pytest.fixture(scope="module")
def loud(server: Server) -> Server:
    """The same server, with the key of a user who may list a namespace with many objects."""
    with server.client() as admin:
        for number in range(OBJECTS):
            admin.post(CONFIGMAPS, json=configmap(f"c{number}")).raise_for_status()
        make(admin, "users", "User", "loud", username="loud")
        grant(admin, "loud", "loud", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}])
        return replace(server, key=key_of(admin, "loud", "loud"))


def answered(connections: list[Http2]) -> int:
    """How many answers have come in so far."""
    for each in connections:
        each.read(lambda: False, seconds=0.001)
    return sum(len(each.statuses) for each in connections)


def answered_before(server: Server, loud: Server) -> int:
    """How many of a loud user's requests are answered before a quiet one's that was sent after all of them."""
    with ExitStack() as stack:
        quiet = stack.enter_context(server.client())
        assert quiet.get(f"{CONFIGMAPS}/absent").status_code == 404
        connections = [Http2(loud) for _ in range(CONNECTIONS)]
        for each in connections:
            stack.callback(each.close)
            assert each.read(lambda: True)
        for each in connections:
            for _ in range(STREAMS):
                each.request("GET", SEARCH)
        assert quiet.get(f"{CONFIGMAPS}/absent").status_code == 404
        before = answered(connections)
        for each in connections:
            assert each.read(lambda each=each: len(each.ended) == STREAMS)  # type: ignore[misc]
            assert set(each.statuses.values()) <= {200, 429}
        return before


def test_a_quiet_user_is_served_before_a_loud_one_is_through(server: Server, loud: Server) -> None:
    assert answered_before(server, loud) < ALL // 2


def test_what_waited_and_was_refused_is_in_the_metrics(server: Server, loud: Server) -> None:
    answered_before(server, loud)
    with server.client() as admin:
        page = admin.get(f"{MANAGEMENT}/metrics").text
    samples = [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.startswith("apiserver_flowcontrol_")
    ]
    dispatched = [
        value
        for name, labels, value in samples
        if name == "apiserver_flowcontrol_dispatched_requests_total"
        and (labels["priority_level"], labels["flow_schema"]) == ("interactive", "users")
    ]
    refused = sum(value for name, _, value in samples if name == "apiserver_flowcontrol_rejected_requests_total")
    assert dispatched[0] + refused >= ALL
    assert not [value for name, _, value in samples if name.endswith("current_inqueue_requests") and value]
