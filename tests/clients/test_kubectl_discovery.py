"""kubectl and discovery: resources, API versions, OpenAPI schemas in `explain`, versions and health."""

import json
import re

import pytest

from tests.clients.server import GROUP, VERSION
from tests.harness.kubectl import Kubectl, minor_version, split_columns

KINDS = {
    # name: (short names, version, namespaced, kind)
    "configmaps": ("cm", "v1", "true", "ConfigMap"),
    "events": ("ev", "v1", "true", "Event"),
    "namespaces": ("ns", "v1", "false", "Namespace"),
    "secrets": ("", "v1", "true", "Secret"),
    "customresourcedefinitions": ("crd,crds", "apiextensions.k8s.io/v1", "false", "CustomResourceDefinition"),
    "leases": ("", "coordination.k8s.io/v1", "true", "Lease"),
    "apps": ("", VERSION, "false", "App"),
    "clusters": ("", VERSION, "false", "Cluster"),
    "devpodworkspaceinstances": ("ws", VERSION, "true", "DevPodWorkspaceInstance"),
    "projects": ("", VERSION, "false", "Project"),
}

INSTANCES = "\n---\n".join(
    json.dumps(
        {
            "apiVersion": VERSION,
            "kind": kind,
            "metadata": {"name": "mine", "namespace": "service-p-everything"},
            "spec": {"template": {}},
        }
    )
    for kind in ("SpaceInstance", "VirtualClusterInstance")
)


def test_version_prints_client_and_server_version(kubectl: Kubectl) -> None:
    output = kubectl("version")
    assert "Client Version: v1." in output
    assert "Server Version: v1.35.0+fairlead." in output


def test_version_warns_only_about_a_skew_over_one_minor_version(kubectl: Kubectl) -> None:
    minor = minor_version(kubectl.program)
    has_warning = "exceeds the supported minor version skew" in kubectl.expect_warnings("version")
    assert has_warning == (abs(minor - 35) > 1)


def test_cluster_info_prints_the_url_of_the_server(kubectl: Kubectl) -> None:
    assert re.search(
        r"Kubernetes control plane.* is running at .*https://.*/kubernetes/management", kubectl("cluster-info")
    )
    assert kubectl.get_names("services", "--all-namespaces") == []
    error = kubectl.expect_failure("create", "service", "clusterip", "web", "--tcp=80")
    assert "does not allow this method" in error


CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
"""


def test_there_are_no_custom_resource_definitions(kubectl: Kubectl) -> None:
    assert "No resources found" in kubectl.expect_warnings("get", "crd")
    assert "not found" in kubectl.expect_failure("get", "crd", "widgets.example.com")
    for command in (("apply",), ("create",), ("apply", "--server-side")):
        error = kubectl.expect_failure(*command, "-f", "-", body=CRD)
        assert "MethodNotAllowed" in error and "the server does not allow this method" in error
    assert "KIND:       CustomResourceDefinition" in kubectl("explain", "crd")


def test_get_all_lists_the_instances_of_a_project(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", body=f"{{apiVersion: {VERSION}, kind: Project, metadata: {{name: everything}}}}")
    kubectl("create", "-f", "-", body=INSTANCES)
    names = set(kubectl("get", "all", "-n", "service-p-everything", "-o", "name").split())
    assert names == {f"{kind}.{GROUP}/mine" for kind in ("spaceinstance", "virtualclusterinstance")}
    assert "No resources found" in kubectl.expect_warnings("get", "all", "-n", "default")


def test_health_and_metrics_are_served_below_the_api_root(kubectl: Kubectl) -> None:
    assert kubectl("get", "--raw", "/healthz") == "ok"
    assert kubectl("get", "--raw", "/livez?verbose") == "[+]ping ok\nlivez check passed\n"
    assert "[+]store ok\n" in kubectl("get", "--raw", "/readyz?verbose")
    assert kubectl("get", "--raw", "/readyz/store") == "ok"
    assert "apiserver_request_total{" in kubectl("get", "--raw", "/metrics")


def test_api_resources_lists_every_kind(kubectl: Kubectl) -> None:
    header, *rows = split_columns(kubectl("api-resources"))
    assert header == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    listed = {tuple(row) for row in rows}
    assert listed >= {(name, *columns) for name, columns in KINDS.items()}
    assert ("events", "ev", "events.k8s.io/v1", "true", "Event") in listed


def test_api_resources_wide_lists_verbs_and_categories(kubectl: Kubectl) -> None:
    _, *rows = split_columns(kubectl("api-resources", "-o", "wide"))
    verbs = {row[0]: set(row[5].split(",")) for row in rows}
    everything = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
    assert verbs["apps"] == everything
    assert verbs["namespaces"] == everything - {"deletecollection"}
    assert {row[0]: row[6] for row in rows}["apps"] == "fairlead"


def test_api_resources_can_be_filtered(kubectl: Kubectl) -> None:
    def list_resources(*options: str) -> set[str]:
        return set(kubectl("api-resources", "-o", "name", *options).split())

    management_resources = {f"{name}.{GROUP}" for name in ("apps", "clusters", "devpodworkspaceinstances", "projects")}
    assert list_resources("--api-group", GROUP) >= management_resources
    assert list_resources("--api-group", GROUP, "--namespaced=true") >= {f"devpodworkspaceinstances.{GROUP}"}
    assert f"apps.{GROUP}" not in list_resources("--namespaced=true")
    assert list_resources("--categories", "fairlead") >= management_resources
    assert "namespaces" not in list_resources("--verbs", "deletecollection")


def test_api_versions_lists_every_group(kubectl: Kubectl) -> None:
    assert set(kubectl("api-versions").split()) >= {"v1", "coordination.k8s.io/v1", VERSION}


def test_explain_shows_the_fields_of_a_path(kubectl: Kubectl) -> None:
    output = kubectl("explain", "app.spec.config")
    assert f"GROUP:      {GROUP}\nKIND:       App\nVERSION:    v1\n" in output
    assert "FIELD: config <Object>" in output
    assert "Content of an unversioned app." in output
    assert "  chart\t<Object>\n    A Helm chart to deploy." in output
    assert "  values\t<string>\n" in output


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("app.spec.config.chart.name", ["FIELD: name <string>", "Name of the chart in its repository."]),
        ("app.spec.access", ["FIELD: access <[]Object>", "  users\t<[]string>"]),
        ("app.metadata.ownerReferences", ["  uid\t<string> -required-"]),
        ("project.spec.members.kind", ["ENUM:\n    User\n    Team"]),
        ("ws.spec.template.provider.options", ["FIELD: options <map[string]Object>"]),
        ("cm.data", ["FIELD: data <map[string]string>"]),
        ("events.involvedObject.fieldPath", ["FIELD: fieldPath <string>"]),
        ("lease.spec.leaseDurationSeconds", ["FIELD: leaseDurationSeconds <integer>"]),
        ("ns.status.phase", ["ENUM:\n    Active\n    Terminating"]),
    ],
)
def test_explain_works_for_nested_fields(kubectl: Kubectl, path: str, lines: list[str]) -> None:
    output = kubectl("explain", path)
    assert [line for line in lines if line not in output] == [], output


@pytest.mark.parametrize(
    ("kind", "nested_field"),
    [
        ("apps", "          projectSecretRef\t<Object>"),
        ("clusters", "      secretNamespace\t<string>"),
        ("projects", "      clusterRole\t<string>"),
        ("devpodworkspaceinstances", "            sharedSecretRef\t<Object>"),
        ("namespaces", "      lastTransitionTime\t<string>"),
        ("configmaps", "  binaryData\t<map[string]string>"),
        ("secrets", "  stringData\t<map[string]string>"),
        ("events", "    lastObservedTime\t<string>"),
        ("leases", "    holderIdentity\t<string>"),
    ],
)
def test_explain_recursive_shows_all_fields_of_a_kind(kubectl: Kubectl, kind: str, nested_field: str) -> None:
    output = kubectl("explain", kind, "--recursive")
    assert f"KIND:       {KINDS[kind][3]}\n" in output
    assert "  metadata\t<ObjectMeta>\n    annotations\t<map[string]string>\n" in output
    assert nested_field in output
    assert "<>" not in output, "a field without a type"


def test_explain_works_with_openapi_v2(kubectl: Kubectl) -> None:
    output = kubectl("explain", "app.spec.config", "--output", "plaintext-openapiv2")
    assert f"VERSION:  {VERSION}" in output
    assert "RESOURCE: config <Object>" in output


def test_explain_of_an_unknown_field_is_an_error(kubectl: Kubectl) -> None:
    assert 'field "nope" does not exist' in kubectl.expect_failure("explain", "app.spec.nope")


def test_all_subresources_of_a_namespace_are_listed(kubectl: Kubectl) -> None:
    resources = json.loads(kubectl("get", "--raw", "/api/v1"))["resources"]
    found = {each["name"]: each["verbs"] for each in resources if each["name"].startswith("namespaces/")}
    assert found == {"namespaces/finalize": ["update"], "namespaces/status": ["get", "patch", "update"]}
