"""Virtual clusters deployed with real Helm: a server with a `helm` on its PATH, a cluster, and a chart repository.

For tests with another Fairlead as the cluster (`test_helm.py`), and with a real Kubernetes (`tests/reference`). What is
in the cluster is looked at through the gateway, so both ask in the same way.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.fake_cluster.chart_repository import Chart, ChartRepository
from tests.fake_cluster.helm_program import write_helm_program
from tests.harness.eventually import wait_until
from tests.harness.gateways import (
    M,
    connect_cluster,
    create_resource,
    gateway_path,
    is_online,
    merge_patch,
    post_object,
    share_identity,
)
from tests.harness.server_process import Server, running_server

CLUSTER = "remote"
DEPLOYED = "VirtualClusterDeployed"
NAMESPACE = "service-p-demo"
SECONDS = 60.0
"""Until something is deployed. helm takes a second or two."""

CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-settings}
data: {size: {{ .Values.size | quote }}, namespace: {{ .Release.Namespace }}}
"""
KUBECONFIG = """
apiVersion: v1
kind: Secret
metadata: {name: vc-{{ .Release.Name }}}
data: {config: {{ .Values.kubeconfig | b64enc }}}
"""
OUTSIDE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: from-{{ .Release.Name }}}
rules: []
"""
APP_SETTINGS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-settings}
data: {size: {{ .Values.size | quote }}, token: {{ .Values.token | default "none" | quote }}}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      containers:
        - {name: web, image: {{ .Values.image }}, imagePullPolicy: Never, command: [httpd, -f, -p, "8080"]}
"""
NOTES = "Connect to {{ .Release.Name }} with the token {{ .Values.token }}, size {{ .Values.size }}.\n"
REFUSED_SERVICE = """
{{- if .Values.refused }}
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}-refused}
spec: {ports: [{port: 99999}]}
{{- end }}
"""
"""The cluster refuses the port. Helm writes ConfigMaps and Secrets before Services."""
ADDED_SECRET = """
{{- if .Values.added }}
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-added}
{{- end }}
"""
STUCK_DEPLOYMENT = """
{{- if .Values.stuck }}
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}-stuck}
spec:
  selector: {matchLabels: {app: stuck}}
  template:
    metadata: {labels: {app: stuck}}
    spec: {containers: [{name: main, image: "localhost/none:1", command: ["false"]}]}
{{- end }}
"""
INVALID = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: UPPER}\n"
UNKNOWN_KIND = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: x}\n"
SMALL = {"templates/settings.yaml": CONFIG_MAP, "templates/kubeconfig.yaml": KUBECONFIG}
CHARTS = (
    Chart("vc", SMALL),
    Chart("demanding", {**SMALL, "templates/check.yaml": '{{ $_ := required "set the value `name`" .Values.name }}'}),
    Chart("invalid", {**SMALL, "templates/invalid.yaml": INVALID}),
    Chart("unknown-kind", {**SMALL, "templates/unknown.yaml": UNKNOWN_KIND}),
    Chart("reaching-out", {**SMALL, "templates/outside.yaml": OUTSIDE}),
    Chart("pods", {"templates/pods.yaml": DEPLOYMENT}),
    Chart(
        "fragile",
        {
            **SMALL,
            "templates/added.yaml": ADDED_SECRET,
            "templates/refused.yaml": REFUSED_SERVICE,
            "templates/stuck.yaml": STUCK_DEPLOYMENT,
            "values.yaml": "size: 0\nkubeconfig: none\n",
        },
    ),
    Chart("web", {"templates/settings.yaml": APP_SETTINGS, "templates/NOTES.txt": NOTES, "values.yaml": "size: 0\n"}),
)


@dataclass(frozen=True, slots=True)
class HelmFixture:
    """`kubeconfig` is the one that charts store for the virtual cluster: it connects to the cluster itself."""

    admin: httpx.Client
    repository: ChartRepository
    kubeconfig: str

    def release(self, chart: str = "vc", version: str = "", **values: Any) -> dict[str, Any]:
        """A template that has the chart deployed with these values."""
        chart_spec = {"name": chart, "repo": self.repository.url, "version": version}
        return {
            "helmRelease": {"chart": chart_spec, "values": yaml.safe_dump({"kubeconfig": self.kubeconfig, **values})}
        }

    def locked_release(self, repo: str, password: str) -> dict[str, Any]:
        """The same from a repository that asks for a password."""
        release = self.release()
        release["helmRelease"]["chart"] |= {"repo": repo, "username": "ada", "password": password}
        return release

    def create_from_template(self, name: str, release: dict[str, Any]) -> None:
        """A template and a virtual cluster of the same name."""
        create_resource(self.admin, "virtualclustertemplates", "VirtualClusterTemplate", name, template=release)
        self.create_virtual_cluster(name, templateRef={"name": name})

    def create_virtual_cluster(self, name: str, **spec: Any) -> None:
        kind = {"apiVersion": "management.service.sh/v1", "kind": "VirtualClusterInstance"}
        full_spec = {"clusterRef": {"cluster": CLUSTER}, "owner": {"user": "admin"}, **spec}
        post_object(self.admin, self._path(), {**kind, "metadata": {"name": name}, "spec": full_spec})

    def update_template(self, name: str, release: dict[str, Any]) -> None:
        """Updates the template, and the instance from it."""
        merge_patch(self.admin, f"{M}/virtualclustertemplates/{name}", {"spec": {"template": release}})
        merge_patch(self.admin, self._path(name), {"spec": {"templateRef": {"syncOnce": True}}})

    def delete(self, name: str) -> None:
        assert self.admin.delete(self._path(name)).status_code == httpx.codes.OK
        wait_until(lambda: self.admin.get(self._path(name)).status_code == httpx.codes.NOT_FOUND, SECONDS)

    def wait_for_condition(self, name: str, type: str, reason: str) -> str:
        """Returns the message of the condition once it has that reason."""
        wait_until(lambda: self.condition(name, type).get("reason") == reason, SECONDS)
        message: str = self.condition(name, type).get("message") or ""
        return message

    def condition(self, name: str, type: str) -> dict[str, Any]:
        conditions = (self.admin.get(self._path(name)).json().get("status") or {}).get("conditions") or ()
        return next((each for each in conditions if each["type"] == type), {})

    def remote_object(self, path: str) -> dict[str, Any]:
        """An object in the cluster; empty if there is none."""
        answer = self.admin.get(f"{gateway_path(CLUSTER)}{path}")
        assert answer.status_code in (httpx.codes.OK, httpx.codes.NOT_FOUND), answer.text
        found: dict[str, Any] = answer.json() if answer.status_code == httpx.codes.OK else {}
        return found

    def chart_settings(self, name: str) -> dict[str, str]:
        """What the chart has written into its ConfigMap."""
        found = self.remote_object(f"/api/v1/namespaces/demo-v-{name}/configmaps/{name}-settings")
        data: dict[str, str] = found.get("data") or {}
        return data

    def release_secrets(self, name: str) -> list[str]:
        """What helm has kept about a release."""
        secrets = self.remote_object(f"/api/v1/namespaces/demo-v-{name}/secrets")["items"]
        return sorted(each["metadata"]["name"] for each in secrets if each["type"] == "helm.sh/release.v1")

    def _path(self, name: str = "") -> str:
        return f"{M}/namespaces/{NAMESPACE}/virtualclusterinstances{name and f'/{name}'}"


def _provide_helm(folder: Path) -> None:
    """Puts the `helm` of the variable HELM into a folder, or else the program over Helm's own library."""
    program = os.environ.get("HELM", "")
    if program:
        (folder / "helm").symlink_to(Path(program).resolve())
    else:
        write_helm_program(folder)


@contextmanager
def open_repository(folder: Path, charts: tuple[Chart, ...] = ()) -> Iterator[ChartRepository]:
    """A repository with the charts. Servers that are started meanwhile trust it, and have `helm`."""
    folder.mkdir(parents=True, exist_ok=True)
    with ChartRepository(folder, charts or CHARTS) as repository, pytest.MonkeyPatch.context() as patched:
        _provide_helm(folder)
        patched.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        patched.setenv("SSL_CERT_FILE", str(repository.ca_file))
        yield repository


def prepare_project(admin: httpx.Client, kubeconfig: str) -> None:
    """Connects the cluster, and creates the project `demo`."""
    connect_cluster(admin, CLUSTER, kubeconfig.encode())
    create_project(admin)


def create_project(admin: httpx.Client) -> None:
    """The project `demo`, once the cluster is online."""
    wait_until(lambda: is_online(admin, CLUSTER), SECONDS)
    share_identity(admin, CLUSTER)
    templates = [{"kind": f"{kind}Template", "name": "*"} for kind in ("VirtualCluster", "Space")]
    create_resource(admin, "projects", "Project", "demo", allowedClusters=[{"name": "*"}], allowedTemplates=templates)
    wait_until(lambda: bool(admin.get(f"/kubernetes/management/api/v1/namespaces/{NAMESPACE}").is_success))


def spell_otherwise(kubeconfig: str) -> str:
    """The kubeconfig of a cluster on this machine as one that is outside of the cluster: a chart's loopback address
    would be that of a pod, which only the cluster reaches."""
    content = yaml.safe_load(kubeconfig)
    for each in content["clusters"]:
        each["cluster"]["server"] = each["cluster"]["server"].replace("//127.0.0.1", "//127.1")
        each["cluster"]["tls-server-name"] = "127.0.0.1"
    return yaml.safe_dump(content)


@contextmanager
def open_helm(
    folder: Path, kubeconfig: str, charts: tuple[Chart, ...] = CHARTS
) -> Iterator[tuple[HelmFixture, Server]]:
    """A server that deploys with Helm 4, with a cluster that this kubeconfig leads to."""
    with (
        open_repository(folder, charts) as repository,
        running_server(folder / "data", chart_repositories=repository.url) as server,
        server.client() as admin,
    ):
        prepare_project(admin, kubeconfig)
        yield HelmFixture(admin, repository, spell_otherwise(kubeconfig)), server


def check_release_lifecycle(helm: HelmFixture) -> None:
    """Deploys, upgrades and deletes a virtual cluster whose template names a chart."""
    helm.create_from_template("whole", helm.release(version="1.2.3", size=1))
    helm.wait_for_condition("whole", "VirtualClusterReady", "Ready")
    assert helm.chart_settings("whole") == {"size": "1", "namespace": "demo-v-whole"}
    helm.update_template("whole", helm.release(size=2))
    wait_until(lambda: helm.chart_settings("whole")["size"] == "2")
    wait_until(lambda: helm.release_secrets("whole") == ["sh.helm.release.v1.whole.v1", "sh.helm.release.v1.whole.v2"])
    helm.delete("whole")
    assert helm.remote_object("/api/v1/namespaces/demo-v-whole") == {}


def check_namespace_confinement(helm: HelmFixture) -> None:
    """A chart can create objects in its namespace only."""
    helm.create_virtual_cluster("inside", template=helm.release())
    helm.wait_for_condition("inside", DEPLOYED, "Deployed")
    helm.create_virtual_cluster("outside", template=helm.release("reaching-out"))
    message = helm.wait_for_condition("outside", DEPLOYED, "HelmFailed")
    assert 'User "service:deployer:demo-v-outside" cannot get resource "clusterroles"' in message
    assert helm.remote_object("/apis/rbac.authorization.k8s.io/v1/clusterroles/from-outside") == {}
    helm.delete("inside")
    helm.delete("outside")
