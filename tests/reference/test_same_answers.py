"""The same kubectl commands at a real Kubernetes and at Fairlead's own API: the same answers, but for ids and times."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.kubectl import Kubectl
from tests.reference.connected_cluster import World

Step = tuple[str, dict[str, Any] | None]
"""A command, and what it is given on its standard input."""

ABOUT = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": "default"}
OLDER: dict[str, Any] = {
    **{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "older"}, "involvedObject": ABOUT},
    **{"reason": "Seen", "message": "it was looked at", "type": "Warning", "count": 3},
    **{"source": {"component": "tester"}, "firstTimestamp": "2026-01-02T03:04:05Z"},
}
NEWER: dict[str, Any] = {
    **{"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "newer"}, "regarding": ABOUT},
    **{"reason": "Changed", "note": "it was changed", "type": "Normal", "action": "Change"},
    **{"eventTime": "2026-01-02T03:04:05.000006Z", "reportingController": "example.com/t", "reportingInstance": "t"},
}
SERIES = {"series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000006Z"}}
TOKEN = "create --raw /api/v1/namespaces/default/serviceaccounts/robot/token -f -"
REQUEST = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}

STEPS: dict[str, list[Step]] = {
    "events": [
        ("create -f - -o json --show-managed-fields", OLDER),
        ("create -f - -o json --show-managed-fields", NEWER),
        ("create -f -", NEWER),
        ("get events.events.k8s.io older -o json", None),
        ("get events newer -o json", None),
        ("get events.events.k8s.io --field-selector regarding.name=x -o name", None),
        ("get events.events.k8s.io --field-selector regarding.name=x", None),
        ("get events.events.k8s.io --field-selector regarding.name=x -o wide", None),
        ("get events.events.k8s.io --field-selector involvedObject.name=x", None),
        ("create -f -", {**NEWER, "metadata": {"name": "bad"}, "eventTime": None, "type": "Odd"}),
        ("create -f -", {**NEWER, "metadata": {"name": "bad"}, "deprecatedCount": 1, "action": ""}),
        ("patch events.events.k8s.io newer --type=merge -o json -p", SERIES),
        ("patch events.events.k8s.io newer --type=merge -p", {"note": "other", "action": "Other"}),
        ("patch events.events.k8s.io newer --type=merge -p", {"series": {"count": 1}}),
        ("patch events newer --type=merge -o json -p", {"message": "other"}),
        ("get events.events.k8s.io newer -o json --show-managed-fields", None),
        ("apply --server-side -f - -o json", {**NEWER, "metadata": {"name": "applied"}}),
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
"""What is asked of both, in order."""


@pytest.mark.parametrize("area", STEPS)
def test_the_same_commands_have_the_same_answers(world: World, area: str) -> None:
    real, ours = world.direct(), world.management()
    different = list(_differences(real, ours, STEPS[area]))
    assert different == []


def test_a_token_says_who_it_is_in_the_same_words(world: World) -> None:
    told = []
    for kubectl in (world.direct(), world.management()):
        kubectl("create", "serviceaccount", "speaker")
        token = kubectl("create", "token", "speaker").strip()
        info = json.loads(kubectl("auth", "whoami", f"--token={token}", "-o", "json"))["status"]["userInfo"]
        refused = kubectl.expect_failure("get", "configmaps", f"--token={token}")
        told.append((info["username"], info["groups"], info["uid"] != "", refused))
        kubectl("delete", "serviceaccount", "speaker")
    assert told[0] == told[1]


def _differences(real: Kubectl, ours: Kubectl, steps: list[Step]) -> Iterator[tuple[str, str, str]]:
    for command, body in steps:
        answers = [_answer(kubectl, command, body) for kubectl in (real, ours)]
        if answers[0] != answers[1]:
            yield command, answers[0], answers[1]


def _answer(kubectl: Kubectl, command: str, body: dict[str, Any] | None) -> str:
    words, given = command.split(), "" if body is None else json.dumps(body)
    done = kubectl.run(*words, given) if words[-1] == "-p" else kubectl.run(*words, body=given)
    return _plain(f"{done.returncode}\n{_sorted(done.stdout)}\n{done.stderr}")


def _sorted(output: str) -> str:
    """JSON with its keys in order. The real server records who manages the fields of a TokenRequest, to no end."""
    if not output.startswith("{"):
        return output
    answer = json.loads(output)
    if answer.get("kind") == "TokenRequest":
        answer["metadata"].pop("managedFields", None)
    return json.dumps(answer, sort_keys=True)


def _plain(text: str) -> str:
    """Without what is different each time: ids, versions, dates of today, ages, tokens, addresses."""
    text = re.sub(r'"(uid|resourceVersion|token|time)": "[^"]+"', r'"\1": "*"', text)
    text = re.sub(r'"(creationTimestamp|expirationTimestamp)": "[^"]+"', r'"\1": "*"', text)
    text = re.sub(r"https://127\.0\.0\.1:\d+(/kubernetes/management)?", "*", text)
    return re.sub(r"\b\d+(s|m|h|d)(\d+(s|m|h))?\b", "*", text)
