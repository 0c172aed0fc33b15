"""What there is to be attacked: every resource that discovery names, with the schema that OpenAPI gives for its kind.

Beside it stands what must survive: objects in the namespace `kept`, and cluster-wide ones of that name. The attackers
write everywhere else; whatever they do to `kept` they can only have done by a trick.
"""

import json
import time
from dataclasses import dataclass
from typing import Any

import httpx

from tests.harness.kind_examples import build_events_v1_event, build_example
from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS

KEPT = "kept"
NAMESPACES = ("storm-0", "storm-1", "storm-2")
LABEL = {"kept": "yes"}


_ONLY_ONE_HAS = {"User": ("username",), "Team": ("username", "groups"), "OwnedAccessKey": ("key", "user")}
"""Fields of examples that no two objects can have alike, or that let an attacker join what must be left alone."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource, as a client without any knowledge of its own finds it."""

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

    def collection(self, namespace: str = "") -> str:
        return f"{self.root}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{self.root}/{self.plural}"

    @property
    def stored(self) -> bool:
        """Whether it can be made and read afterwards; reviews are only answered, and the one Config is always there."""
        return {"create", "get"} <= set(self.verbs)

    @property
    def is_second_form(self) -> bool:
        """Whether its objects are those of another resource."""
        return self.group_version == "events.k8s.io/v1"

    def example(self, name: str, namespace: str = "") -> dict[str, Any]:
        """An object that can be created."""
        obj = build_events_v1_event() if self.is_second_form else build_example(self.kind)
        obj["apiVersion"] = self.group_version
        obj["metadata"] = {"name": name, "labels": LABEL} if self.stored else {}
        if self.namespaced:
            obj["metadata"]["namespace"] = namespace
        if self.kind == "Event":
            obj["regarding" if self.is_second_form else "involvedObject"]["namespace"] = namespace
        for field in _ONLY_ONE_HAS.get(self.kind, ()):
            del obj["spec"][field]
        return obj


@dataclass(frozen=True, slots=True)
class World:
    resources: tuple[Resource, ...]
    documents: tuple[str, ...]
    key: str


def explore(client: httpx.Client, key: str) -> World:
    """Asks discovery and OpenAPI what there is."""
    groups = client.get(f"{MANAGEMENT}/apis").json()["groups"]
    versions = ["v1", *(each["groupVersion"] for group in groups for each in group["versions"])]
    found: list[Resource] = []
    for version in versions:
        root = f"/{'apis' if '/' in version else 'api'}/{version}"
        schemas = client.get(f"{MANAGEMENT}/openapi/v3{root}").json()["components"]["schemas"]
        listed = client.get(f"{MANAGEMENT}{root}").json()["resources"]
        found.extend(_resource(version, each, listed, schemas) for each in listed if "/" not in each["name"])
    return World(tuple(found), tuple(client.get(MANAGEMENT).json()["paths"]), key)


def _resource(version: str, each: dict[str, Any], listed: list[dict[str, Any]], schemas: dict[str, Any]) -> Resource:
    plural, kind = each["name"], each["kind"]
    below = tuple(other["name"].partition("/")[2] for other in listed if other["name"].startswith(f"{plural}/"))
    schema = next(value for name, value in schemas.items() if name.endswith(f".{kind}"))
    return Resource(version, plural, kind, each["namespaced"], tuple(each["verbs"]), below, schema)


def furnish(client: httpx.Client, world: World) -> None:
    """Makes the namespaces, what must survive, and something for the attackers to write to."""
    namespaces = next(each for each in world.resources if each.kind == "Namespace")
    for name in (KEPT, *NAMESPACES):
        client.post(namespaces.collection(), json=namespaces.example(name)).raise_for_status()
    for resource in world.resources:
        if resource is not namespaces and resource.stored and not resource.is_second_form:
            for place in NAMESPACES if resource.namespaced else ("",):
                client.post(resource.collection(place), json=resource.example("a", place)).raise_for_status()
            client.post(resource.collection(KEPT), json=resource.example(KEPT, KEPT)).raise_for_status()


def snapshot(client: httpx.Client, world: World) -> dict[str, str]:
    """Everything that must survive, byte for byte. Of clusters the spec: the server looks at them again and again."""
    kept: dict[str, str] = {}
    for resource in (each for each in world.resources if each.stored):
        path = f"{resource.collection(KEPT)}/{KEPT}"
        answer = client.get(path)
        kept[path] = json.dumps(answer.json()["spec"]) if resource.plural == "clusters" else answer.text
    return kept


def settled(client: httpx.Client, world: World) -> dict[str, str]:
    """The same, once controllers have said what they have to say about new objects."""
    before: dict[str, str] = {}
    until = time.monotonic() + TIMEOUT_SECONDS
    while (now := snapshot(client, world)) != before and time.monotonic() < until:
        before = now
        time.sleep(0.3)
    return now
