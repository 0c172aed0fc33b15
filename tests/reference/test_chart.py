"""The Helm chart and the rendered manifests at a real kube-apiserver: strict validation, and releases by Helm."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python.config import Config

from tests.harness.chart_values import AGGREGATED, CHART, ROOT, SCRIPT, VARIANTS
from tests.harness.eventually import wait_until
from tests.harness.gateways import build_kubectl
from tests.harness.kubectl import Kubectl
from tests.reference.control_plane import ControlPlane

NAMESPACE, RELEASE = "fairlead", "fairlead"
API_SERVICE = "v1.management.service.sh"
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
STRICT_APPLY = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")


def minimal_crd(group: str, version: str, kind: str) -> dict[str, Any]:
    """A kind of other projects, as far as the chart needs it to exist."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": versions}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    approval = {"api-approved.kubernetes.io": "unapproved, test-only"}  # required for groups of Kubernetes
    return {**body, "metadata": {"name": f"{plural}.{group}", "annotations": approval}}


@pytest.fixture(scope="module")
def kubectl(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl at a cluster with the namespace of the chart, in which only restricted pods may run."""
    found = build_kubectl(plane.binaries / "kubectl", tmp_path_factory.mktemp("chart"), plane.kubeconfig())
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": RESTRICTED}}
    crds = [
        minimal_crd("monitoring.coreos.com", "v1", "PrometheusRule"),
        minimal_crd("monitoring.coreos.com", "v1", "ServiceMonitor"),
        minimal_crd("gateway.networking.k8s.io", "v1alpha2", "TLSRoute"),
    ]
    found("create", "-f", "-", body=json.dumps({"apiVersion": "v1", "kind": "List", "items": [namespace, *crds]}))
    found("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    yield found
    found("delete", "apiservice", API_SERVICE, "--ignore-not-found")
    found("delete", "namespace", NAMESPACE, "--timeout=120s")
    found("delete", "crd", *(each["metadata"]["name"] for each in crds))


@pytest.mark.parametrize("number", range(len(VARIANTS)))
def test_every_rendered_object_is_accepted_strictly_and_without_warnings(kubectl: Kubectl, number: int) -> None:
    """Warnings would also say that a pod is not restricted."""
    text = yaml.safe_dump_all(SCRIPT.render(VARIANTS[number]))
    assert kubectl.expect_warnings(*STRICT_APPLY, body=text) == ""


@pytest.mark.parametrize("name", sorted(SCRIPT.VARIANTS))
def test_every_manifest_is_accepted_strictly_and_without_warnings(kubectl: Kubectl, name: str) -> None:
    text = (ROOT / "deploy" / "manifests" / name).read_text()
    assert kubectl.expect_warnings(*STRICT_APPLY, "--force-conflicts", body=text) == ""


def test_a_misspelt_field_and_an_unrestricted_pod_would_be_noticed(kubectl: Kubectl) -> None:
    objects = {each["kind"]: each for each in SCRIPT.render({})}
    service, workload = objects["Service"], objects["StatefulSet"]
    wrong = json.dumps({**service, "spec": {**service["spec"], "prots": []}})
    assert "prots" in kubectl.expect_failure(*STRICT_APPLY, body=wrong)
    del workload["spec"]["template"]["spec"]["securityContext"]
    assert "PodSecurity" in kubectl.expect_warnings(*STRICT_APPLY, body=json.dumps(workload))


def test_releases_are_installed_upgraded_rolled_back_and_uninstalled(
    plane: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    """There is no node, so no pod runs: the APIService is not available, and must not be in the way."""
    file = tmp_path / "kubeconfig"
    file.write_text(plane.kubeconfig())

    def has_api_service() -> bool:
        return kubectl.run("get", "apiservice", API_SERVICE).returncode == 0

    def names(kind: str) -> list[str]:
        return kubectl.get_names(kind, "-n", NAMESPACE, "-l", f"app.kubernetes.io/instance={RELEASE}")

    with Config(kubeconfig_path=file, namespace=NAMESPACE) as helm:
        helm.install(CHART, RELEASE, {})
        wait_until(lambda: names("persistentvolumeclaims") == ["data-fairlead-0"])
        assert not has_api_service()
        helm.upgrade(CHART, RELEASE, AGGREGATED)
        wait_until(lambda: "reason" in kubectl("get", "apiservice", API_SERVICE, "-o", "jsonpath={.status.conditions}"))
        bound = kubectl("get", "rolebinding", "fairlead:aggregated-api", "-n", "kube-system", "-o", "name")
        assert bound == "rolebinding.rbac.authorization.k8s.io/fairlead:aggregated-api\n"
        helm.rollback(RELEASE)
        assert not has_api_service()
        assert kubectl.run("get", "rolebinding", "fairlead:aggregated-api", "-n", "kube-system").returncode != 0
        helm.upgrade(CHART, RELEASE, AGGREGATED)
        assert [each["revision"] for each in helm.history(RELEASE)] == [1, 2, 3, 4]
        helm.uninstall(RELEASE)
    assert not has_api_service()
    assert kubectl.run("get", "clusterrolebinding", "fairlead:aggregated-api").returncode != 0
    assert names("statefulsets") == [] and names("services") == []
    assert names("persistentvolumeclaims") == ["data-fairlead-0"], "uninstalling keeps the data"
