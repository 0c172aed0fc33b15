"""Events of both groups with real clients: kubectl's own command, both resources of that name, the Python client."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client import ApiException

from tests.clients.server import Server
from tests.harness.kubectl import Kubectl

ABOUT = {"apiVersion": "v1", "kind": "ConfigMap", "name": "watched", "namespace": "default"}
CORE = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "older", "namespace": "default"},
    "involvedObject": ABOUT,
    "reason": "Seen",
    "message": "it was looked at",
    "type": "Warning",
    "source": {"component": "tester"},
    "count": 3,
    "firstTimestamp": "2026-01-02T03:04:05Z",
    "lastTimestamp": "2026-01-02T03:04:05Z",
}
NEW = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "newer", "namespace": "default"},
    "regarding": ABOUT,
    "reason": "Changed",
    "note": "it was changed",
    "type": "Normal",
    "action": "Change",
    "eventTime": "2026-01-02T03:04:05.000006Z",
    "reportingController": "example.com/tester",
    "reportingInstance": "t-1",
}


@pytest.fixture
def told(kubectl: Kubectl) -> Iterator[Kubectl]:
    kubectl("create", "-f", "-", body=json.dumps(CORE))
    kubectl("create", "-f", "-", body=json.dumps(NEW))
    yield kubectl
    kubectl("delete", "events", "older", "newer", "--ignore-not-found")


def test_the_events_command_shows_events_of_both_groups(told: Kubectl) -> None:
    shown = told("events", "--for", "configmap/watched", "--no-headers")
    assert "it was looked at" in shown and "it was changed" in shown
    assert "it was looked at" in told("events", "--types", "Warning")


def test_both_resources_of_that_name_list_the_same(told: Kubectl) -> None:
    chosen = ("--field-selector", "regarding.name=watched")
    assert told.names("events.events.k8s.io", *chosen) == ["newer", "older"]
    assert told.names("events", "--field-selector", "involvedObject.name=watched") == ["newer", "older"]
    rows = told.rows("events.events.k8s.io", *chosen)
    assert rows[0] == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert [row[2:] for row in rows[1:]] == [
        ["Changed", "configmap/watched", "it was changed"],
        ["Seen", "configmap/watched", "it was looked at"],
    ]


def test_an_event_is_applied_and_explained_in_the_newer_group(told: Kubectl) -> None:
    counted = {**NEW, "series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000006Z"}}
    told("apply", "--server-side", "--force-conflicts", "-f", "-", body=json.dumps(counted))
    assert told.read("events", "newer")["series"]["count"] == 2
    refused = told.refused(
        "apply", "--server-side", "--force-conflicts", "-f", "-", body=json.dumps({**counted, "note": "x"})
    )
    assert "field is immutable" in refused
    assert "regarding" in told("explain", "events", "--api-version=events.k8s.io/v1")
    assert "it was looked at" in told("describe", "events.events.k8s.io", "older")


def test_a_watch_tells_of_events_that_were_written_in_the_other_group(told: Kubectl) -> None:
    about = ("--field-selector", "regarding.name=watched", "-o", "jsonpath={.note}{'\\n'}")
    with told.watching("get", "events.events.k8s.io", "--watch", *about) as process:
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(2)] == ["it was changed", "it was looked at"]
        told("patch", "event", "older", "--type=merge", "-p", '{"message": "it was looked at again"}')
        assert process.stdout.readline().strip() == "it was looked at again"


def test_the_typed_python_client_reads_and_writes_them(told: Kubectl, server: Server) -> None:
    with config.new_client_from_config(str(server.kubeconfig)) as api:
        events: Any = client.EventsV1Api(api)
        newer = events.read_namespaced_event("newer", "default")
        assert (newer.note, newer.regarding.name) == ("it was changed", "watched")
        body = client.EventsV1Event(
            metadata=client.V1ObjectMeta(generate_name="python-"),
            event_time=datetime.now(UTC),
            action="Test",
            reason="Tested",
            reporting_controller="example.com/python",
            reporting_instance="p-1",
            regarding=client.V1ObjectReference(kind="ConfigMap", name="watched", namespace="default"),
            type="Normal",
            note="from Python",
        )
        made = events.create_namespaced_event("default", body)
        assert client.CoreV1Api(api).read_namespaced_event(made.metadata.name, "default").message == "from Python"
        with pytest.raises(ApiException) as refused:
            body.type = "Odd"
            events.create_namespaced_event("default", body)
        assert refused.value.status == 422
        events.delete_namespaced_event(made.metadata.name, "default")
