"""Apps deployed with real Helm, on the server of `helm.py`: into a space, a cluster, or a virtual cluster."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.fake_cluster.chart_repository import ChartRepository
from tests.harness.eventually import wait_until
from tests.harness.gateways import M, create_resource, merge_patch, post_object
from tests.harness.helm import CHARTS, CLUSTER, NAMESPACE, SECONDS, HelmFixture

VALUES = "size: {{ parameters.size }}\ntoken: {{ parameters.token }}\n"
PARAMETERS = [
    {"variable": "size", "type": "number", "min": 1, "max": 9, "defaultValue": "1"},
    {"variable": "token", "type": "password"},
]


def create_app(helm: HelmFixture, name: str, **fields: Any) -> None:
    """An App with two versions of one chart, whose values differ."""
    chart = {"name": "web", "repoURL": helm.repository.url, "version": "1.2.3"}
    versions = [{"version": version, "chart": chart, "values": VALUES} for version in ("1.0.0", "1.1.0")]
    spec = {"parameters": PARAMETERS, "versions": versions, **fields}
    create_resource(helm.admin, "apps", "App", name, **spec)


def create_space(helm: HelmFixture, name: str, **template: Any) -> str:
    """A space from a template; returns its namespace in the cluster."""
    create_resource(helm.admin, "spacetemplates", "SpaceTemplate", name, template=template)
    body = {
        **{"apiVersion": "management.service.sh/v1", "kind": "SpaceInstance", "metadata": {"name": name}},
        "spec": {"clusterRef": {"cluster": CLUSTER}, "templateRef": {"name": name}},
    }
    path = f"{M}/namespaces/{NAMESPACE}/spaceinstances"
    post_object(helm.admin, path, body)
    wait_until(lambda: helm.admin.get(f"{path}/{name}").json().get("status", {}).get("phase") == "Ready", SECONDS)
    namespace: str = helm.admin.get(f"{path}/{name}").json()["spec"]["clusterRef"]["namespace"]
    return namespace


def app_path(name: str = "") -> str:
    return f"{M}/namespaces/{NAMESPACE}/appinstances{name and f'/{name}'}"


def install_app(helm: HelmFixture, name: str, app: str, target: dict[str, Any], **spec: Any) -> None:
    ref = {"name": app, **({"version": spec.pop("version")} if "version" in spec else {})}
    parameters = yaml.safe_dump(spec.pop("parameters")) if "parameters" in spec else ""
    body = {
        **{"apiVersion": "management.service.sh/v1", "kind": "AppInstance", "metadata": {"name": name}},
        "spec": {"appRef": ref, "target": target, "parameters": parameters, **spec},
    }
    post_object(helm.admin, app_path(), body)


def merge_app(helm: HelmFixture, name: str, **spec: Any) -> None:
    merge_patch(helm.admin, app_path(name), {"spec": spec})


def read_app(helm: HelmFixture, name: str) -> dict[str, Any]:
    found: dict[str, Any] = helm.admin.get(app_path(name)).json()
    return found


def wait_until_deployed(helm: HelmFixture, name: str, revision: int) -> dict[str, Any]:
    """Returns the status once this revision is deployed."""

    def is_deployed() -> bool:
        status = read_app(helm, name).get("status") or {}
        return bool(status.get("phase") == "Ready" and status.get("release", {}).get("revision") == revision)

    wait_until(is_deployed, SECONDS, f"revision {revision} of {name} is deployed")
    status: dict[str, Any] = read_app(helm, name)["status"]
    return status


def uninstall_app(helm: HelmFixture, name: str) -> None:
    assert helm.admin.delete(app_path(name)).status_code == httpx.codes.OK
    wait_until(lambda: helm.admin.get(app_path(name)).status_code == httpx.codes.NOT_FOUND, SECONDS)


def settings_in(helm: HelmFixture, namespace: str, release: str) -> dict[str, str]:
    found = helm.remote_object(f"/api/v1/namespaces/{namespace}/configmaps/{release}-settings")
    data: dict[str, str] = found.get("data") or {}
    return data


def check_app_lifecycle(helm: HelmFixture) -> None:
    """Deploys an app into a space, upgrades it, rolls it back, and uninstalls it."""
    create_app(helm, "web")
    namespace = create_space(helm, "dev")
    target = {"spaceInstance": {"name": "dev"}}
    install_app(helm, "shop", "web", target, version="1.0.0", parameters={"size": 2, "token": "first-secret"})
    status = wait_until_deployed(helm, "shop", 1)
    assert status["release"] | {"name": "shop", "namespace": namespace, "chart": "web"} == status["release"]
    assert status["notes"] == "Connect to shop with the token <hidden>, size 2.\n"
    assert "first-secret" not in helm.admin.get(app_path("shop")).text
    assert settings_in(helm, namespace, "shop") == {"size": "2", "token": "first-secret"}
    change = {"appRef": {"version": "1.1.0"}, "parameters": "size: 3\ntoken: <hidden>\n"}
    merge_app(helm, "shop", **change)
    status = wait_until_deployed(helm, "shop", 2)
    assert settings_in(helm, namespace, "shop") == {"size": "3", "token": "first-secret"}
    former = status["history"][1]
    assert (former["revision"], former["appVersion"]) == (1, "1.0.0")
    back = {"appRef": {"version": former["appVersion"]}, "parameters": former["parameters"]}
    merge_app(helm, "shop", **back)
    wait_until_deployed(helm, "shop", 3)
    assert settings_in(helm, namespace, "shop") == {"size": "2", "token": "first-secret"}
    uninstall_app(helm, "shop")
    assert settings_in(helm, namespace, "shop") == {}
    assert helm.remote_object(f"/api/v1/namespaces/{namespace}/secrets?labelSelector=owner%3Dhelm")["items"] == []
    bindings = helm.remote_object(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings")["items"]
    assert not [each for each in bindings if "app:" in each["metadata"]["name"]]


def check_template_releases(helm: HelmFixture) -> None:
    """The charts and apps of the template of a space are deployed before it is ready."""
    create_app(helm, "listed")
    chart = {"name": "web", "repoURL": helm.repository.url, "releaseName": "plain", "values": "size: 4\n"}
    app = {"name": "listed", "version": "1.x.x", "parameters": "size: 5\n"}
    namespace = create_space(helm, "equipped", charts=[chart], apps=[app])
    assert settings_in(helm, namespace, "plain")["size"] == "4"
    assert settings_in(helm, namespace, "listed")["size"] == "5"
    path = f"{M}/namespaces/{NAMESPACE}/spaceinstances/equipped"
    assert helm.admin.delete(path).status_code == httpx.codes.OK
    wait_until(lambda: helm.admin.get(path).status_code == httpx.codes.NOT_FOUND, SECONDS)


MANIFESTS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: noted, annotations: {example.com/owner: the manifest}}
data: {size: "%s"}
---
apiVersion: v1
kind: Secret
metadata: {name: noted}
"""


def check_annotations(helm: HelmFixture) -> None:
    """The objects of an app have its annotations, through upgrades by Helm, and lose those that it has no longer."""

    def build_config(size: int, **annotations: str | None) -> dict[str, Any]:
        return {"manifests": MANIFESTS % size, "annotations": annotations}

    team, owner = "example.com/team", "example.com/owner"
    create_app(helm, "noted", versions=[], parameters=[], config=build_config(1, **{team: "a", owner: "the app"}))
    namespace = create_space(helm, "annotated")
    install_app(helm, "notes", "noted", {"spaceInstance": {"name": "annotated"}})

    def find_annotations(plural: str) -> dict[str, str]:
        found = helm.remote_object(f"/api/v1/namespaces/{namespace}/{plural}/noted")["metadata"]["annotations"]
        return {key: value for key, value in found.items() if key.startswith("example.com/")}

    wait_until_deployed(helm, "notes", 1)
    assert find_annotations("configmaps") == {team: "a", owner: "the manifest"}
    assert find_annotations("secrets") == {team: "a", owner: "the app"}
    merge_patch(helm.admin, f"{M}/apps/noted", {"spec": {"config": build_config(2, **{team: "b"})}})
    wait_until_deployed(helm, "notes", 2)
    assert find_annotations("secrets") == {team: "b", owner: "the app"}
    merge_patch(helm.admin, f"{M}/apps/noted", {"spec": {"config": build_config(3, **{team: None, owner: None})}})
    wait_until_deployed(helm, "notes", 3)
    assert (find_annotations("configmaps"), find_annotations("secrets")) == ({owner: "the manifest"}, {})
    uninstall_app(helm, "notes")


def check_chart_login(helm: HelmFixture, folder: Path) -> None:
    """A chart of a repository that asks for a password, which is in a project secret."""
    with ChartRepository(folder, CHARTS, "repo-password") as repository:
        references = {
            f"{each}Ref": {"projectSecretRef": {"name": "charts", "key": each}} for each in ("username", "password")
        }
        chart = {"name": "web", "repoURL": repository.url, **references}
        create_app(helm, "locked", versions=[], config={"chart": chart})
        create_space(helm, "private")
        install_app(helm, "login", "locked", {"spaceInstance": {"name": "private"}})
        wait_until(lambda: (read_app(helm, "login").get("status") or {}).get("reason") == "SecretNotFound", SECONDS)
        data = {"username": "YWRh", "password": b64encode(b"repo-password").decode()}
        secret = {"apiVersion": "management.service.sh/v1", "kind": "ProjectSecret", "metadata": {"name": "charts"}}
        post_object(helm.admin, f"{M}/namespaces/{NAMESPACE}/projectsecrets", {**secret, "spec": {"data": data}})
        merge_app(helm, "login", description="the secret is there now")
        wait_until_deployed(helm, "login", 1)
        assert "repo-password" not in helm.admin.get(app_path("login")).text
        uninstall_app(helm, "login")
