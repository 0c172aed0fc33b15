"""Spaces in a real cluster: their status while the cluster answers, while it does not, and when it is back."""

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
from tests.reference.connected_cluster import CLUSTER, World, condition, seconds_since

PROJECT = "status"
NAMESPACE = f"service-p-{PROJECT}"


@pytest.fixture(scope="module")
def settled(world: World) -> World:
    """A world with a project."""
    with world.server.client() as admin:
        create_resource(admin, "projects", "Project", PROJECT, allowedClusters=[{"name": "*"}])
    return world


@contextmanager
def paused(world: World) -> Iterator[None]:
    world.plane.pause_api_server()
    try:
        yield
    finally:
        world.plane.resume_api_server()


def create_space(world: World, name: str, timeout: str) -> tuple[int, str]:
    wanted = ("space", "create", name, "--project", PROJECT, "--cluster", CLUSTER)
    done = world.fairlead(*wanted, "--wait", "--timeout", timeout)
    return done.returncode, done.stderr


def see(world: World, name: str) -> dict[str, Any]:
    found: dict[str, Any] = world.management().get_json("spaceinstance", name, "-n", NAMESPACE)
    return found


def verdict(world: World, name: str) -> tuple[Any, Any]:
    ready = condition(see(world, name), "Ready")
    return ready.get("status"), ready.get("reason")


def test_ready_comes_and_goes_with_the_api_server(settled: World, measured: Callable[[str], None]) -> None:
    assert create_space(settled, "before", "60s")[0] == 0
    namespace = see(settled, "before")["spec"]["clusterRef"]["namespace"]
    direct = settled.direct()
    assert "service.sh:admin" in direct.get_names("rolebindings", "-n", namespace)
    with paused(settled):
        began = time.monotonic()
        code, said = create_space(settled, "meanwhile", "3s")
        assert code == 1 and "the space meanwhile is still Pending" in said, said
        wait_until(lambda: verdict(settled, "before")[0] != "True", 60)
        lost = seconds_since(began)
        wait_until(lambda: verdict(settled, "before")[1] == "ClusterOffline", 60)
        assert kstatus(see(settled, "before")) == "InProgress"
    began = time.monotonic()
    settled.management()("wait", "--for=condition=Ready", "spaceinstance", "--all", "-n", NAMESPACE, "--timeout=90s")
    measured(f"not ready {lost:.0f} s after SIGSTOP, ready {seconds_since(began):.0f} s after SIGCONT")
    assert namespace in direct.get_names("namespaces")
    assert see(settled, "meanwhile")["spec"]["clusterRef"]["namespace"] in direct.get_names("namespaces")


CONFIG_MAP = "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {hostNetwork: true, containers: [{name: c, image: i}]}
"""
QUOTA = '{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {count/secrets: "0"}}}'
SECRET = "{apiVersion: v1, kind: Secret, metadata: {name: s}}"


def make_space(world: World, name: str, **template: Any) -> None:
    body = {
        **{"apiVersion": "management.service.sh/v1", "kind": "SpaceInstance", "metadata": {"name": name}},
        "spec": {"clusterRef": {"cluster": CLUSTER}, "template": template},
    }
    with world.server.client() as admin:
        post_object(admin, f"{M}/namespaces/{NAMESPACE}/spaceinstances", body)


def change(world: World, name: str, **spec: Any) -> None:
    with world.server.client() as admin:
        merge_patch(admin, f"{M}/namespaces/{NAMESPACE}/spaceinstances/{name}", {"spec": spec})


def synced(world: World, name: str) -> tuple[Any, Any]:
    found = condition(see(world, name), "SpaceSynced")
    return found.get("status"), found.get("reason")


@pytest.mark.parametrize(
    ("name", "template", "reason", "shown"),
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
def test_what_the_api_server_says_about_a_template_is_shown(
    settled: World, name: str, template: dict[str, Any], reason: str, shown: str
) -> None:
    make_space(settled, name, **template)
    wait_until(lambda: synced(settled, name) == ("False", reason), 60)
    space = see(settled, name)
    assert shown in condition(space, "SpaceSynced")["message"]
    assert (space["status"]["phase"], kstatus(space)) == ("Failed", "Failed")
    events = settled.management().get_json("events", "-n", NAMESPACE, f"--field-selector=involvedObject.name={name}")
    assert (reason, "Warning") in {(each["reason"], each["type"]) for each in events["items"]}


def test_a_quota_that_is_used_up_is_told(settled: World) -> None:
    with settled.server.client() as admin:
        create_resource(admin, "spacetemplates", "SpaceTemplate", "full", template={"objects": QUOTA})
    made_from = {"clusterRef": {"cluster": CLUSTER}, "templateRef": {"name": "full", "version": "x.x.x"}}
    with settled.server.client() as admin:
        create_resource(admin, f"namespaces/{NAMESPACE}/spaceinstances", "SpaceInstance", "full", **made_from)
    wait_until(lambda: verdict(settled, "full")[0] == "True", 60)
    namespace, direct = see(settled, "full")["spec"]["clusterRef"]["namespace"], settled.direct()
    wait_until(lambda: "exceeded quota" in direct.run("create", "secret", "generic", "y", "-n", namespace).stderr)
    with settled.server.client() as admin:
        merge_patch(admin, f"{M}/spacetemplates/full", {"spec": {"template": {"objects": f"{QUOTA}\n---\n{SECRET}"}}})
    wait_until(lambda: synced(settled, "full") == ("False", "QuotaExceeded"), 60)
    assert "exceeded quota: q" in see(settled, "full")["status"]["message"]


def test_a_denying_webhook_is_heard_and_a_silent_one_is_named(settled: World) -> None:
    def deny(asked: RecordedRequest) -> CannedResponse:
        review = json.loads(asked.body)
        response = {"uid": review["request"]["uid"], "allowed": False, "status": {"code": 403, "message": "not here"}}
        return build_json_response(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        )

    make_space(settled, "hooked")
    wait_until(lambda: verdict(settled, "hooked")[0] == "True", 60)
    namespace, direct = see(settled, "hooked")["spec"]["clusterRef"]["namespace"], settled.direct()
    with FakeCluster(deny) as far:
        direct("apply", "-f", "-", body=json.dumps(webhook(far, namespace)))
        probe = ("create", "configmap", "y", "-n", namespace, "--dry-run=server")
        wait_until(lambda: "not here" in direct.run(*probe).stderr)
        change(settled, "hooked", template={"objects": f"{CONFIG_MAP}}}"})
        wait_until(lambda: synced(settled, "hooked") == ("False", "AdmissionDenied"), 60)
        assert '"hook.example.com" denied the request: not here' in see(settled, "hooked")["status"]["message"]
    change(settled, "hooked", displayName="again")
    wait_until(lambda: synced(settled, "hooked") == ("False", "WebhookFailing"), 60)
    direct("delete", "validatingwebhookconfiguration", "hook")
    wait_until(lambda: verdict(settled, "hooked")[0] == "True", 60)


def webhook(far: FakeCluster, namespace: str) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    hook = {
        **{"name": "hook.example.com", "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"]},
        "clientConfig": {"url": far.url, "caBundle": b64encode(far.ca_pem.encode()).decode()},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    return {**kind, "metadata": {"name": "hook"}, "webhooks": [hook]}


def test_a_namespace_that_does_not_go_says_what_holds_it(settled: World) -> None:
    make_space(settled, "held")
    wait_until(lambda: verdict(settled, "held")[0] == "True", 60)
    namespace, direct = see(settled, "held")["spec"]["clusterRef"]["namespace"], settled.direct()
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "f", "finalizers": ["example.com/held"]}}
    direct("create", "-n", namespace, "-f", "-", body=json.dumps(held))
    management = settled.management()
    management("delete", "spaceinstance", "held", "-n", NAMESPACE, "--wait=false")
    wait_until(lambda: "finalizers remaining: example.com/held" in see(settled, "held")["status"]["message"], 60)
    assert condition(see(settled, "held"), "SpaceReady")["reason"] == "NamespaceFinalizersRemaining"
    freed = '{"metadata": {"finalizers": null}}'
    direct("patch", "configmap", "f", "-n", namespace, "--type=merge", "-p", freed)
    management("wait", "--for=delete", "spaceinstance/held", "-n", NAMESPACE, "--timeout=25s")
    assert namespace not in direct.get_names("namespaces")


def test_an_imported_virtual_cluster_is_ready_while_it_answers(settled: World, measured: Callable[[str], None]) -> None:
    config = b64encode(settled.plane.kubeconfig().encode()).decode()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs"}, "data": {"config": config}}
    instance = {
        **{"apiVersion": "management.service.sh/v1", "kind": "VirtualClusterInstance", "metadata": {"name": "theirs"}},
        "spec": {"config": {"secretName": "theirs"}},
    }
    management = settled.management()
    for each in (secret, instance):
        management("create", "-n", NAMESPACE, "-f", "-", body=json.dumps(each))
    ready = ("wait", "--for=condition=Ready", "virtualclusterinstance/theirs", "-n", NAMESPACE, "--timeout=60s")
    management(*ready)

    def is_ready() -> bool:
        found = management.get_json("virtualclusterinstance", "theirs", "-n", NAMESPACE)
        return (kstatus(found), condition(found, "VirtualClusterOnline")["status"]) == ("Current", "True")

    assert is_ready()
    with paused(settled):
        lost = seconds_until(lambda: not is_ready(), 60)
    began = time.monotonic()
    management(*ready)
    measured(f"not ready {lost:.0f} s after SIGSTOP, ready {seconds_since(began):.0f} s after SIGCONT")
    management("delete", "virtualclusterinstance", "theirs", "-n", NAMESPACE)
