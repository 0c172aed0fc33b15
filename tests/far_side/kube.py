"""A Kubernetes in memory, as far as namespaces, RoleBindings, Secrets, ConfigMaps and their like go.

`Kube.asked` is what an API server does with a request. `KubeApi` asks it from within the test, with the methods of
`ClusterApi`; `kube_answering` lets a FarSide answer with it, over TLS.
"""

import json
import uuid
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from fairlead.core.objects import Object, copied
from fairlead.upstream.cluster_api import FarError
from fairlead.upstream.errors import UpstreamError
from tests.far_side.asked import Answer, Answering, Asked, as_json

SERVED = {
    "/api/v1": [
        {"name": "namespaces", "kind": "Namespace", "namespaced": False},
        {"name": "secrets", "kind": "Secret", "namespaced": True},
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
        {"name": "configmaps/status", "kind": "ConfigMap", "namespaced": True},
    ],
    "/apis/rbac.authorization.k8s.io/v1": [
        {"name": "rolebindings", "kind": "RoleBinding", "namespaced": True},
        {"name": "clusterrolebindings", "kind": "ClusterRoleBinding", "namespaced": False},
    ],
}
OK, CREATED = 200, 201


@dataclass
class Kube:
    """`objects` are by their path. `slow_to_go`: deleted namespaces stay until `finish` is called."""

    objects: dict[str, Object] = field(default_factory=dict)
    log: list[tuple[str, str]] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    """Parts of paths that are answered with a status of failure."""
    slow_to_go: bool = False

    def put(self, path: str, **fields: Any) -> Object:
        """Lets something be there that nobody has asked for."""
        name = path.rpartition("/")[2]
        meta = {"name": name, "uid": str(uuid.uuid4()), **fields.pop("metadata", {})}
        self.objects[path] = {"metadata": meta, **fields}
        return self.objects[path]

    def finish(self) -> None:
        """Whatever is being deleted is gone now."""
        gone = [path for path, obj in self.objects.items() if "deletionTimestamp" in obj["metadata"]]
        for path in gone:
            self._drop(path)

    def asked(self, method: str, target: str, body: Object | None = None) -> tuple[int, Object]:
        parts = urlsplit(target)
        path = unquote(parts.path)
        self.log.append((method, target))
        for part, status in self.refused.items():
            if part in path:
                return _failure(status, "Refused", "as the test wants it")
        if method == "GET" and path == "/version":
            return OK, {"gitVersion": "v1.34.1"}
        if method == "GET" and path in SERVED:
            return OK, {"kind": "APIResourceList", "resources": SERVED[path]}
        return self._of_objects(method, path, parse_qs(parts.query), body)

    def _of_objects(
        self, method: str, path: str, query: dict[str, list[str]], body: Object | None
    ) -> tuple[int, Object]:
        existing = self.objects.get(path)
        if method == "POST":
            return self._create(f"{path}/{(body or {})['metadata']['name']}", body or {})
        if method == "PATCH":
            return self._apply(path, body or {})
        if method == "GET" and existing is None and self._is_collection(path):
            return OK, {"kind": "List", "items": self._listed(path, query)}
        if existing is None:
            return _failure(404, "NotFound", f"there is no {path}")
        if method == "DELETE":
            uid = ((body or {}).get("preconditions") or {}).get("uid")
            if uid not in (None, existing["metadata"]["uid"]):
                return _failure(409, "Conflict", "it is another one by now")
            self._delete(path, existing)
        return OK, copied(existing)

    def _is_collection(self, path: str) -> bool:
        return any(path.rpartition("/")[2] == each["name"] for served in SERVED.values() for each in served)

    def _listed(self, path: str, query: dict[str, list[str]]) -> list[Object]:
        wanted = dict(each.split("=") for each in query.get("labelSelector", []))
        within = [obj for at, obj in sorted(self.objects.items()) if at.rpartition("/")[0] == path]
        return [copied(obj) for obj in within if wanted.items() <= (obj["metadata"].get("labels") or {}).items()]

    def _create(self, path: str, body: Object) -> tuple[int, Object]:
        if path in self.objects:
            return _failure(409, "AlreadyExists", f"{path} already exists")
        self.objects[path] = copied(body)
        self.objects[path]["metadata"]["uid"] = str(uuid.uuid4())
        if "/namespaces/" in path and path.count("/") == 4:
            self.objects[path]["status"] = {"phase": "Active"}
        return CREATED, copied(self.objects[path])

    def _apply(self, path: str, body: Object) -> tuple[int, Object]:
        """As server-side apply by the only one who applies: what is named is set, and what was named before and is not
        any more goes. Labels and annotations of others stay."""
        existing = self.objects.get(path)
        if existing is None:
            return self._create(path, {**body, "applied": copied(body)})
        before = existing.get("applied") or {}
        for part in ("labels", "annotations"):
            kept = {
                key: value
                for key, value in (existing["metadata"].get(part) or {}).items()
                if key not in (before.get("metadata", {}).get(part) or {})
            }
            existing["metadata"][part] = {**kept, **(body["metadata"].get(part) or {})}
        existing.update({key: value for key, value in body.items() if key != "metadata"}, applied=copied(body))
        return OK, copied(existing)

    def _delete(self, path: str, existing: Object) -> None:
        if self.slow_to_go and path.startswith("/api/v1/namespaces/") and path.count("/") == 4:
            existing["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            existing["status"] = {"phase": "Terminating"}
        else:
            self._drop(path)

    def _drop(self, path: str) -> None:
        """A namespace takes along what is in it."""
        name = path.rpartition("/")[2]
        inside = [at for at in self.objects if f"/namespaces/{name}/" in at] if path.count("/") == 4 else []
        for at in (path, *inside):
            del self.objects[at]


def _failure(status: int, reason: str, message: str) -> tuple[int, Object]:
    return status, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}


class KubeApi:
    """`ClusterApi` without a network. With `broken` set, nothing gets through."""

    def __init__(self, kube: Kube, broken: UpstreamError | None = None) -> None:
        self._kube = kube
        self._broken = broken

    async def get(self, path: str) -> Object:
        return self._ask("GET", path)

    async def create(self, path: str, body: Object) -> Object:
        return self._ask("POST", path, body)

    async def apply(self, path: str, body: Object) -> Object:
        return self._ask("PATCH", path, body)

    async def delete(self, path: str, body: Object | None = None) -> Object:
        return self._ask("DELETE", path, body)

    def _ask(self, method: str, path: str, body: Object | None = None) -> Object:
        if self._broken is not None:
            raise self._broken
        status, answer = self._kube.asked(method, path, body)
        if status >= 400:
            raise FarError(status, answer["reason"], answer["message"])
        return answer


def kube_answering(kube: Kube) -> Answering:
    """What a FarSide answers with this Kubernetes."""

    def answering(asked: Asked) -> Answer:
        body = json.loads(asked.body) if asked.body else None
        status, answer = kube.asked(asked.method, asked.target, body)
        return as_json(answer, status)

    return answering
