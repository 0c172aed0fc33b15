"""Fair queuing between a busy and an idle user, on a real server: responses are counted, not timed."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.gateways import bind_role, create_key, create_resource
from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, Server, configmap, running_server
from tests.live.http2_client import Http2Client

CONNECTIONS, STREAMS = 4, 100
TOTAL = CONNECTIONS * STREAMS
OBJECTS = 500
EXPENSIVE_LIST = f"{CONFIGMAPS}?labelSelector=" + ",".join([f"!absent-{number}" for number in range(40)]) + ",there"
"""A selector that is tested on every object and matches none: expensive for the server, cheap for the client, which
must be the faster one here."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("fairness") / "data"
    with running_server(folder) as server:
        yield server


@pytest.fixture(scope="module")
def busy_user(server: Server) -> Server:
    """The same server, with the key of a user who may list a namespace with many objects."""
    with server.client() as admin:
        for number in range(OBJECTS):
            admin.post(CONFIGMAPS, json=configmap(f"c{number}")).raise_for_status()
        create_resource(admin, "users", "User", "busy", username="busy")
        bind_role(admin, "busy", "busy", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}])
        return replace(server, key=create_key(admin, "busy", "busy"))


def count_responses(connections: list[Http2Client]) -> int:
    """Returns the number of received responses."""
    for each in connections:
        each.read(lambda: False, seconds=0.001)
    return sum(len(each.statuses) for each in connections)


def count_responses_before_idle_user(server: Server, busy_user: Server) -> int:
    """Returns how many requests of a busy user get a response before a later request of an idle user does."""
    with ExitStack() as stack:
        idle_client = stack.enter_context(server.client())
        assert idle_client.get(f"{CONFIGMAPS}/absent").status_code == 404
        connections = [Http2Client(busy_user) for _ in range(CONNECTIONS)]
        for each in connections:
            stack.callback(each.close)
            assert each.read(lambda: True)
        for each in connections:
            for _ in range(STREAMS):
                each.request("GET", EXPENSIVE_LIST)
        assert idle_client.get(f"{CONFIGMAPS}/absent").status_code == 404
        before = count_responses(connections)
        for each in connections:
            assert each.read(lambda each=each: len(each.ended) == STREAMS)  # type: ignore[misc]
            assert set(each.statuses.values()) <= {200, 429}
        return before


def test_an_idle_user_is_served_before_all_requests_of_a_busy_one(server: Server, busy_user: Server) -> None:
    """Up to three times: on a busy machine, the client may pause between the requests of the two users."""
    assert any(count_responses_before_idle_user(server, busy_user) < TOTAL // 2 for _ in range(3))


def test_dispatched_and_rejected_requests_are_in_the_metrics(server: Server, busy_user: Server) -> None:
    count_responses_before_idle_user(server, busy_user)
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
    rejected = sum(value for name, _, value in samples if name == "apiserver_flowcontrol_rejected_requests_total")
    assert dispatched[0] + rejected >= TOTAL
    assert not [value for name, _, value in samples if name.endswith("current_inqueue_requests") and value]
