"""A Kubernetes in memory, as far as namespaces, RoleBindings, Secrets, ConfigMaps and their like go.

`Kube.asked` is what an API server does with a request. `KubeApi` asks it from within the test, with the methods of
`ClusterApi`; `kube_answering` lets a FakeCluster answer with it, over TLS.
"""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from fairlead.core.objects import Object, deep_copy
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import RemoteApiError
from tests.fake_cluster.exchange import Answer, Answering, RecordedRequest, as_json
from tests.fake_cluster.kube_rbac import find_insecurity, find_refusal, refuse_impersonation
from tests.fake_cluster.kube_watch import History, is_within, matches

SERVED = {
    "/api/v1": [
        {"name": "namespaces", "kind": "Namespace", "namespaced": False},
        {"name": "secrets", "kind": "Secret", "namespaced": True},
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
        {"name": "configmaps/status", "kind": "ConfigMap", "namespaced": True},
        {"name": "pods", "kind": "Pod", "namespaced": True},
        {"name": "resourcequotas", "kind": "ResourceQuota", "namespaced": True},
    ],
    "/apis/apiextensions.k8s.io/v1": [
        {"name": "customresourcedefinitions", "kind": "CustomResourceDefinition", "namespaced": False},
    ],
    "/apis/rbac.authorization.k8s.io/v1": [
        {"name": "rolebindings", "kind": "RoleBinding", "namespaced": True},
        {"name": "clusterrolebindings", "kind": "ClusterRoleBinding", "namespaced": False},
    ],
}
OK, CREATED = 200, 201
ROLE_REF = "roleRef: Invalid value: cannot change roleRef"
IMMUTABLE = "data: Forbidden: field is immutable when `immutable` is set"


@dataclass
class Kube:
    """`objects` are by their path. `slow_to_go`: deleted namespaces stay until `finish` is called."""

    objects: dict[str, Object] = field(default_factory=dict)
    log: list[tuple[str, str]] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    """Parts of paths that are answered with a status of failure."""
    answers: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    """What applies to these paths are answered with: status, reason and message."""
    holdup: list[Object] = field(default_factory=list)
    """Conditions that namespaces have while they are being deleted."""
    slow_to_go: bool = False
    deaf_for: int = 0
    """How many more requests the authorizer answers without having heard of the newest bindings."""
    may_impersonate: bool = True
    """Whether the stored credential may."""
    acted: list[tuple[str, str, str]] = field(default_factory=list)
    """Who else than the stored credential asked, with method and path."""
    history: History = field(default_factory=History)

    def put(self, path: str, **fields: Any) -> Object:
        """Lets something be there that nobody has asked for."""
        name = path.rpartition("/")[2]
        meta = {"name": name, "uid": str(uuid.uuid4()), **fields.pop("metadata", {})}
        if "/namespaces/" in path and not _is_namespace(path):
            meta.setdefault("namespace", path.partition("/namespaces/")[2].partition("/")[0])
        self.objects[path] = {"metadata": meta, **fields}
        self._note(path, None)
        return self.objects[path]

    def edit(self, path: str, change: Callable[[Object], object]) -> None:
        """Somebody else changes an object. What is done to `objects` itself, no watch tells of."""
        before = deep_copy(self.objects[path]["metadata"])
        change(self.objects[path])
        entry = {"manager": "kubectl-edit", "operation": "Update", "time": _time(self.history.version + 1)}
        managers = [each for each in before.get("managedFields", []) if each["manager"] != "kubectl-edit"]
        self.objects[path]["metadata"]["managedFields"] = [*managers, entry]
        self._note(path, before)

    def _note(self, path: str, before: Object | None) -> None:
        """A write is a new version, which watches tell of."""
        self.objects[path]["metadata"]["resourceVersion"] = self.history.next()
        self.history.note(path, before, self.objects[path]["metadata"])

    def finish(self) -> None:
        """Whatever is being deleted is gone now."""
        gone = [path for path, obj in self.objects.items() if "deletionTimestamp" in obj["metadata"]]
        for path in gone:
            self._drop(path)

    def asked(self, method: str, target: str, body: Object | None = None, acting_as: str = "") -> tuple[int, Object]:
        parts = urlsplit(target)
        path = unquote(parts.path)
        self.log.append((method, target))
        status, refusal = self.refusal(path) if not acting_as else self._refuse_user(acting_as, method, path, body)
        if not status and method == "PATCH" and (why := find_insecurity(self.objects, path, body or {})):
            status, refusal = _failure(403, "Forbidden", why)
        if status:
            return status, refusal
        if method == "GET" and path == "/version":
            return OK, {"gitVersion": "v1.34.1"}
        if method == "GET" and path in SERVED:
            return OK, {"kind": "APIResourceList", "resources": SERVED[path]}
        return self._of_objects(method, path, parse_qs(parts.query), body)

    def _refuse_user(self, user: str, method: str, path: str, body: Object | None) -> tuple[int, Object]:
        self.acted.append((user, method, path))
        if not self.may_impersonate:
            return _failure(403, "Forbidden", refuse_impersonation(user))
        known = self.objects if not self.deaf_for else {}
        self.deaf_for = max(0, self.deaf_for - 1)
        why = find_refusal(known, user, method, path, body or {})
        return _failure(403, "Forbidden", why) if why else self.refusal(path)

    def refusal(self, path: str) -> tuple[int, Object]:
        for part, status in self.refused.items():
            if part in path:
                return _failure(status, "Refused", "as the test wants it")
        return 0, {}

    def _of_objects(
        self, method: str, path: str, query: dict[str, list[str]], body: Object | None
    ) -> tuple[int, Object]:
        existing = self.objects.get(path)
        if method == "POST":
            return self._create(f"{path}/{(body or {})['metadata']['name']}", body or {})
        if method == "PATCH" and path in self.answers:
            return _failure(*self.answers[path])
        if method == "PATCH":
            return self._apply(path, body or {})
        if method == "GET" and existing is None and self._is_collection(path):
            listed = {"kind": "List", "metadata": {"resourceVersion": str(self.history.version)}}
            return OK, {**listed, "items": self._listed(path, query)}
        if existing is None:
            return _failure(404, "NotFound", f"there is no {path}")
        if method == "DELETE":
            uid = ((body or {}).get("preconditions") or {}).get("uid")
            if uid not in (None, existing["metadata"]["uid"]):
                return _failure(409, "Conflict", "it is another one by now")
            self._delete(path, existing)
        return OK, deep_copy(existing)

    def _is_collection(self, path: str) -> bool:
        return any(path.rpartition("/")[2] == each["name"] for served in SERVED.values() for each in served)

    def _listed(self, path: str, query: dict[str, list[str]]) -> list[Object]:
        selector = query.get("labelSelector", [""])[0]
        within = [obj for at, obj in sorted(self.objects.items()) if is_within(at, path)]
        return [deep_copy(obj) for obj in within if matches(selector, obj["metadata"])]

    def _create(self, path: str, body: Object) -> tuple[int, Object]:
        if path in self.objects:
            return _failure(409, "AlreadyExists", f"{path} already exists")
        self.objects[path] = deep_copy(body)
        self.objects[path]["metadata"]["uid"] = str(uuid.uuid4())
        if _is_namespace(path):
            self.objects[path]["status"] = {"phase": "Active"}
        elif "/namespaces/" in path:
            self.objects[path]["metadata"]["namespace"] = path.partition("/namespaces/")[2].partition("/")[0]
        self._note(path, None)
        return CREATED, deep_copy(self.objects[path])

    def _apply(self, path: str, body: Object) -> tuple[int, Object]:
        """As server-side apply by the only one who applies: what is named is set, and what was named before and is not
        any more goes. Labels and annotations of others stay. Where nothing changes by it, there is no new version, and
        the time of the field manager stays as it was."""
        existing = self.objects.get(path)
        if existing is None:
            meta = {**body["metadata"], "managedFields": [_applied_by(self.history.version + 1, body)]}
            return self._create(path, {**body, "metadata": meta, "applied": deep_copy(body)})
        if existing.get("roleRef", body.get("roleRef")) != body.get("roleRef"):
            return _failure(422, "Invalid", f'{body["kind"]} "{body["metadata"]["name"]}" is invalid: {ROLE_REF}')
        if existing.get("immutable") and any(existing.get(part) != body.get(part) for part in ("data", "immutable")):
            return _failure(422, "Invalid", f'{body["kind"]} "{body["metadata"]["name"]}" is invalid: {IMMUTABLE}')
        was = deep_copy(existing)
        before = existing.get("applied") or {}
        for part in ("labels", "annotations"):
            kept = {
                key: value
                for key, value in (existing["metadata"].get(part) or {}).items()
                if key not in (before.get("metadata", {}).get(part) or {})
            }
            existing["metadata"][part] = {**kept, **(body["metadata"].get(part) or {})}
            if not existing["metadata"][part]:
                del existing["metadata"][part]
        existing.update({key: value for key, value in body.items() if key != "metadata"}, applied=deep_copy(body))
        if existing != was:
            others = [each for each in was["metadata"].get("managedFields", []) if each["operation"] != "Apply"]
            existing["metadata"]["managedFields"] = [_applied_by(self.history.version + 1, body), *others]
            self._note(path, was["metadata"])
        return OK, deep_copy(existing)

    def _delete(self, path: str, existing: Object) -> None:
        if self.slow_to_go and _is_namespace(path):
            before = deep_copy(existing["metadata"])
            existing["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            existing["status"] = {"phase": "Terminating", "conditions": self.holdup}
            self._note(path, before)
        else:
            self._drop(path)

    def _drop(self, path: str) -> None:
        """A namespace takes along what is in it."""
        name = path.rpartition("/")[2]
        inside = [at for at in self.objects if f"/namespaces/{name}/" in at] if _is_namespace(path) else []
        for at in (*inside, path):
            gone = self.objects.pop(at)
            self.history.next()
            self.history.note(at, gone["metadata"], None)


def _is_namespace(path: str) -> bool:
    return path.startswith("/api/v1/namespaces/") and path.count("/") == 4


def _time(version: int) -> str:
    """Each version has a second of its own, so that those who compare times see every change."""
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=version)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _applied_by(version: int, body: Object) -> Object:
    labels: Object = {f"f:{key}": {} for key in body["metadata"].get("labels") or {}}
    entry = {"manager": "fairlead", "operation": "Apply", "time": _time(version)}
    return {**entry, "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": labels}}}


def _failure(status: int, reason: str, message: str) -> tuple[int, Object]:
    return status, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}


class KubeApi:
    """`ClusterApi` without a network. With `broken` set, nothing gets through."""

    def __init__(self, kube: Kube, broken: UpstreamError | None = None, acting_as: str = "") -> None:
        self._kube = kube
        self._broken = broken
        self._acting_as = acting_as

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
        status, answer = self._kube.asked(method, path, body, self._acting_as)
        if status >= 400:
            raise RemoteApiError(status, answer["reason"], answer["message"])
        return answer


def kube_answering(kube: Kube) -> Answering:
    """What a FakeCluster answers with this Kubernetes."""

    def answering(asked: RecordedRequest) -> Answer:
        body = json.loads(asked.body) if asked.body else None
        acting_as = dict(asked.headers).get("impersonate-user", "")
        status, answer = kube.asked(asked.method, asked.target, body, acting_as)
        return as_json(answer, status)

    return answering
