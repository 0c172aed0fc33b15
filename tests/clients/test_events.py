"""Events of both API groups with kubectl and the Python client."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client import ApiException

from tests.clients.server import Server
from tests.harness.kubectl import Kubectl

INVOLVED_OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "name": "watched", "namespace": "default"}
CORE_EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "older", "namespace": "default"},
    "involvedObject": INVOLVED_OBJECT,
    "reason": "Seen",
    "message": "it was looked at",
    "type": "Warning",
    "source": {"component": "tester"},
    "count": 3,
    "firstTimestamp": "2026-01-02T03:04:05Z",
    "lastTimestamp": "2026-01-02T03:04:05Z",
}
EVENTS_V1_EVENT = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "newer", "namespace": "default"},
    "regarding": INVOLVED_OBJECT,
    "reason": "Changed",
    "note": "it was changed",
    "type": "Normal",
    "action": "Change",
    "eventTime": "2026-01-02T03:04:05.000006Z",
    "reportingController": "example.com/tester",
    "reportingInstance": "t-1",
}


@pytest.fixture
def kubectl_with_events(kubectl: Kubectl) -> Iterator[Kubectl]:
    kubectl("create", "-f", "-", body=json.dumps(CORE_EVENT))
    kubectl("create", "-f", "-", body=json.dumps(EVENTS_V1_EVENT))
    yield kubectl
    kubectl("delete", "events", "older", "newer", "--ignore-not-found")


def test_the_events_command_shows_events_of_both_groups(kubectl_with_events: Kubectl) -> None:
    output = kubectl_with_events("events", "--for", "configmap/watched", "--no-headers")
    assert "it was looked at" in output and "it was changed" in output
    assert "it was looked at" in kubectl_with_events("events", "--types", "Warning")


def test_both_events_resources_list_the_same_objects(kubectl_with_events: Kubectl) -> None:
    selector = ("--field-selector", "regarding.name=watched")
    assert kubectl_with_events.get_names("events.events.k8s.io", *selector) == ["newer", "older"]
    assert kubectl_with_events.get_names("events", "--field-selector", "involvedObject.name=watched") == [
        "newer",
        "older",
    ]
    rows = kubectl_with_events.get_rows("events.events.k8s.io", *selector)
    assert rows[0] == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert [row[2:] for row in rows[1:]] == [
        ["Changed", "configmap/watched", "it was changed"],
        ["Seen", "configmap/watched", "it was looked at"],
    ]


def test_an_event_is_applied_and_explained_in_events_k8s_io(kubectl_with_events: Kubectl) -> None:
    with_series = {**EVENTS_V1_EVENT, "series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000006Z"}}
    kubectl_with_events("apply", "--server-side", "--force-conflicts", "-f", "-", body=json.dumps(with_series))
    assert kubectl_with_events.get_json("events", "newer")["series"]["count"] == 2
    error = kubectl_with_events.expect_failure(
        "apply", "--server-side", "--force-conflicts", "-f", "-", body=json.dumps({**with_series, "note": "x"})
    )
    assert "field is immutable" in error
    assert "regarding" in kubectl_with_events("explain", "events", "--api-version=events.k8s.io/v1")
    assert "it was looked at" in kubectl_with_events("describe", "events.events.k8s.io", "older")


def test_a_watch_includes_events_written_in_the_other_group(kubectl_with_events: Kubectl) -> None:
    flags = ("--field-selector", "regarding.name=watched", "-o", "jsonpath={.note}{'\\n'}")
    with kubectl_with_events.watching("get", "events.events.k8s.io", "--watch", *flags) as process:
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(2)] == ["it was changed", "it was looked at"]
        kubectl_with_events("patch", "event", "older", "--type=merge", "-p", '{"message": "it was looked at again"}')
        assert process.stdout.readline().strip() == "it was looked at again"


def test_the_typed_python_client_reads_and_writes_events(kubectl_with_events: Kubectl, server: Server) -> None:
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
        created = events.create_namespaced_event("default", body)
        assert client.CoreV1Api(api).read_namespaced_event(created.metadata.name, "default").message == "from Python"
        with pytest.raises(ApiException) as caught:
            body.type = "Odd"
            events.create_namespaced_event("default", body)
        assert caught.value.status == 422
        events.delete_namespaced_event(created.metadata.name, "default")
