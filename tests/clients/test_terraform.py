"""What the provider `kubernetes` of Terraform requires of a server for its resource `kubernetes_manifest`.

The provider is not run. To plan, it looks up the resource in discovery, lists the CustomResourceDefinitions, and
derives the type of the resource from /openapi/v2 unless one of them has it. It applies a manifest as the field manager
`Terraform` without force, reads it every second while it waits for conditions, and fails if the result differs from
what was planned. It deletes an object, and reads it until it is not found.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.clients.server import GROUP, Server
from tests.harness.server_process import build_tls_context

ROOT = Path(__file__).resolve().parents[2]
ROOT_PATH = "/kubernetes/management"
MAX_DEPTH = 50
"""The provider gives up on deeper types."""
EXAMPLES = ("app", "project", "spacetemplate", "team", "user", "virtualclustertemplate", "sharedsecret")
Schema = dict[str, Any]
APPLY = {"Content-Type": "application/apply-patch+yaml"}
CRD = ("apiextensions.k8s.io", "CustomResourceDefinition")
AGGREGATED_DISCOVERY = ",".join(
    (
        *(
            f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
            for version in ("v2", "v2beta1")
        ),
        "application/json",
    )
)
DELETE_OPTIONS = {"kind": "DeleteOptions", "apiVersion": "v1"}
WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {server.key}"}
    context = build_tls_context(str(server.ca_file))
    with httpx.Client(base_url=server.url + ROOT_PATH, headers=headers, verify=context, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def definitions(api: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/openapi/v2").json()["definitions"]
    return found


def find_mappings(api: httpx.Client, group: str, kind: str) -> dict[str, str]:
    """The paths of the resource of a kind by version, as the REST mapper of client-go finds them."""
    found = {}
    for root in ("/api", "/apis"):
        reply = api.get(root, headers={"Accept": AGGREGATED_DISCOVERY})
        assert "as=APIGroupDiscoveryList" in reply.headers["content-type"]
        for each in reply.json()["items"]:
            name = each["metadata"].get("name", "")
            for version in each["versions"]:
                for resource in version["resources"]:
                    if (name, resource["responseKind"]["kind"]) == (group, kind):
                        path = f"{root}/{name}/{version['version']}" if name else f"{root}/{version['version']}"
                        found[version["version"]] = f"{path}/{resource['resource']}"
    return found


def plan(api: httpx.Client, manifest: dict[str, Any], definitions: Schema) -> None:
    """The requests of the provider before it applies a manifest."""
    assert api.get("/apis").status_code == 200  # how it checks its credentials
    group, _, version = manifest["apiVersion"].partition("/")
    assert version in find_mappings(api, group, manifest["kind"])
    mappings = find_mappings(api, *CRD)
    assert mappings == {"v1": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"}
    for path in mappings.values():
        reply = api.get(path, headers={"Accept": "application/json"})
        assert (reply.status_code, reply.json()["kind"], reply.json()["items"]) == (200, f"{CRD[1]}List", [])
    wanted = {"group": group, "version": version, "kind": manifest["kind"]}
    indexed = [each for each in definitions.values() if wanted in each.get("x-kubernetes-group-version-kind", ())]
    assert [each["type"] for each in indexed] == ["object"]


def find_type_problems(schema: Schema, definitions: Schema, path: str, depth: int = MAX_DEPTH) -> list[str]:
    """Where the provider cannot express a schema as a type."""
    if not depth:
        return [f"{path}: recursion"]
    if reference := schema.get("$ref"):
        return find_type_problems(definitions[reference.rpartition("/")[2]], definitions, path, depth - 1)
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    if schema.get("type") in (None, "", "string", "boolean", "number", "integer"):
        return []
    if schema["type"] == "array":
        items = schema.get("items")
        return find_type_problems(items, definitions, f"{path}[]", depth - 1) if items else [f"{path}: no items"]
    if schema["type"] != "object" or (properties and others):
        return [f"{path}: {schema['type']} with properties and others"]
    children = {**(properties or {}), **({"*": others} if isinstance(others, dict) else {})}
    return [
        problem
        for name, child in children.items()
        for problem in find_type_problems(child, definitions, f"{path}.{name}", depth - 1)
    ]


def kinds_of(schema: dict[str, Any]) -> Iterator[str]:
    for each in schema.get("x-kubernetes-group-version-kind", ()):
        if each["group"] == GROUP:
            yield each["kind"]


def test_every_kind_has_a_type(definitions: dict[str, Any]) -> None:
    assert "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" in definitions
    checked = {kind: schema for schema in definitions.values() for kind in kinds_of(schema)}
    assert {"Cluster", "Project", "SpaceInstance", "User"} <= set(checked)
    for kind, schema in checked.items():
        assert find_type_problems(schema, definitions, kind) == []


def contains(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(contains(found.get(name), each) for name, each in wanted.items())
    return bool(found == wanted)


def example(name: str) -> dict[str, Any]:
    """The first object of the example, with a name of its own."""
    found: dict[str, Any] = next(iter(yaml.safe_load_all((ROOT / "examples" / f"{name}.yaml").read_text())))
    found["metadata"]["name"] = f"tf-{found['metadata']['name']}"
    return found


def resource_path(api: httpx.Client, obj: dict[str, Any]) -> str:
    group = f"/apis/{obj['apiVersion']}"
    plural = next(each["name"] for each in api.get(group).json()["resources"] if each["kind"] == obj["kind"])
    namespace = obj["metadata"].get("namespace")
    return f"{group}/namespaces/{namespace}/{plural}" if namespace else f"{group}/{plural}"


def delete(api: httpx.Client, path: str) -> None:
    assert api.request("DELETE", path, json=DELETE_OPTIONS).status_code == 200
    wait_until(lambda: api.get(path).status_code == 404)


def wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_manifest_is_created_read_changed_and_deleted(api: httpx.Client, definitions: Schema, name: str) -> None:
    manifest = example(name)
    plan(api, manifest, definitions)
    path = f"{resource_path(api, manifest)}/{manifest['metadata']['name']}"
    assert api.get(path).status_code == 404
    options = {"fieldManager": "Terraform", "force": "false"}

    def apply() -> dict[str, Any]:
        reply = api.patch(path, params=options, headers=APPLY, content=json.dumps(manifest))
        assert reply.status_code in (200, 201), reply.text
        found: dict[str, Any] = reply.json()
        return found

    created = apply()
    assert contains(created, manifest)
    assert created["metadata"]["managedFields"][0]["manager"] == "Terraform"
    assert contains(api.get(path).json(), manifest)
    version = api.get(path).json()["metadata"]["generation"]
    assert apply()["metadata"]["generation"] == version
    manifest["spec"]["displayName"] = "changed"
    assert contains(apply(), manifest)
    delete(api, path)


def test_a_field_of_another_manager_is_a_conflict(api: httpx.Client) -> None:
    manifest = example("team")
    path = f"{resource_path(api, manifest)}/{manifest['metadata']['name']}"
    api.patch(path, params={"fieldManager": "other"}, headers=APPLY, content=json.dumps(manifest))
    manifest["spec"]["displayName"] = "changed"
    reply = api.patch(path, params={"fieldManager": "Terraform"}, headers=APPLY, content=json.dumps(manifest))
    assert reply.status_code == 409
    assert 'conflict with "other"' in reply.json()["message"]


def test_the_condition_ready_can_be_waited_for(api: httpx.Client) -> None:
    manifest = example("project")
    path = f"{resource_path(api, manifest)}/{manifest['metadata']['name']}"
    assert api.patch(path, params={"fieldManager": "Terraform"}, headers=APPLY, json=manifest).status_code == 201

    def is_ready() -> bool:
        conditions = api.get(path).json().get("status", {}).get("conditions", [])
        return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)

    wait_until(is_ready)
    delete(api, path)


WRITES = {"POST": "", "PUT": "/a.example.com", "PATCH": "/a.example.com", "DELETE": "/a.example.com"}


@pytest.mark.parametrize("method", WRITES)
def test_custom_resource_definitions_cannot_be_written(api: httpx.Client, method: str) -> None:
    path = find_mappings(api, *CRD)["v1"]
    assert api.get(f"{path}/a.example.com").status_code == 404
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": CRD[1], "metadata": {"name": "a.example.com"}}
    headers = APPLY if method == "PATCH" else {}
    reply = api.request(method, path + WRITES[method], json=body, headers=headers)
    assert (reply.status_code, reply.json()["reason"]) == (405, "MethodNotAllowed")
    assert reply.json()["message"] == "the server does not allow this method on the requested resource"
    assert api.delete(path).status_code == 405


def test_a_watch_of_custom_resource_definitions_has_no_events(api: httpx.Client) -> None:
    path = find_mappings(api, *CRD)["v1"]
    reply = api.get(path, params={"watch": "true", "timeoutSeconds": "1"})
    assert (reply.status_code, reply.text) == (200, "")
