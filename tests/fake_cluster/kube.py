"""An in-memory Kubernetes with namespaces, RoleBindings, Secrets, ConfigMaps and similar kinds.

`FakeKube.handle_request` does what an API server does with a request. `InMemoryClusterApi` calls it directly, with
the methods of `ClusterApi`; `build_kube_responder` serves it over TLS with a FakeCluster.
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
from fairlead.upstream.kube_client import MERGE_PATCH, RemoteApiError
from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, Responder, build_json_response
from tests.fake_cluster.kube_rbac import build_impersonation_error, find_pod_security_violation, find_rbac_violation
from tests.fake_cluster.kube_watch import History, is_within, matches_selector

API_RESOURCES = {
    "/api/v1": [
        {"name": "namespaces", "kind": "Namespace", "namespaced": False},
        {"name": "secrets", "kind": "Secret", "namespaced": True},
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
        {"name": "configmaps/status", "kind": "ConfigMap", "namespaced": True},
        {"name": "pods", "kind": "Pod", "namespaced": True},
        {"name": "services", "kind": "Service", "namespaced": True},
        {"name": "resourcequotas", "kind": "ResourceQuota", "namespaced": True},
        {"name": "persistentvolumeclaims", "kind": "PersistentVolumeClaim", "namespaced": True},
        {"name": "events", "kind": "Event", "namespaced": True},
        {"name": "serviceaccounts", "kind": "ServiceAccount", "namespaced": True},
    ],
    "/apis/apps/v1": [
        {"name": "deployments", "kind": "Deployment", "namespaced": True},
        {"name": "statefulsets", "kind": "StatefulSet", "namespaced": True},
        {"name": "replicasets", "kind": "ReplicaSet", "namespaced": True},
        {"name": "daemonsets", "kind": "DaemonSet", "namespaced": True},
    ],
    "/apis/batch/v1": [
        {"name": "cronjobs", "kind": "CronJob", "namespaced": True},
        {"name": "jobs", "kind": "Job", "namespaced": True},
    ],
    "/apis/coordination.k8s.io/v1": [
        {"name": "leases", "kind": "Lease", "namespaced": True},
    ],
    "/apis/discovery.k8s.io/v1": [
        {"name": "endpointslices", "kind": "EndpointSlice", "namespaced": True},
    ],
    "/apis/networking.k8s.io/v1": [
        {"name": "networkpolicies", "kind": "NetworkPolicy", "namespaced": True},
        {"name": "ingresses", "kind": "Ingress", "namespaced": True},
    ],
    "/apis/apiextensions.k8s.io/v1": [
        {"name": "customresourcedefinitions", "kind": "CustomResourceDefinition", "namespaced": False},
    ],
    "/apis/rbac.authorization.k8s.io/v1": [
        {"name": "roles", "kind": "Role", "namespaced": True},
        {"name": "rolebindings", "kind": "RoleBinding", "namespaced": True},
        {"name": "clusterrolebindings", "kind": "ClusterRoleBinding", "namespaced": False},
    ],
}
OK, CREATED = 200, 201
ROLE_REF_ERROR = "roleRef: Invalid value: cannot change roleRef"
IMMUTABLE_ERROR = "data: Forbidden: field is immutable when `immutable` is set"


@dataclass
class FakeKube:
    """`objects` by path. With `delays_deletion`, deleted namespaces stay until `finish_deletions` is called."""

    objects: dict[str, Object] = field(default_factory=dict)
    request_log: list[tuple[str, str]] = field(default_factory=list)
    failing_paths: dict[str, int] = field(default_factory=dict)
    """Parts of paths and the error status that requests for them get."""
    apply_failures: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    """The errors that server-side applies to these paths get: status, reason and message."""
    deletion_conditions: list[Object] = field(default_factory=list)
    """Conditions of namespaces that are being deleted."""
    delays_deletion: bool = False
    stale_rbac_requests: int = 0
    """How many more requests are authorized without the newest bindings."""
    can_impersonate: bool = True
    """Whether the stored credential can impersonate users."""
    impersonated_requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Requests of impersonated users: user, method and path."""
    history: History = field(default_factory=History)
    logs: dict[str, str] = field(default_factory=dict)
    """What containers have printed, by the path of the log without its query."""
    after_write: Callable[["FakeKube"], None] | None = None
    """Called after each write, as the controllers of a cluster act on it."""

    def add_object(self, path: str, **fields: Any) -> Object:
        """Adds an object without a request."""
        name = path.rpartition("/")[2]
        meta = {"name": name, "uid": str(uuid.uuid4()), **fields.pop("metadata", {})}
        if "/namespaces/" in path and not _is_namespace(path):
            meta.setdefault("namespace", path.partition("/namespaces/")[2].partition("/")[0])
        self.objects[path] = {"metadata": meta, **fields}
        self._record_change(path, None)
        return self.objects[path]

    def edit_object(self, path: str, change: Callable[[Object], object]) -> None:
        """Changes an object as another client would. Changes made directly in `objects` cause no watch event."""
        before = deep_copy(self.objects[path]["metadata"])
        change(self.objects[path])
        entry = {"manager": "kubectl-edit", "operation": "Update", "time": _format_time(self.history.version + 1)}
        managers = [each for each in before.get("managedFields", []) if each["manager"] != "kubectl-edit"]
        self.objects[path]["metadata"]["managedFields"] = [*managers, entry]
        self._record_change(path, before)

    def _record_change(self, path: str, before: Object | None) -> None:
        """Gives the object a new version and records the change for watches."""
        self.objects[path]["metadata"]["resourceVersion"] = self.history.increment_version()
        self.history.record(path, before, self.objects[path]["metadata"])

    def finish_deletions(self) -> None:
        """Removes everything that is being deleted."""
        removed = [path for path, obj in self.objects.items() if "deletionTimestamp" in obj["metadata"]]
        for path in removed:
            self.remove_object(path)

    def handle_request(
        self,
        method: str,
        target: str,
        body: Object | None = None,
        impersonated_user: str = "",
        content_type: str = "",
    ) -> tuple[int, Object]:
        """Answers a request. A PATCH is a server-side apply, unless `content_type` is that of merge patches."""
        answer = self._answer(method, target, body, impersonated_user, content_type)
        if method != "GET" and self.after_write is not None:
            self.after_write(self)
        return answer

    def _answer(
        self, method: str, target: str, body: Object | None, impersonated_user: str, content_type: str
    ) -> tuple[int, Object]:
        parts = urlsplit(target)
        path = unquote(parts.path)
        self.request_log.append((method, target))
        status, failure = (
            self.find_failure(path)
            if not impersonated_user
            else self._authorize_user(impersonated_user, method, path, body)
        )
        if (
            not status
            and method == "PATCH"
            and (message := find_pod_security_violation(self.objects, path, body or {}))
        ):
            status, failure = _build_failure(403, "Forbidden", message)
        if status:
            return status, failure
        if method == "PATCH" and content_type == MERGE_PATCH:
            return self._merge_patch(path, body or {})
        if method == "GET" and path == "/version":
            return OK, {"gitVersion": "v1.34.1"}
        if method == "GET" and path in API_RESOURCES:
            return OK, {"kind": "APIResourceList", "resources": API_RESOURCES[path]}
        return self._handle_object_request(method, path, parse_qs(parts.query), body)

    def _authorize_user(self, user: str, method: str, path: str, body: Object | None) -> tuple[int, Object]:
        self.impersonated_requests.append((user, method, path))
        if not self.can_impersonate:
            return _build_failure(403, "Forbidden", build_impersonation_error(user))
        if method == "GET" and path in API_RESOURCES:  # every user may discover what is served
            return self.find_failure(path)
        visible_objects = self.objects if not self.stale_rbac_requests else {}
        self.stale_rbac_requests = max(0, self.stale_rbac_requests - 1)
        message = find_rbac_violation(visible_objects, user, method, path, body or {})
        return _build_failure(403, "Forbidden", message) if message else self.find_failure(path)

    def find_failure(self, path: str) -> tuple[int, Object]:
        for part, status in self.failing_paths.items():
            if part in path:
                return _build_failure(status, "Refused", "refused by the test")
        return 0, {}

    def _handle_object_request(
        self, method: str, path: str, query: dict[str, list[str]], body: Object | None
    ) -> tuple[int, Object]:
        existing = self.objects.get(path)
        if method == "POST":
            return self._create(f"{path}/{(body or {})['metadata']['name']}", body or {})
        if method == "PATCH" and path in self.apply_failures:
            return _build_failure(*self.apply_failures[path])
        if method == "PATCH" and "dryRun" in query:
            return self._check_apply(existing, body or {})
        if method == "PATCH":
            return self._apply(path, body or {})
        if method == "GET" and existing is None and self._is_collection(path):
            return OK, self._list_page(path, query)
        if existing is None:
            return _build_failure(404, "NotFound", f"{path} not found")
        if method == "DELETE":
            uid = ((body or {}).get("preconditions") or {}).get("uid")
            if uid not in (None, existing["metadata"]["uid"]):
                return _build_failure(409, "Conflict", "the UID does not match")
            if (body or {}).get("dryRun") != ["All"]:
                self._delete(path, existing)
        return OK, deep_copy(existing)

    def _is_collection(self, path: str) -> bool:
        return any(path.rpartition("/")[2] == each["name"] for served in API_RESOURCES.values() for each in served)

    def _list_page(self, path: str, query: dict[str, list[str]]) -> Object:
        """With `limit`, a page; the token of the next one is the number of objects before it."""
        found = self._list_objects(path, query)
        start = int(query.get("continue", ["0"])[0])
        end = start + int(query["limit"][0]) if "limit" in query else len(found)
        more = {"continue": str(end)} if end < len(found) else {}
        meta = {"resourceVersion": str(self.history.version), **more}
        return {"kind": "List", "metadata": meta, "items": found[start:end]}

    def _list_objects(self, path: str, query: dict[str, list[str]]) -> list[Object]:
        selector = query.get("labelSelector", [""])[0]
        contained = [obj for object_path, obj in sorted(self.objects.items()) if is_within(object_path, path)]
        return [deep_copy(obj) for obj in contained if matches_selector(selector, obj["metadata"])]

    def _create(self, path: str, body: Object) -> tuple[int, Object]:
        if path in self.objects:
            return _build_failure(409, "AlreadyExists", f"{path} already exists")
        self.objects[path] = deep_copy(body)
        self.objects[path]["metadata"]["uid"] = str(uuid.uuid4())
        if _is_namespace(path):
            self.objects[path]["status"] = {"phase": "Active"}
        elif "/namespaces/" in path:
            self.objects[path]["metadata"]["namespace"] = path.partition("/namespaces/")[2].partition("/")[0]
        if "/deployments/" in path:
            self.objects[path]["metadata"]["generation"] = 1
        self._record_change(path, None)
        return CREATED, deep_copy(self.objects[path])

    def _apply(self, path: str, body: Object) -> tuple[int, Object]:
        """Server-side apply with a single applier: sets the fields of the body, and removes fields of the last body
        that are missing now. Labels and annotations of other managers stay. Without a change there is no new version,
        and the time of the field manager stays."""
        existing = self.objects.get(path)
        if existing is None and "uid" in body["metadata"]:
            message = f"uid mismatch: the provided object specified uid {body['metadata']['uid']}, and there is none"
            return _build_failure(409, "Conflict", message)
        if existing is None:
            meta = {**body["metadata"], "managedFields": [_build_managed_fields_entry(self.history.version + 1, body)]}
            return self._create(path, {**body, "metadata": meta, "applied": deep_copy(body)})
        if existing.get("roleRef", body.get("roleRef")) != body.get("roleRef"):
            return _build_failure(
                422, "Invalid", f'{body["kind"]} "{body["metadata"]["name"]}" is invalid: {ROLE_REF_ERROR}'
            )
        if existing.get("immutable") and any(existing.get(part) != body.get(part) for part in ("data", "immutable")):
            return _build_failure(
                422, "Invalid", f'{body["kind"]} "{body["metadata"]["name"]}" is invalid: {IMMUTABLE_ERROR}'
            )
        before_apply = deep_copy(existing)
        before = existing.get("applied") or {}
        for part in ("labels", "annotations"):
            retained = {
                key: value
                for key, value in (existing["metadata"].get(part) or {}).items()
                if key not in (before.get("metadata", {}).get(part) or {})
            }
            existing["metadata"][part] = {**retained, **(body["metadata"].get(part) or {})}
            if not existing["metadata"][part]:
                del existing["metadata"][part]
        existing.update({key: value for key, value in body.items() if key != "metadata"}, applied=deep_copy(body))
        if existing != before_apply:
            if "generation" in existing["metadata"] and existing.get("spec") != before_apply.get("spec"):
                existing["metadata"]["generation"] += 1
            other_entries = [
                each for each in before_apply["metadata"].get("managedFields", []) if each["operation"] != "Apply"
            ]
            existing["metadata"]["managedFields"] = [
                _build_managed_fields_entry(self.history.version + 1, body),
                *other_entries,
            ]
            self._record_change(path, before_apply["metadata"])
        return OK, deep_copy(existing)

    def _check_apply(self, existing: Object | None, body: Object) -> tuple[int, Object]:
        """Server-side apply of another manager, which is not stored: only sets the fields of the body."""
        return OK, _merge(deep_copy(existing or {}), body)

    def _merge_patch(self, path: str, patch: Object) -> tuple[int, Object]:
        existing = self.objects.get(path)
        if existing is None:
            return _build_failure(404, "NotFound", f"{path} not found")
        expected = patch.get("metadata", {}).get("resourceVersion")
        if expected not in (None, existing["metadata"].get("resourceVersion")):
            message = "the object has been modified; please apply your changes to the latest version"
            return _build_failure(409, "Conflict", message)
        before = deep_copy(existing)
        merged = _merge(existing, {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": expected}})
        merged["metadata"]["resourceVersion"] = before["metadata"].get("resourceVersion")
        if merged == before:
            return OK, deep_copy(existing)
        if "generation" in merged["metadata"] and merged.get("spec") != before.get("spec"):
            merged["metadata"]["generation"] += 1
        entry = {"manager": "fairlead", "operation": "Update", "time": _format_time(self.history.version + 1)}
        others = [each for each in before["metadata"].get("managedFields", []) if each["operation"] != "Update"]
        merged["metadata"]["managedFields"] = [*others, entry]
        self.objects[path] = merged
        self._record_change(path, before["metadata"])
        return OK, deep_copy(merged)

    def _delete(self, path: str, existing: Object) -> None:
        if self.delays_deletion and _is_namespace(path):
            before = deep_copy(existing["metadata"])
            existing["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            existing["status"] = {"phase": "Terminating", "conditions": self.deletion_conditions}
            self._record_change(path, before)
        else:
            self.remove_object(path)

    def remove_object(self, path: str) -> None:
        """Removes an object, and with a namespace its objects."""
        name = path.rpartition("/")[2]
        contained = (
            [object_path for object_path in self.objects if f"/namespaces/{name}/" in object_path]
            if _is_namespace(path)
            else []
        )
        for object_path in (*contained, path):
            removed = self.objects.pop(object_path)
            self.history.increment_version()
            self.history.record(object_path, removed["metadata"], None)


def _merge(target: Any, patch: Any) -> Any:
    """A merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def _is_namespace(path: str) -> bool:
    return path.startswith("/api/v1/namespaces/") and path.count("/") == 4


def _format_time(version: int) -> str:
    """A time that differs for each version, so that comparing times detects every change."""
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=version)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _build_managed_fields_entry(version: int, body: Object) -> Object:
    labels: Object = {f"f:{key}": {} for key in body["metadata"].get("labels") or {}}
    entry = {"manager": "fairlead", "operation": "Apply", "time": _format_time(version)}
    return {**entry, "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": labels}}}


def _build_failure(status: int, reason: str, message: str) -> tuple[int, Object]:
    return status, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}


class InMemoryClusterApi:
    """`ClusterApi` without a network. With `error` set, every request fails with it."""

    def __init__(self, kube: FakeKube, error: UpstreamError | None = None, impersonated_user: str = "") -> None:
        self._kube = kube
        self._error = error
        self._impersonated_user = impersonated_user

    async def get(self, path: str) -> Object:
        return self._send("GET", path)

    async def get_text(self, path: str) -> str:
        """The log of a container, with the query as a real cluster treats it: the last lines, and then the limit."""
        parts = urlsplit(path)
        pod = unquote(parts.path).removesuffix("/log")
        self._send("GET", pod)
        query = parse_qs(parts.query)
        lines = self._kube.logs[f"{pod}/log"].splitlines(keepends=True)[-int(query["tailLines"][0]) :]
        return "".join(lines)[: int(query["limitBytes"][0])]

    async def create(self, path: str, body: Object) -> Object:
        return self._send("POST", path, body)

    async def apply(self, path: str, body: Object) -> Object:
        return self._send("PATCH", path, body)

    async def check_apply(self, path: str, body: Object) -> Object:
        return self._send("PATCH", f"{path}?dryRun=All", body)

    async def patch(self, path: str, body: Object) -> Object:
        return self._send("PATCH", path, body, MERGE_PATCH)

    async def delete(self, path: str, body: Object | None = None) -> Object:
        return self._send("DELETE", path, body)

    def _send(self, method: str, path: str, body: Object | None = None, content_type: str = "") -> Object:
        if self._error is not None:
            raise self._error
        status, response = self._kube.handle_request(method, path, body, self._impersonated_user, content_type)
        if status >= 400:
            raise RemoteApiError(status, response["reason"], response["message"])
        return response


def build_kube_responder(kube: FakeKube) -> Responder:
    """Builds a responder that lets a FakeCluster serve this Kubernetes."""

    def respond(request: RecordedRequest) -> CannedResponse:
        body = json.loads(request.body) if request.body else None
        headers = dict(request.headers)
        impersonated_user = headers.get("impersonate-user", "")
        status, response = kube.handle_request(
            request.method, request.target, body, impersonated_user, headers.get("content-type", "")
        )
        return build_json_response(response, status)

    return respond
