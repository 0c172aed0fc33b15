"""`kubectl get auditevents`: tables, YAML, selectors, one request by its ID, and a watch."""

import json

import yaml

from tests.harness.eventually import wait_until
from tests.harness.kubectl import Kubectl

CONFIGMAPS = "objectRef.resource=configmaps"


def list_names(kubectl: Kubectl, name: str) -> list[str]:
    selector = f"{CONFIGMAPS},objectRef.name={name},responseStatus.code=404,since=1h"
    output = kubectl("get", "auditevents", "--field-selector", selector, "-o", "name")
    return output.split()


def test_get_prints_a_table_and_one_request_by_its_id(kubectl: Kubectl) -> None:
    kubectl.expect_failure("get", "configmap", "asked-for")
    (name,) = wait_until(lambda: list_names(kubectl, "asked-for"))
    header, row = kubectl.get_rows("auditevents", "--field-selector", f"{CONFIGMAPS},objectRef.name=asked-for")
    assert header == ["TIME", "USER", "VERB", "OBJECT", "CODE", "DECISION", "REFUSED BY", "NAME"]
    assert row[1:6] == ["admin", "get", "default/configmaps/asked-for", "404", "allow"]
    wide = kubectl.get_rows(name, "-o", "wide")
    assert wide[0][8:] == ["REASON", "ACCESS KEY", "SOURCE", "USER AGENT"]
    event = yaml.safe_load(kubectl("get", name, "-o", "yaml"))
    assert name == f"auditevent.management.service.sh/{event['metadata']['name']}"
    assert (event["kind"], event["auditID"], event["verb"]) == ("AuditEvent", event["metadata"]["name"], "get")


def test_get_follows_all_pages(kubectl: Kubectl) -> None:
    for _ in range(3):
        kubectl.expect_failure("get", "configmap", "paged")
    wait_until(lambda: len(list_names(kubectl, "paged")) == 3)
    selector = f"{CONFIGMAPS},objectRef.name=paged"
    paged = kubectl("get", "auditevents", "--field-selector", selector, "-o", "json", "--chunk-size=1")
    assert len(json.loads(paged)["items"]) == 3


def test_a_watch_prints_new_requests(kubectl: Kubectl) -> None:
    kubectl.expect_failure("get", "configmap", "before-the-watch")
    wait_until(lambda: list_names(kubectl, "before-the-watch"))
    with kubectl.watching("get", "auditevents", "--watch", "--no-headers", "--field-selector", CONFIGMAPS) as process:
        assert process.stdout is not None
        while "before-the-watch" not in process.stdout.readline():
            pass
        kubectl.expect_failure("get", "configmap", "during-the-watch")
        while "during-the-watch" not in process.stdout.readline():
            pass


def test_explain_describes_the_fields(kubectl: Kubectl) -> None:
    assert "authenticated requester" in kubectl("explain", "auditevents.user")
