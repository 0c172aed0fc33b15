"""The resources that the attacks use: all that discovery lists, with the OpenAPI schema of their kind.

Also the objects that must not change: those in the namespace `protected`, and cluster-scoped ones of that name. The
attacks write everywhere else; a change of `protected` would be a vulnerability.
"""

import json
import time
from dataclasses import dataclass
from typing import Any

import httpx

from tests.harness.kind_examples import build_events_v1_event, build_example
from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS

PROTECTED = "protected"
NAMESPACES = ("fuzz-0", "fuzz-1", "fuzz-2")
LABELS = {"protected": "yes"}


_UNIQUE_FIELDS = {"User": ("username",), "Team": ("username", "groups"), "OwnedAccessKey": ("key", "user")}
"""Fields of examples that must be unique, or that would give an attacker access to protected objects."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource as discovery describes it."""

    group_version: str
    plural: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    subresources: tuple[str, ...]
    schema: dict[str, Any]

    @property
    def root(self) -> str:
        return f"{MANAGEMENT}/{'apis' if '/' in self.group_version else 'api'}/{self.group_version}"

    def collection_path(self, namespace: str = "") -> str:
        return f"{self.root}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{self.root}/{self.plural}"

    @property
    def is_stored(self) -> bool:
        """Whether objects can be created and read. Reviews are not stored, and the only Config always exists."""
        return {"create", "get"} <= set(self.verbs)

    @property
    def is_alternate_version(self) -> bool:
        """Whether it is another API version of the objects of another resource."""
        return self.group_version == "events.k8s.io/v1"

    def build_example(self, name: str, namespace: str = "") -> dict[str, Any]:
        """A valid object."""
        obj = build_events_v1_event() if self.is_alternate_version else build_example(self.kind)
        obj["apiVersion"] = self.group_version
        obj["metadata"] = {"name": name, "labels": LABELS} if self.is_stored else {}
        if self.namespaced:
            obj["metadata"]["namespace"] = namespace
        if self.kind == "Event":
            obj["regarding" if self.is_alternate_version else "involvedObject"]["namespace"] = namespace
        for field in _UNIQUE_FIELDS.get(self.kind, ()):
            del obj["spec"][field]
        return obj


@dataclass(frozen=True, slots=True)
class ApiCatalog:
    resources: tuple[Resource, ...]
    documents: tuple[str, ...]
    key: str


def discover_api(client: httpx.Client, key: str) -> ApiCatalog:
    """Reads discovery and OpenAPI."""
    groups = client.get(f"{MANAGEMENT}/apis").json()["groups"]
    versions = ["v1", *(each["groupVersion"] for group in groups for each in group["versions"])]
    found: list[Resource] = []
    for version in versions:
        root = f"/{'apis' if '/' in version else 'api'}/{version}"
        schemas = client.get(f"{MANAGEMENT}/openapi/v3{root}").json()["components"]["schemas"]
        resource_list = client.get(f"{MANAGEMENT}{root}").json()["resources"]
        found.extend(
            _build_resource(version, each, resource_list, schemas) for each in resource_list if "/" not in each["name"]
        )
    return ApiCatalog(tuple(found), tuple(client.get(MANAGEMENT).json()["paths"]), key)


def _build_resource(
    version: str, each: dict[str, Any], resource_list: list[dict[str, Any]], schemas: dict[str, Any]
) -> Resource:
    plural, kind = each["name"], each["kind"]
    subresources = tuple(
        other["name"].partition("/")[2] for other in resource_list if other["name"].startswith(f"{plural}/")
    )
    schema = next(value for name, value in schemas.items() if name.endswith(f".{kind}"))
    return Resource(version, plural, kind, each["namespaced"], tuple(each["verbs"]), subresources, schema)


def create_objects(client: httpx.Client, catalog: ApiCatalog) -> None:
    """Creates the namespaces, the protected objects, and objects for the attacks to write to."""
    namespaces = next(each for each in catalog.resources if each.kind == "Namespace")
    for name in (PROTECTED, *NAMESPACES):
        client.post(namespaces.collection_path(), json=namespaces.build_example(name)).raise_for_status()
    for resource in catalog.resources:
        if resource is not namespaces and resource.is_stored and not resource.is_alternate_version:
            for namespace in NAMESPACES if resource.namespaced else ("",):
                client.post(
                    resource.collection_path(namespace), json=resource.build_example("a", namespace)
                ).raise_for_status()
            client.post(
                resource.collection_path(PROTECTED), json=resource.build_example(PROTECTED, PROTECTED)
            ).raise_for_status()


def take_snapshot(client: httpx.Client, catalog: ApiCatalog) -> dict[str, str]:
    """The bytes of all protected objects. Only the spec, if the server reports the status later or repeatedly."""
    contents: dict[str, str] = {}
    for resource in (each for each in catalog.resources if each.is_stored):
        path = f"{resource.collection_path(PROTECTED)}/{PROTECTED}"
        response = client.get(path)
        has_late_status = resource.plural == "clusters" or resource.plural.endswith("instances")
        contents[path] = json.dumps(response.json()["spec"]) if has_late_status else response.text
    return contents


def wait_for_stable_snapshot(client: httpx.Client, catalog: ApiCatalog) -> dict[str, str]:
    """The snapshot after controllers have updated the new objects."""
    previous: dict[str, str] = {}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (current := take_snapshot(client, catalog)) != previous and time.monotonic() < deadline:
        previous = current
        time.sleep(0.3)
    return current
