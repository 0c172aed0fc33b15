"""kubectl finds its way: which kinds there are, what they are made of, and which server answers."""

import json
import re

import pytest

from tests.clients.server import GROUP, VERSION
from tests.harness.kubectl import Kubectl, cut, minor_version

KINDS = {
    # name: (short names, version, whether in a namespace, kind)
    "configmaps": ("cm", "v1", "true", "ConfigMap"),
    "events": ("ev", "v1", "true", "Event"),
    "namespaces": ("ns", "v1", "false", "Namespace"),
    "secrets": ("", "v1", "true", "Secret"),
    "leases": ("", "coordination.k8s.io/v1", "true", "Lease"),
    "apps": ("", VERSION, "false", "App"),
    "clusters": ("", VERSION, "false", "Cluster"),
    "devpodworkspaceinstances": ("ws", VERSION, "true", "DevPodWorkspaceInstance"),
    "projects": ("", VERSION, "false", "Project"),
}

RUNNING_THINGS = "\n---\n".join(
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


def test_version_tells_both_sides(kubectl: Kubectl) -> None:
    told = kubectl("version")
    assert "Client Version: v1." in told
    assert "Server Version: v1.35.0+fairlead." in told


def test_a_kubectl_of_the_same_age_or_one_younger_does_not_warn(kubectl: Kubectl) -> None:
    minor = minor_version(kubectl.program)
    warned = "exceeds the supported minor version skew" in kubectl.warned("version")
    assert warned == (abs(minor - 35) > 1)


def test_cluster_info_says_where_the_server_is(kubectl: Kubectl) -> None:
    assert re.search(
        r"Kubernetes control plane.* is running at .*https://.*/kubernetes/management", kubectl("cluster-info")
    )
    assert kubectl.names("services", "--all-namespaces") == []
    refused = kubectl.refused("create", "service", "clusterip", "web", "--tcp=80")
    assert "does not allow this method" in refused


def test_get_all_is_what_runs_in_a_project(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", body=f"{{apiVersion: {VERSION}, kind: Project, metadata: {{name: everything}}}}")
    kubectl("create", "-f", "-", body=RUNNING_THINGS)
    names = set(kubectl("get", "all", "-n", "service-p-everything", "-o", "name").split())
    assert names == {f"{kind}.{GROUP}/mine" for kind in ("spaceinstance", "virtualclusterinstance")}
    assert "No resources found" in kubectl.warned("get", "all", "-n", "default")


def test_health_and_metrics_are_found_below_the_api_root(kubectl: Kubectl) -> None:
    assert kubectl("get", "--raw", "/healthz") == "ok"
    assert kubectl("get", "--raw", "/livez?verbose") == "[+]ping ok\nlivez check passed\n"
    assert "[+]store ok\n" in kubectl("get", "--raw", "/readyz?verbose")
    assert kubectl("get", "--raw", "/readyz/store") == "ok"
    assert "apiserver_request_total{" in kubectl("get", "--raw", "/metrics")


def test_api_resources_lists_every_kind(kubectl: Kubectl) -> None:
    header, *rows = cut(kubectl("api-resources"))
    assert header == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    listed = {tuple(row) for row in rows}
    assert listed >= {(name, *facts) for name, facts in KINDS.items()}
    assert ("events", "ev", "events.k8s.io/v1", "true", "Event") in listed


def test_api_resources_says_what_can_be_done_with_a_kind(kubectl: Kubectl) -> None:
    _, *rows = cut(kubectl("api-resources", "-o", "wide"))
    verbs = {row[0]: set(row[5].split(",")) for row in rows}
    everything = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
    assert verbs["apps"] == everything
    assert verbs["namespaces"] == everything - {"deletecollection"}
    assert {row[0]: row[6] for row in rows}["apps"] == "fairlead"


def test_api_resources_can_be_narrowed(kubectl: Kubectl) -> None:
    def listed(*options: str) -> set[str]:
        return set(kubectl("api-resources", "-o", "name", *options).split())

    ours = {f"{name}.{GROUP}" for name in ("apps", "clusters", "devpodworkspaceinstances", "projects")}
    assert listed("--api-group", GROUP) >= ours
    assert listed("--api-group", GROUP, "--namespaced=true") >= {f"devpodworkspaceinstances.{GROUP}"}
    assert f"apps.{GROUP}" not in listed("--namespaced=true")
    assert listed("--categories", "fairlead") >= ours
    assert "namespaces" not in listed("--verbs", "deletecollection")


def test_api_versions_lists_every_group(kubectl: Kubectl) -> None:
    assert set(kubectl("api-versions").split()) >= {"v1", "coordination.k8s.io/v1", VERSION}


def test_explain_shows_the_fields_below_a_path(kubectl: Kubectl) -> None:
    told = kubectl("explain", "app.spec.config")
    assert f"GROUP:      {GROUP}\nKIND:       App\nVERSION:    v1\n" in told
    assert "FIELD: config <Object>" in told
    assert "Content of an unversioned app." in told
    assert "  chart\t<Object>\n    A Helm chart to deploy." in told
    assert "  values\t<string>\n" in told


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
def test_explain_goes_down_to_any_depth(kubectl: Kubectl, path: str, lines: list[str]) -> None:
    told = kubectl("explain", path)
    assert [line for line in lines if line not in told] == [], told


@pytest.mark.parametrize(
    ("kind", "deepest"),
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
def test_explain_draws_the_whole_tree_of_a_kind(kubectl: Kubectl, kind: str, deepest: str) -> None:
    told = kubectl("explain", kind, "--recursive")
    assert f"KIND:       {KINDS[kind][3]}\n" in told
    assert "  metadata\t<ObjectMeta>\n    annotations\t<map[string]string>\n" in told
    assert deepest in told
    assert "<>" not in told, "a field without a type"


def test_explain_can_read_the_older_openapi_document(kubectl: Kubectl) -> None:
    told = kubectl("explain", "app.spec.config", "--output", "plaintext-openapiv2")
    assert f"VERSION:  {VERSION}" in told
    assert "RESOURCE: config <Object>" in told


def test_explain_of_a_field_that_does_not_exist_names_it(kubectl: Kubectl) -> None:
    assert 'field "nope" does not exist' in kubectl.refused("explain", "app.spec.nope")
