"""Makes the fixture of a release: the data folder of a server of that release, with one object of every stored kind.

    git worktree add /tmp/tree TAG && python -m tests.upgrade.make_fixture --tree /tmp/tree RELEASE

It starts the server of that source tree on an empty folder and uses nothing but its API, so the same script works for
every release: kinds that a release does not serve are left out. The archive in `fixtures/` has the database, the
secrets that it needs, and `manifest.json` with what has to be there after an upgrade. All secrets in it are made for
the fixture and are used nowhere else.
"""

import argparse
import base64
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = Path(__file__).parent / "fixtures"
PREFIX = "/kubernetes/management"
MANAGEMENT = "management.service.sh/v1"
RBAC = "rbac.authorization.k8s.io/v1"
PASSWORD = "correct-horse-battery-1"
SECRET_VALUE = base64.b64encode(b"canary of the upgrade").decode()
EXCLUDED = ("tls", "admin.kubeconfig", "audit", ".lock", ".socket", ".log")
WAIT_SECONDS = 20.0

CREATED_FIRST = {"users", "ownedaccesskeys", "projects"}
"""What `fill` creates before the other objects."""

Object = dict[str, Any]


def build_object(version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> Object:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **fields}


def management_objects(project_namespace: str) -> Iterator[tuple[str, Object]]:
    """Objects of the management group with their plurals, in the order in which they can be created."""
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://cluster.invalid:6443"}}],
        "users": [{"name": "u", "user": {"token": "canary"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    encoded = base64.b64encode(json.dumps(kubeconfig).encode()).decode()
    reference = {"secretName": "cluster-old", "secretNamespace": "service-system", "key": "config"}
    chart = {"name": "nginx", "repoURL": "https://charts.invalid"}
    small: Object = {"displayName": "Small", "template": {"metadata": {}}}
    shared = {"displayName": "Registry", "data": {"token": SECRET_VALUE}}
    instance = {"displayName": "Old", "clusterRef": {"cluster": "old"}, "templateRef": {"name": "old"}}

    def build(kind: str, spec: Object, name: str = "old", namespace: str = "") -> Object:
        return build_object(MANAGEMENT, kind, name, namespace, spec=spec)

    yield "teams", build("Team", {"displayName": "Old", "users": ["ada"]})
    yield "apps", build("App", {"displayName": "Nginx", "config": {"chart": chart}})
    yield "secrets", build_object("v1", "Secret", "cluster-old", "service-system", data={"config": encoded})
    yield "clusters", build("Cluster", {"displayName": "Berlin", "config": reference})
    yield "spacetemplates", build("SpaceTemplate", small)
    yield "virtualclustertemplates", build("VirtualClusterTemplate", small)
    yield (
        "devpodworkspacetemplates",
        build("DevPodWorkspaceTemplate", {**small, "template": {"provider": {"name": "docker"}}}),
    )
    inline = {"displayName": "Old", "template": {"inline": '{"image": "debian:12"}'}}
    yield "devpodenvironmenttemplates", build("DevPodEnvironmentTemplate", inline)
    source = {"displayName": "Old", "source": {"image": "debian:12"}, "templateRef": {"name": "old"}}
    yield "devpodworkspacepresets", build("DevPodWorkspacePreset", source)
    yield "runners", build("Runner", {"displayName": "Old"})
    yield "sharedsecrets", build("SharedSecret", shared, namespace="service-system")
    yield "projectsecrets", build("ProjectSecret", shared, namespace=project_namespace)
    yield (
        "devpodworkspaceinstances",
        build("DevPodWorkspaceInstance", {"displayName": "Old"}, namespace=project_namespace),
    )
    yield "spaceinstances", build("SpaceInstance", instance, namespace=project_namespace)
    yield "virtualclusterinstances", build("VirtualClusterInstance", instance, namespace=project_namespace)
    target = {"spaceInstance": {"name": "old"}}
    yield (
        "appinstances",
        build("AppInstance", {"appRef": {"name": "old"}, "target": target}, namespace=project_namespace),
    )


def core_objects() -> Iterator[tuple[str, Object]]:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "old"}
    subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ada"}]
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]
    yield "namespaces", build_object("v1", "Namespace", "old")
    yield "configmaps", build_object("v1", "ConfigMap", "old", "default", data={"key": "value"})
    yield "secrets", build_object("v1", "Secret", "old", "default", data={"token": SECRET_VALUE})
    yield "serviceaccounts", build_object("v1", "ServiceAccount", "old", "default")
    lease = {"holderIdentity": "nothing", "leaseDurationSeconds": 10}
    yield "leases", build_object("coordination.k8s.io/v1", "Lease", "old", "default", spec=lease)
    yield "roles", build_object(RBAC, "Role", "old", "default", rules=rules)
    yield "rolebindings", build_object(RBAC, "RoleBinding", "old", "default", subjects=subjects, roleRef=role)
    yield "clusterroles", build_object(RBAC, "ClusterRole", "old", rules=rules)
    cluster_role = {**role, "kind": "ClusterRole"}
    yield (
        "clusterrolebindings",
        build_object(RBAC, "ClusterRoleBinding", "old", subjects=subjects, roleRef=cluster_role),
    )


class FixtureClient:
    """Creates objects with the API of a server, and notes what it created."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self.paths: list[str] = []

    def request(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        answer = self._client.request(method, path, content=json.dumps(body), headers={"Content-Type": kind})
        if not answer.is_success:
            raise SystemExit(f"{method} {path}: {answer.status_code} {answer.text}")
        result: Object = answer.json()
        return result

    def create(self, plural: str, body: Object) -> Object | None:
        """Creates the object; None if the server does not serve its kind."""
        version, namespace = body["apiVersion"], body["metadata"].get("namespace")
        group = f"{PREFIX}/api/v1" if version == "v1" else f"{PREFIX}/apis/{version}"
        if all(each["name"] != plural for each in self.request("GET", group)["resources"]):
            return None
        collection = f"{group}/namespaces/{namespace}/{plural}" if namespace else f"{group}/{plural}"
        created = self.request("POST", collection, body)
        self.paths.append(f"{collection}/{created['metadata']['name']}")
        return created

    def read(self, path: str) -> Object | None:
        answer = self._client.get(path)
        found: Object | None = answer.json() if answer.is_success else None
        return found


def edit_role(client: FixtureClient, name: str) -> Object:
    """Edits a default role as an operator would: a rule of its own, and no Secrets any more."""
    path = f"{PREFIX}/apis/{RBAC}/clusterroles/{name}"
    role = client.request("GET", path)
    for rule in role["rules"]:
        if "secrets" in rule.get("resources", ()):
            rule["resources"].remove("secrets")
    role["rules"].append({"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]})
    return client.request("PUT", path, role)


def fill(client: FixtureClient) -> Object:
    """Creates everything, and returns the manifest."""
    user = build_object(MANAGEMENT, "User", "ada", spec={"displayName": "Ada", "email": "ada@example.com"})
    client.create("users", user)
    users = f"{PREFIX}/apis/{MANAGEMENT}/users/ada"
    client.request("POST", f"{users}/profile", {"apiVersion": MANAGEMENT, "kind": "UserProfile", "password": PASSWORD})
    keys = {}
    for owner in ("admin", "ada"):
        spec = {"displayName": owner, "user": owner, "type": "User"}
        key = client.create("ownedaccesskeys", build_object(MANAGEMENT, "OwnedAccessKey", f"key-{owner}", spec=spec))
        assert key is not None
        keys[owner] = key["spec"]["key"]
    client.create("projects", build_object(MANAGEMENT, "Project", "old", spec={"displayName": "Old"}))
    namespace = _wait_for_project(client)
    for plural, body in (*core_objects(), *management_objects(namespace)):
        client.create(plural, body)
    edited = {name: edit_role(client, name)["rules"] for name in ("edit", "view")}
    time.sleep(1)  # controllers write the first statuses
    return {"keys": keys, "password": PASSWORD, "editedRoles": edited, "objects": [*_describe(client)]}


def _wait_for_project(client: FixtureClient) -> str:
    """The namespace of the project, once it exists."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        for item in client.request("GET", f"{PREFIX}/api/v1/namespaces")["items"]:
            if item["metadata"]["name"].endswith("-old"):
                return str(item["metadata"]["name"])
        time.sleep(0.1)
    raise SystemExit("the project has got no namespace")


def _describe(client: FixtureClient) -> Iterator[Object]:
    """What has to be the same after an upgrade."""
    for path in client.paths:
        found = client.request("GET", path)
        content = {name: found[name] for name in ("spec", "data", "rules", "subjects", "roleRef") if name in found}
        yield {"path": path, "uid": found["metadata"]["uid"], "content": content}


@contextmanager
def running_tree(tree: Path, data: Path) -> Iterator[httpx.Client]:
    """A server of the source tree on the folder, and a client of its administrator."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "up", "--data", str(data), "--port", "0", "--json"],
        cwd=tree,
        env={**variables, "PYTHONPATH": str(tree)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        headers = {"Authorization": f"Bearer {ready['accessKey']}"}
        with httpx.Client(
            base_url=ready["url"], verify=ready["caFile"], headers=headers, timeout=WAIT_SECONDS
        ) as client:
            yield client
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_SECONDS)
    finally:
        process.kill()
        process.communicate()


def make_fixture(tree: Path, release: str) -> Path:
    archive = FIXTURES / f"{release}.tar.gz"
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / release
        with running_tree(tree, data) as client:
            manifest = {"release": release, **fill(FixtureClient(client))}
        (data / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True))
        FIXTURES.mkdir(exist_ok=True)
        with tarfile.open(archive, "w:gz") as out:
            for path in sorted(data.iterdir()):
                if not any(part in path.name for part in EXCLUDED):
                    out.add(path, path.name)
    return archive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", help="the name of the fixture, such as 0.2.0")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the source tree of the release; this one by default")
    options = parser.parse_args()
    archive = make_fixture(options.tree.resolve(), options.release)
    print(f"{archive}: {archive.stat().st_size} bytes")


if __name__ == "__main__":
    main()
