"""A client for the tests of the specification: a real server, YAML bodies and a bearer key."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx
import yaml

from tests.harness.server_process import MANAGEMENT, Server

VERSION = "management.service.sh/v1"
ROOT = f"{MANAGEMENT}/apis/{VERSION}"
PREFIX = "service-p-"
YAML = "application/yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"

Object = dict[str, Any]
_numbers = count(1)


def unique_name(prefix: str = "x") -> str:
    """A name that no other test uses, since all of them share one server."""
    return f"{prefix}-{next(_numbers)}"


def build_object(kind: str, name: str = "", /, spec: Any = None, **metadata: Any) -> Object:
    """An object as in users' files, with the null timestamp and the empty status that tools leave there."""
    meta = {"creationTimestamp": None, **({"name": name} if name else {}), **metadata}
    return {"kind": kind, "apiVersion": VERSION, "metadata": meta, "spec": spec or {}, "status": {}}


@dataclass(frozen=True, slots=True)
class Api:
    """Requests below the root of the management group, with one key."""

    server: Server
    client: httpx.Client

    def send(self, method: str, path: str, content: Any = None, media_type: str = YAML) -> httpx.Response:
        """Sends a text unchanged, and anything else encoded for the media type."""
        if content is None:
            return self.client.request(method, f"{ROOT}/{path}")
        encode = json.dumps if media_type.endswith("json") else yaml.safe_dump
        text = content if isinstance(content, str) else encode(content)
        return self.client.request(method, f"{ROOT}/{path}", content=text, headers={"Content-Type": media_type})

    def get(self, path: str) -> Object:
        return _expect_status(self.send("GET", path), 200)

    def get_yaml(self, path: str) -> str:
        response = self.client.get(f"{ROOT}/{path}", headers={"Accept": YAML})
        assert (response.status_code, response.headers["content-type"]) == (200, YAML), response.text
        return response.text

    def create(self, path: str, content: Any) -> Object:
        return _expect_status(self.send("POST", path, content), 201)

    def put(self, path: str, content: Any) -> Object:
        return _expect_status(self.send("PUT", path, content), 200)

    def patch(self, path: str, content: Any, media_type: str = MERGE_PATCH) -> Object:
        return _expect_status(self.send("PATCH", path, content, media_type), 200)

    def create_app(self, spec: Any = None, **metadata: Any) -> Object:
        return self.create("apps", build_object("App", unique_name("app"), spec, **metadata))

    def create_project(self, **spec: Any) -> str:
        """Creates a project without required templates and returns its name."""
        name = unique_name("project")
        self.create("projects", build_object("Project", name, {"requireTemplate": {"disabled": True}, **spec}))
        return name

    def create_key(self, **spec: Any) -> Object:
        return self.create("ownedaccesskeys", build_object("OwnedAccessKey", unique_name("key"), spec))

    @contextmanager
    def use_key(self, key: str) -> Iterator["Api"]:
        """A client of the same server with this key."""
        with self.server.client(key) as client:
            yield Api(self.server, client)


def _expect_status(response: httpx.Response, code: int) -> Object:
    assert response.status_code == code, response.text
    result: Object = response.json()
    return result


def workspaces_path(project: str) -> str:
    return f"namespaces/{PREFIX}{project}/devpodworkspaceinstances"


def virtual_clusters_path(project: str) -> str:
    return f"namespaces/{PREFIX}{project}/virtualclusterinstances"
