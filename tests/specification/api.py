"""What the tests of the specification talk with: a real server, YAML bodies, a bearer key."""

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

Body = dict[str, Any]
_numbers = count(1)


def fresh(word: str = "x") -> str:
    """A name that no other test uses, since all of them share one server."""
    return f"{word}-{next(_numbers)}"


def body(kind: str, name: str = "", /, spec: Any = None, **metadata: Any) -> Body:
    """An object as people write it into files: with the null and the empty status that tools leave there."""
    meta = {"creationTimestamp": None, **({"name": name} if name else {}), **metadata}
    return {"kind": kind, "apiVersion": VERSION, "metadata": meta, "spec": spec or {}, "status": {}}


@dataclass(frozen=True, slots=True)
class Api:
    """Requests below the root of the management group, with one key."""

    server: Server
    client: httpx.Client

    def send(self, method: str, path: str, content: Any = None, media_type: str = YAML) -> httpx.Response:
        """A text goes out as it is; anything else in the form that the media type says."""
        if content is None:
            return self.client.request(method, f"{ROOT}/{path}")
        written = json.dumps if media_type.endswith("json") else yaml.safe_dump
        text = content if isinstance(content, str) else written(content)
        return self.client.request(method, f"{ROOT}/{path}", content=text, headers={"Content-Type": media_type})

    def get(self, path: str) -> Body:
        return _told(self.send("GET", path), 200)

    def get_yaml(self, path: str) -> str:
        answer = self.client.get(f"{ROOT}/{path}", headers={"Accept": YAML})
        assert (answer.status_code, answer.headers["content-type"]) == (200, YAML), answer.text
        return answer.text

    def make(self, path: str, content: Any) -> Body:
        return _told(self.send("POST", path, content), 201)

    def put(self, path: str, content: Any) -> Body:
        return _told(self.send("PUT", path, content), 200)

    def patch(self, path: str, content: Any, media_type: str = MERGE_PATCH) -> Body:
        return _told(self.send("PATCH", path, content, media_type), 200)

    def app(self, spec: Any = None, **metadata: Any) -> Body:
        return self.make("apps", body("App", fresh("app"), spec, **metadata))

    def project(self, **spec: Any) -> str:
        """The name of a new project in which anything can be made."""
        name = fresh("project")
        self.make("projects", body("Project", name, {"requireTemplate": {"disabled": True}, **spec}))
        return name

    def key(self, **spec: Any) -> Body:
        return self.make("ownedaccesskeys", body("OwnedAccessKey", fresh("key"), spec))

    @contextmanager
    def holding(self, key: str) -> Iterator["Api"]:
        """The same server, as whoever holds the key."""
        with self.server.client(key) as client:
            yield Api(self.server, client)


def _told(answer: httpx.Response, code: int) -> Body:
    assert answer.status_code == code, answer.text
    told: Body = answer.json()
    return told


def workspaces(project: str) -> str:
    return f"namespaces/{PREFIX}{project}/devpodworkspaceinstances"


def virtual_clusters(project: str) -> str:
    return f"namespaces/{PREFIX}{project}/virtualclusterinstances"
