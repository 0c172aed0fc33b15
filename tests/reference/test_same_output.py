"""The same kubectl commands give the same output at a real Kubernetes and at Fairlead's API, except ids and times."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.kubectl import Kubectl
from tests.reference.connected_cluster import ConnectedCluster

Step = tuple[str, dict[str, Any] | None]
"""A command and its standard input."""

INVOLVED_OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": "default"}
CORE_EVENT: dict[str, Any] = {
    **{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "older"}, "involvedObject": INVOLVED_OBJECT},
    **{"reason": "Seen", "message": "it was looked at", "type": "Warning", "count": 3},
    **{"source": {"component": "tester"}, "firstTimestamp": "2026-01-02T03:04:05Z"},
}
EVENTS_V1_EVENT: dict[str, Any] = {
    **{"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "newer"}, "regarding": INVOLVED_OBJECT},
    **{"reason": "Changed", "note": "it was changed", "type": "Normal", "action": "Change"},
    **{"eventTime": "2026-01-02T03:04:05.000006Z", "reportingController": "example.com/t", "reportingInstance": "t"},
}
SERIES = {"series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000006Z"}}
TOKEN = "create --raw /api/v1/namespaces/default/serviceaccounts/robot/token -f -"
REQUEST = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}

STEPS: dict[str, list[Step]] = {
    "events": [
        ("create -f - -o json --show-managed-fields", CORE_EVENT),
        ("create -f - -o json --show-managed-fields", EVENTS_V1_EVENT),
        ("create -f -", EVENTS_V1_EVENT),
        ("get events.events.k8s.io older -o json", None),
        ("get events newer -o json", None),
        ("get events.events.k8s.io --field-selector regarding.name=x -o name", None),
        ("get events.events.k8s.io --field-selector regarding.name=x", None),
        ("get events.events.k8s.io --field-selector regarding.name=x -o wide", None),
        ("get events.events.k8s.io --field-selector involvedObject.name=x", None),
        ("create -f -", {**EVENTS_V1_EVENT, "metadata": {"name": "bad"}, "eventTime": None, "type": "Odd"}),
        ("create -f -", {**EVENTS_V1_EVENT, "metadata": {"name": "bad"}, "deprecatedCount": 1, "action": ""}),
        ("patch events.events.k8s.io newer --type=merge -o json -p", SERIES),
        ("patch events.events.k8s.io newer --type=merge -p", {"note": "other", "action": "Other"}),
        ("patch events.events.k8s.io newer --type=merge -p", {"series": {"count": 1}}),
        ("patch events newer --type=merge -o json -p", {"message": "other"}),
        ("get events.events.k8s.io newer -o json --show-managed-fields", None),
        ("apply --server-side -f - -o json", {**EVENTS_V1_EVENT, "metadata": {"name": "applied"}}),
        ("delete events.events.k8s.io newer older applied", None),
        ("get events newer", None),
    ],
    "service accounts": [
        ("create serviceaccount robot -o json", None),
        ("get serviceaccounts robot", None),
        (TOKEN, {**REQUEST, "spec": {}}),
        (TOKEN, {**REQUEST, "spec": {"expirationSeconds": 900}}),
        ("create token robot --duration=60s", None),
        ("create token nobody", None),
        ("create token robot --bound-object-kind=ConfigMap --bound-object-name=x", None),
        ("get --raw /api/v1/namespaces/default/serviceaccounts/robot/token", None),
        ("delete serviceaccount robot", None),
    ],
    "health": [
        ("get --raw /healthz", None),
        ("get --raw /readyz/ping", None),
        ("get --raw /livez/nothing", None),
    ],
}
"""The commands for both, in order."""


@pytest.mark.parametrize("area", STEPS)
def test_the_same_commands_have_the_same_output(connected: ConnectedCluster, area: str) -> None:
    real, ours = connected.direct_kubectl(), connected.management_kubectl()
    different = list(_find_differences(real, ours, STEPS[area]))
    assert different == []


def test_a_token_has_the_same_identity_and_errors(connected: ConnectedCluster) -> None:
    identities = []
    for kubectl in (connected.direct_kubectl(), connected.management_kubectl()):
        kubectl("create", "serviceaccount", "token-user")
        token = kubectl("create", "token", "token-user").strip()
        info = json.loads(kubectl("auth", "whoami", f"--token={token}", "-o", "json"))["status"]["userInfo"]
        error = kubectl.expect_failure("get", "configmaps", f"--token={token}")
        identities.append((info["username"], info["groups"], info["uid"] != "", error))
        kubectl("delete", "serviceaccount", "token-user")
    assert identities[0] == identities[1]


def _find_differences(real: Kubectl, ours: Kubectl, steps: list[Step]) -> Iterator[tuple[str, str, str]]:
    for command, body in steps:
        answers = [_answer(kubectl, command, body) for kubectl in (real, ours)]
        if answers[0] != answers[1]:
            yield command, answers[0], answers[1]


def _answer(kubectl: Kubectl, command: str, body: dict[str, Any] | None) -> str:
    words, given = command.split(), "" if body is None else json.dumps(body)
    done = kubectl.run(*words, given) if words[-1] == "-p" else kubectl.run(*words, body=given)
    return _mask_variable_values(f"{done.returncode}\n{_sorted(done.stdout)}\n{done.stderr}")


def _sorted(output: str) -> str:
    """JSON with its keys in order. The real server records who manages the fields of a TokenRequest, to no end."""
    if not output.startswith("{"):
        return output
    result = json.loads(output)
    if result.get("kind") == "TokenRequest":
        result["metadata"].pop("managedFields", None)
    return json.dumps(result, sort_keys=True)


def _mask_variable_values(text: str) -> str:
    """Masks values that differ each time: ids, versions, dates of today, ages, tokens, addresses."""
    text = re.sub(r'"(uid|resourceVersion|token|time)": "[^"]+"', r'"\1": "*"', text)
    text = re.sub(r'"(creationTimestamp|expirationTimestamp)": "[^"]+"', r'"\1": "*"', text)
    text = re.sub(r"https://127\.0\.0\.1:\d+(/kubernetes/management)?", "*", text)
    return re.sub(r"\b\d+(s|m|h|d)(\d+(s|m|h))?\b", "*", text)
