"""The status of spaces in a real cluster while it responds, while it hangs, and after it recovers."""

import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, build_json_response
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import seconds_until, wait_until
from tests.harness.gateways import M, create_resource, merge_patch, post_object
from tests.harness.kstatus import kstatus
from tests.reference.connected_cluster import CLUSTER, ConnectedCluster, find_condition, seconds_since

PROJECT = "status"
NAMESPACE = f"service-p-{PROJECT}"


@pytest.fixture(scope="module")
def connected_project(connected: ConnectedCluster) -> ConnectedCluster:
    """The connected cluster with a project."""
    with connected.server.client() as admin:
        create_resource(admin, "projects", "Project", PROJECT, allowedClusters=[{"name": "*"}])
    return connected


@contextmanager
def pause_cluster(connected: ConnectedCluster) -> Iterator[None]:
    connected.plane.pause_api_server()
    try:
        yield
    finally:
        connected.plane.resume_api_server()


def create_space_and_wait(connected: ConnectedCluster, name: str, timeout: str) -> tuple[int, str]:
    command = ("space", "create", name, "--project", PROJECT, "--cluster", CLUSTER)
    result = connected.run_cli(*command, "--wait", "--timeout", timeout)
    return result.returncode, result.stderr


def get_space(connected: ConnectedCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = connected.management_kubectl().get_json("spaceinstance", name, "-n", NAMESPACE)
    return found


def get_ready_condition(connected: ConnectedCluster, name: str) -> tuple[Any, Any]:
    ready = find_condition(get_space(connected, name), "Ready")
    return ready.get("status"), ready.get("reason")


def test_ready_follows_the_api_server(
    connected_project: ConnectedCluster, record_figure: Callable[[str], None]
) -> None:
    assert create_space_and_wait(connected_project, "before", "60s")[0] == 0
    namespace = get_space(connected_project, "before")["spec"]["clusterRef"]["namespace"]
    direct = connected_project.direct_kubectl()
    assert "service.sh:admin" in direct.get_names("rolebindings", "-n", namespace)
    with pause_cluster(connected_project):
        start = time.monotonic()
        code, output = create_space_and_wait(connected_project, "meanwhile", "3s")
        assert code == 1 and "the space meanwhile is still Pending" in output, output
        wait_until(lambda: get_ready_condition(connected_project, "before")[0] != "True", 60)
        outage_seconds = seconds_since(start)
        wait_until(lambda: get_ready_condition(connected_project, "before")[1] == "ClusterOffline", 60)
        assert kstatus(get_space(connected_project, "before")) == "InProgress"
    start = time.monotonic()
    connected_project.management_kubectl()(
        "wait", "--for=condition=Ready", "spaceinstance", "--all", "-n", NAMESPACE, "--timeout=90s"
    )
    record_figure(f"not ready {outage_seconds:.0f} s after SIGSTOP, ready {seconds_since(start):.0f} s after SIGCONT")
    assert namespace in direct.get_names("namespaces")
    assert get_space(connected_project, "meanwhile")["spec"]["clusterRef"]["namespace"] in direct.get_names(
        "namespaces"
    )


CONFIG_MAP = "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {hostNetwork: true, containers: [{name: c, image: i}]}
"""
QUOTA = '{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {count/secrets: "0"}}}'
SECRET = "{apiVersion: v1, kind: Secret, metadata: {name: s}}"


def create_space(connected: ConnectedCluster, name: str, **template: Any) -> None:
    body = {
        **{"apiVersion": "management.service.sh/v1", "kind": "SpaceInstance", "metadata": {"name": name}},
        "spec": {"clusterRef": {"cluster": CLUSTER}, "template": template},
    }
    with connected.server.client() as admin:
        post_object(admin, f"{M}/namespaces/{NAMESPACE}/spaceinstances", body)


def patch_space(connected: ConnectedCluster, name: str, **spec: Any) -> None:
    with connected.server.client() as admin:
        merge_patch(admin, f"{M}/namespaces/{NAMESPACE}/spaceinstances/{name}", {"spec": spec})


def get_synced_condition(connected: ConnectedCluster, name: str) -> tuple[Any, Any]:
    found = find_condition(get_space(connected, name), "SpaceSynced")
    return found.get("status"), found.get("reason")


@pytest.mark.parametrize(
    ("name", "template", "reason", "expected_message"),
    [
        ("undeclared", {"objects": f"{CONFIG_MAP}, foo: 1}}"}, "Invalid", ".foo: field not declared in schema"),
        ("mistyped", {"objects": f"{CONFIG_MAP}, data: {{a: 5}}}}"}, "Invalid", ".data.a: expected string"),
        ("invalid", {"objects": f"{CONFIG_MAP}, data: {{'a b': c}}}}"}, "Invalid", "a valid config key"),
        (
            "insecure",
            {"objects": POD},
            *("AdmissionDenied", "violates PodSecurity"),
        ),
    ],
)
def test_errors_of_the_api_server_about_a_template_are_shown(
    connected_project: ConnectedCluster, name: str, template: dict[str, Any], reason: str, expected_message: str
) -> None:
    create_space(connected_project, name, **template)
    wait_until(lambda: get_synced_condition(connected_project, name) == ("False", reason), 60)
    space = get_space(connected_project, name)
    assert expected_message in find_condition(space, "SpaceSynced")["message"]
    assert (space["status"]["phase"], kstatus(space)) == ("Failed", "Failed")
    events = connected_project.management_kubectl().get_json(
        "events", "-n", NAMESPACE, f"--field-selector=involvedObject.name={name}"
    )
    assert (reason, "Warning") in {(each["reason"], each["type"]) for each in events["items"]}


def test_an_exceeded_quota_is_reported(connected_project: ConnectedCluster) -> None:
    with connected_project.server.client() as admin:
        create_resource(admin, "spacetemplates", "SpaceTemplate", "full", template={"objects": QUOTA})
    spec = {"clusterRef": {"cluster": CLUSTER}, "templateRef": {"name": "full", "version": "x.x.x"}}
    with connected_project.server.client() as admin:
        create_resource(admin, f"namespaces/{NAMESPACE}/spaceinstances", "SpaceInstance", "full", **spec)
    wait_until(lambda: get_ready_condition(connected_project, "full")[0] == "True", 60)
    namespace, direct = (
        get_space(connected_project, "full")["spec"]["clusterRef"]["namespace"],
        connected_project.direct_kubectl(),
    )
    wait_until(lambda: "exceeded quota" in direct.run("create", "secret", "generic", "y", "-n", namespace).stderr)
    with connected_project.server.client() as admin:
        merge_patch(admin, f"{M}/spacetemplates/full", {"spec": {"template": {"objects": f"{QUOTA}\n---\n{SECRET}"}}})
    wait_until(lambda: get_synced_condition(connected_project, "full") == ("False", "QuotaExceeded"), 60)
    assert "exceeded quota: q" in get_space(connected_project, "full")["status"]["message"]


def test_a_denying_webhook_and_a_failing_webhook_are_reported(connected_project: ConnectedCluster) -> None:
    def deny(request: RecordedRequest) -> CannedResponse:
        review = json.loads(request.body)
        response = {"uid": review["request"]["uid"], "allowed": False, "status": {"code": 403, "message": "not here"}}
        return build_json_response(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        )

    create_space(connected_project, "hooked")
    wait_until(lambda: get_ready_condition(connected_project, "hooked")[0] == "True", 60)
    namespace, direct = (
        get_space(connected_project, "hooked")["spec"]["clusterRef"]["namespace"],
        connected_project.direct_kubectl(),
    )
    with FakeCluster(deny) as webhook_server:
        direct("apply", "-f", "-", body=json.dumps(build_webhook(webhook_server, namespace)))
        probe = ("create", "configmap", "y", "-n", namespace, "--dry-run=server")
        wait_until(lambda: "not here" in direct.run(*probe).stderr)
        patch_space(connected_project, "hooked", template={"objects": f"{CONFIG_MAP}}}"})
        wait_until(lambda: get_synced_condition(connected_project, "hooked") == ("False", "AdmissionDenied"), 60)
        assert (
            '"hook.example.com" denied the request: not here'
            in get_space(connected_project, "hooked")["status"]["message"]
        )
    patch_space(connected_project, "hooked", displayName="again")
    wait_until(lambda: get_synced_condition(connected_project, "hooked") == ("False", "WebhookFailing"), 60)
    direct("delete", "validatingwebhookconfiguration", "hook")
    wait_until(lambda: get_ready_condition(connected_project, "hooked")[0] == "True", 60)


def build_webhook(webhook_server: FakeCluster, namespace: str) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    hook = {
        **{"name": "hook.example.com", "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"]},
        "clientConfig": {"url": webhook_server.url, "caBundle": b64encode(webhook_server.ca_pem.encode()).decode()},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    return {**kind, "metadata": {"name": "hook"}, "webhooks": [hook]}


def test_the_status_of_a_stuck_namespace_names_its_finalizers(connected_project: ConnectedCluster) -> None:
    create_space(connected_project, "held")
    wait_until(lambda: get_ready_condition(connected_project, "held")[0] == "True", 60)
    namespace, direct = (
        get_space(connected_project, "held")["spec"]["clusterRef"]["namespace"],
        connected_project.direct_kubectl(),
    )
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "f", "finalizers": ["example.com/held"]}}
    direct("create", "-n", namespace, "-f", "-", body=json.dumps(held))
    management = connected_project.management_kubectl()
    management("delete", "spaceinstance", "held", "-n", NAMESPACE, "--wait=false")
    wait_until(
        lambda: "finalizers remaining: example.com/held" in get_space(connected_project, "held")["status"]["message"],
        60,
    )
    assert (
        find_condition(get_space(connected_project, "held"), "SpaceReady")["reason"] == "NamespaceFinalizersRemaining"
    )
    patch = '{"metadata": {"finalizers": null}}'
    direct("patch", "configmap", "f", "-n", namespace, "--type=merge", "-p", patch)
    management("wait", "--for=delete", "spaceinstance/held", "-n", NAMESPACE, "--timeout=25s")
    assert namespace not in direct.get_names("namespaces")


def test_an_imported_virtual_cluster_is_ready_while_it_responds(
    connected_project: ConnectedCluster, record_figure: Callable[[str], None]
) -> None:
    config = b64encode(connected_project.plane.kubeconfig().encode()).decode()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs"}, "data": {"config": config}}
    instance = {
        **{"apiVersion": "management.service.sh/v1", "kind": "VirtualClusterInstance", "metadata": {"name": "theirs"}},
        "spec": {"config": {"secretName": "theirs"}},
    }
    management = connected_project.management_kubectl()
    for each in (secret, instance):
        management("create", "-n", NAMESPACE, "-f", "-", body=json.dumps(each))
    ready = ("wait", "--for=condition=Ready", "virtualclusterinstance/theirs", "-n", NAMESPACE, "--timeout=60s")
    management(*ready)

    def is_ready() -> bool:
        found = management.get_json("virtualclusterinstance", "theirs", "-n", NAMESPACE)
        return (kstatus(found), find_condition(found, "VirtualClusterOnline")["status"]) == ("Current", "True")

    assert is_ready()
    with pause_cluster(connected_project):
        outage_seconds = seconds_until(lambda: not is_ready(), 60)
    start = time.monotonic()
    management(*ready)
    record_figure(f"not ready {outage_seconds:.0f} s after SIGSTOP, ready {seconds_since(start):.0f} s after SIGCONT")
    management("delete", "virtualclusterinstance", "theirs", "-n", NAMESPACE)
