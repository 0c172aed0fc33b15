"""The server, as a runner sees it, in memory: objects, a watch, a Lease, and connections that break."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from fairlead.client import ApiStatusError, Event, Unreachable
from fairlead.client.watch import ADDED, DELETED, MODIFIED, SYNCED
from fairlead.core.objects import Object, deep_copy, metadata
from fairlead.runner.api import RunnerApi

NAMESPACE = "service-p-web"


class FakeApi(RunnerApi):
    """All methods are its own: it has no client."""

    def __init__(self) -> None:
        self.workspaces: dict[str, Object] = {}
        self.events: list[tuple[str, str, str]] = []
        self.lease: Object | None = None
        self.runner: Object = {}
        self.is_reachable = True
        self.request_seconds = 0.0
        self.patches = 0
        self.credentials: Object = {}
        self.credentials_error: ApiStatusError | None = None
        self.credential_requests: list[tuple[str, str, str]] = []
        self._watchers: list[asyncio.Queue[Event | None]] = []
        self._version = 0

    # --- what users do ------------------------------------------------------------------------------------------------

    def create(
        self, uid: str, name: str = "w", owner: str = "ada", namespace: str = NAMESPACE, **annotations: str
    ) -> None:
        meta = {"uid": uid, "name": name, "namespace": namespace, "generation": 1, "annotations": annotations}
        status = {"instance": {"provider": {"name": "fake"}}, "templateTrust": "Trusted"}
        self._put({"metadata": meta, "spec": {"owner": {"user": owner}}, "status": status}, ADDED)

    def change(self, uid: str, **parts: Any) -> None:
        workspace = deep_copy(self.workspaces[uid])
        for name, fields in parts.items():
            workspace[name] = {**workspace[name], **fields}
        self._put(workspace, MODIFIED)

    def annotate(self, uid: str, **annotations: str) -> None:
        known = metadata(self.workspaces[uid])["annotations"]
        self.change(uid, metadata={"annotations": {**known, **annotations}})

    def request_deletion(self, uid: str) -> None:
        """Like a user's delete: the object goes as soon as the runner reports that nothing is left."""
        if self.status(uid).get("lastWorkspaceStatus") in (None, "", "NotFound"):
            self.remove(uid)
        else:
            self.change(uid, metadata={"deletionTimestamp": "2026-01-02T03:04:05Z"})

    def remove(self, uid: str) -> None:
        self._publish(Event(DELETED, self.workspaces.pop(uid)))

    def status(self, uid: str) -> Object:
        found: Object = self.workspaces[uid].get("status") or {}
        return found

    def summary(self, uid: str) -> tuple[str, str, str]:
        """Phase, state of the container, and reason of the last task."""
        status = self.status(uid)
        conditions = status.get("conditions") or [{}]
        return status.get("phase") or "", status.get("lastWorkspaceStatus") or "", conditions[0].get("reason") or ""

    def disconnect(self) -> None:
        self.is_reachable = False
        for watcher in self._watchers:
            watcher.put_nowait(None)

    def reconnect(self) -> None:
        self.is_reachable = True

    def restore(self, *lost: str) -> None:
        """The server is restored from a backup that does not have these workspaces."""
        self.disconnect()
        for uid in lost:
            del self.workspaces[uid]
        self._version += 1_000_000_000
        self.reconnect()

    # --- RunnerApi ----------------------------------------------------------------------------------------------------

    async def get_runner(self) -> Object:
        self._require_connection()
        return self.runner

    async def get_config(self) -> Object:
        self._require_connection()
        return {"serviceInstanceID": "one"}

    async def report_runner(self, status: Object) -> None:
        self._require_connection()
        kept = self.runner.get("status") or {}
        new = status.get("conditions") or []
        types = {each["type"] for each in new}
        conditions = [each for each in kept.get("conditions") or [] if each["type"] not in types] + new
        self.runner = {"status": {**kept, **status, **({"conditions": conditions} if conditions else {})}}

    async def get_lease(self) -> Object | None:
        self._require_connection()
        return deep_copy(self.lease) if self.lease is not None else None

    def limit_requests(self, seconds: float) -> None:
        self.request_seconds = seconds

    async def put_lease(self, lease: Object) -> Object:
        self._require_connection()
        version = metadata(lease).get("resourceVersion")
        if version and self.lease is not None and version != metadata(self.lease)["resourceVersion"]:
            raise ApiStatusError(409, "Conflict", "the object has been modified")
        self._version += 1
        meta = {**metadata(lease), "resourceVersion": str(self._version)}
        self.lease = {**deep_copy(lease), "metadata": meta}
        return deep_copy(self.lease)

    async def patch_workspace(self, workspace: Object, patch: Object) -> Object:
        self._require_connection()
        uid = metadata(workspace)["uid"]
        if uid not in self.workspaces:
            raise ApiStatusError(404, "NotFound", "not found")
        assert patch["metadata"] == {"uid": uid}
        self.patches += 1
        current = deep_copy(self.workspaces[uid])
        conditions = {each["type"]: each for status in (current, patch) for each in _conditions(status)}
        current["status"] = {**current["status"], **patch["status"]}
        if conditions:
            current["status"]["conditions"] = list(conditions.values())
        self._put(current, MODIFIED)
        is_left = current["status"].get("lastWorkspaceStatus") not in (None, "", "NotFound")
        if "deletionTimestamp" in metadata(current) and not is_left:
            self.remove(uid)
        return current

    async def record_event(self, workspace: Object, reason: str, message: str, type: str) -> None:
        self._require_connection()
        self.events.append((metadata(workspace)["uid"], reason, type))

    async def get_credentials(self, workspace: Object, git_host: str, git_protocol: str, git_path: str = "") -> Object:
        self._require_connection()
        self.credential_requests.append((git_host, git_protocol, git_path))
        if self.credentials_error is not None:
            raise self.credentials_error
        return self.credentials

    async def get_git_credentials(self, workspace: Object, host: str, path: str) -> Object:
        self._require_connection()
        self.credential_requests.append((host, "session", path))
        if self.credentials_error is not None:
            raise self.credentials_error
        git: Object = self.credentials.get("gitCredentials") or {}
        return git

    async def watch_workspaces(self) -> AsyncIterator[Event]:
        self._require_connection()
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._watchers.append(queue)
        try:
            for workspace in list(self.workspaces.values()):
                yield Event(ADDED, workspace)
            yield Event(SYNCED, {"metadata": {"resourceVersion": str(self._version)}})
            while (event := await queue.get()) is not None:
                yield event
            raise Unreachable("the connection is broken")
        finally:
            self._watchers.remove(queue)

    def _require_connection(self) -> None:
        if not self.is_reachable:
            raise Unreachable("the connection is broken")

    def _put(self, workspace: Object, type: str) -> None:
        self._version += 1
        meta = {**metadata(workspace), "resourceVersion": str(self._version)}
        self.workspaces[meta["uid"]] = {**workspace, "metadata": meta}
        self._publish(Event(type, self.workspaces[meta["uid"]]))

    def _publish(self, event: Event) -> None:
        if self.is_reachable:
            for watcher in self._watchers:
                watcher.put_nowait(event)


def _conditions(obj: Object) -> list[Object]:
    """A strategic merge patch keeps those of other types."""
    found: list[Object] = obj["status"].get("conditions") or []
    return found
