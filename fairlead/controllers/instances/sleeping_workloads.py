"""Stops and starts what runs in the namespace of a space or virtual cluster, with the stored credential of its cluster.

| object | asleep | awake again |
|---|---|---|
| namespace | a ResourceQuota that allows no pods, before anything else | deleted, before anything else |
| Deployment, StatefulSet, ReplicaSet | no replicas; their number in an annotation | as before |
| DaemonSet | a node selector that no node has, besides its own | without it |
| CronJob, Job | suspended, and marked | resumed, if marked |
| pod that none of these controls | runs on and is reported, or is deleted by policy | |

Every change is one request that takes an object from one valid state to the other, and every function can be repeated:
a server that is interrupted between any two of them goes on, or back, from there. A number of replicas is saved only
if it is not zero, so that a repetition does not save the zero of the sleep.

What another object controls, such as an operator, is left to it: it would be scaled up again at once. Users of the
namespace can write these annotations as well. They decide nothing that their writers could not do themselves.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlencode

from fairlead.controllers.instances.remote_errors import unexpected_response
from fairlead.controllers.instances.remote_namespace import (
    NAMESPACES_PATH,
    RemoteNamespace,
    is_owned_by,
    list_items,
    uid_precondition,
    url_segment,
)
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, annotations_of, get_path, name_of
from fairlead.domain import open_source_chart
from fairlead.domain.sleep_mode import PREFIX
from fairlead.upstream.kube_client import CONFLICT, NOT_FOUND, KubeApi, RemoteApiError, delete_if_exists, get_or_none

QUOTA_NAME = "service.sh-sleep"
REPLICAS, SUSPENDED = f"{PREFIX}replicas", f"{PREFIX}suspended"
"""Annotations of stopped objects: how many replicas a workload had, and that the server has suspended a job."""
NODE_KEY = f"{PREFIX}asleep"
"""The key of the node selector that no node has."""
RELEASE_ANNOTATION = "meta.helm.sh/release-name"
PAGE_ITEMS = 500
MAX_PAGES = 200
"""Of one list: a namespace with more objects than that is not put to sleep."""
MAX_REPLICAS_DIGITS = 6
CONFLICT_ATTEMPTS = 5
DRY_RUN: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}
"""Nothing is deleted, but the permission is checked, also if there is nothing to delete."""


DEPLOYMENTS, STATEFUL_SETS = "apps/v1/deployments", "apps/v1/statefulsets"
REPLICA_SETS, DAEMON_SETS = "apps/v1/replicasets", "apps/v1/daemonsets"
CRON_JOBS, JOBS = "batch/v1/cronjobs", "batch/v1/jobs"
SCALED = (DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS)
_KINDS = {
    DEPLOYMENTS: "Deployment",
    STATEFUL_SETS: "StatefulSet",
    REPLICA_SETS: "ReplicaSet",
    DAEMON_SETS: "DaemonSet",
    CRON_JOBS: "CronJob",
    JOBS: "Job",
}

Edit = Callable[[Object], Object | None]
"""The merge patch for an object in its current state; None if nothing is to be done."""


@dataclass(frozen=True, slots=True)
class SleepProgress:
    """`running` are pods that are still to end, `retained` those that run on."""

    running: Sequence[str] = ()
    retained: Sequence[str] = ()


@dataclass(slots=True)
class SleepingNamespace:
    """The namespace of one instance. `release` is the Helm release of a virtual cluster, which is stopped before
    everything else, and its store after it. All methods raise RemoteApiError, UpstreamError and InstanceError."""

    api: KubeApi
    target: RemoteNamespace
    now: datetime
    release: str = ""
    deletes_bare_pods: bool = False
    _stopped: set[str] = field(default_factory=set)
    """The uids of controllers whose pods end."""

    async def exists(self) -> bool:
        """Whether the namespace exists and belongs to the instance. Otherwise nothing in it is changed."""
        found = await get_or_none(self.api, self.target.path)
        return found is not None and is_owned_by(found, self.target)

    async def check_permissions(self) -> None:
        """Raises RemoteApiError with 403 if the stored credential may not begin to put the namespace to sleep, or could
        not go back. Changes nothing. Whether it may change the workloads turns out when they are changed."""
        if not await self.exists():
            return
        quota = self._path(QUOTA_NAME, "v1/resourcequotas")
        await self.api.check_apply(quota, self._build_quota())
        await delete_if_exists(self.api, quota, DRY_RUN)
        for path in (*_KINDS, "v1/pods"):
            await get_or_none(self.api, f"{self._path('', path)}?limit=1")

    async def find_running_jobs(self) -> list[str]:
        return [_title(JOBS, each) async for each in self._list(JOBS) if _is_running_job(each)]

    async def find_volatile_store(self) -> str:
        """The workload of the virtual cluster that loses its data when it stops; empty if there is none."""
        workloads = [pair async for pair in self._release_workloads()]
        stores = [pair for pair in workloads if self._is_store(pair[1])]
        for path, each in stores or workloads:
            if not _keeps_data(each):
                return _title(path, each)
        return ""

    async def put_to_sleep(self) -> SleepProgress:
        """Stops what runs, as far as that is possible now. It sleeps as soon as nothing of it is running."""
        self._stopped.clear()
        await self.api.apply(self._path(QUOTA_NAME, "v1/resourcequotas"), self._build_quota())
        if self.release:
            for stops in (self._stop_control_plane, self._stop_store):
                await stops()
                running = (await self._sort_pods()).running
                if running:
                    return SleepProgress(running)
            await self._delete_synced_pods()
        await self._stop_workloads()
        async for each in self._list(DAEMON_SETS):
            if not _controller(each):
                await self._stop_one(DAEMON_SETS, each, _unplace)
        for path in (CRON_JOBS, JOBS):
            async for each in self._list(path):
                await self._stop_one(path, each, _suspend)
        return await self._sort_pods(delete_bare=self.deletes_bare_pods)

    async def wake(self) -> None:
        """Starts what was stopped. Repeatable, and right after every part of `put_to_sleep`."""
        await delete_if_exists(self.api, self._path(QUOTA_NAME, "v1/resourcequotas"))
        stores = [pair async for pair in self._release_workloads() if self._is_store(pair[1])]
        for path, each in stores:
            await self._edit(path, each, _restore)
        for path in reversed(SCALED):
            await self._edit_all(path, _restore)
        await self._edit_all(DAEMON_SETS, _place)
        await self._edit_all(CRON_JOBS, _resume)
        await self._edit_all(JOBS, _resume)

    async def find_resumed(self) -> list[str]:
        """Workloads that others have scaled up while they were asleep."""
        found = []
        for path in SCALED:
            found += [_title(path, each) async for each in self._list(path) if _mark(each) and _replicas(each)]
        return found

    async def _stop_control_plane(self) -> None:
        async for path, each in self._release_workloads():
            if not self._is_store(each):
                await self._stop_one(path, each, self._pause)

    async def _stop_store(self) -> None:
        async for path, each in self._release_workloads():
            if self._is_store(each):
                await self._stop_one(path, each, _stop)

    async def _stop_workloads(self) -> None:
        for path in SCALED:
            async for each in self._list(path):
                if path == REPLICA_SETS and _controller(each) in self._stopped:
                    self._stopped.add(_uid(each))  # that of a Deployment
                elif not _controller(each):
                    await self._stop_one(path, each, _stop)

    async def _stop_one(self, path: str, obj: Object, edit: Edit) -> None:
        self._stopped.add(_uid(obj))
        await self._edit(path, obj, edit)

    def _pause(self, obj: Object) -> Object | None:
        """As the command line of the open-source chart does it, so that it also resumes it."""
        patch = _stop(obj)
        if patch is not None:
            patch["metadata"]["annotations"] |= {
                open_source_chart.PAUSED_ANNOTATION: "true",
                open_source_chart.PAUSED_REPLICAS_ANNOTATION: str(_replicas(obj)),
                open_source_chart.PAUSED_DATE_ANNOTATION: timestamp(self.now),
            }
        return patch

    async def _delete_synced_pods(self) -> None:
        """Only after the control plane has stopped: it would create them again."""
        selector = f"{open_source_chart.SYNCED_POD_LABEL}={self.release}"
        async for pod in self._list("v1/pods", labelSelector=selector):
            await delete_if_exists(self.api, self._path(name_of(pod), "v1/pods"), uid_precondition(pod))

    async def _release_workloads(self) -> AsyncIterator[tuple[str, Object]]:
        """The workloads of the virtual cluster itself, not those of other releases in the namespace."""
        if not self.release:
            return
        for path in (DEPLOYMENTS, STATEFUL_SETS):
            async for each in self._list(path):
                if annotations_of(each).get(RELEASE_ANNOTATION) == self.release:
                    yield path, each

    def _is_store(self, workload: Object) -> bool:
        return name_of(workload) == f"{self.release}{open_source_chart.EXTERNAL_STORE_SUFFIX}"

    async def _sort_pods(self, *, delete_bare: bool = False) -> SleepProgress:
        """Pods that still end, and those that run on. In the middle of `put_to_sleep`, the latter may still be
        stopped."""
        await self._find_stopped_replica_sets()
        running: list[str] = []
        retained: list[str] = []
        async for pod in self._list("v1/pods"):
            if get_path(pod, "status.phase") in ("Succeeded", "Failed"):
                continue
            is_ending = _controller(pod) in self._stopped or "deletionTimestamp" in pod["metadata"]
            if not is_ending and delete_bare and not _controller(pod):
                await delete_if_exists(self.api, self._path(name_of(pod), "v1/pods"), uid_precondition(pod))
                is_ending = True
            (running if is_ending else retained).append(f"pod {name_of(pod)}")
        return SleepProgress(sorted(running), sorted(retained))

    async def _find_stopped_replica_sets(self) -> None:
        async for each in self._list(REPLICA_SETS):
            if _controller(each) in self._stopped:
                self._stopped.add(_uid(each))

    async def _edit_all(self, path: str, edit: Edit) -> None:
        async for each in self._list(path):
            await self._edit(path, each, edit)

    async def _edit(self, path: str, obj: Object, edit: Edit) -> None:
        """Patches the object, if it is still as it was read. Otherwise it is read again."""
        place = self._path(name_of(obj), path)
        for attempt in range(CONFLICT_ATTEMPTS):
            patch = edit(obj)
            if patch is None:
                return
            patch["metadata"]["resourceVersion"] = get_path(obj, "metadata.resourceVersion")
            try:
                await self.api.patch(place, patch)
            except RemoteApiError as error:
                if error.status == NOT_FOUND:
                    return
                if error.status != CONFLICT or attempt == CONFLICT_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(0)
                again = await get_or_none(self.api, place)
                if again is None:
                    return
                obj = again
            else:
                return

    async def _list(self, path: str, **query: str) -> AsyncIterator[Object]:
        """All objects of a resource in the namespace, page by page."""
        place = self._path("", path)
        more = ""
        for _ in range(MAX_PAGES):
            parameters = {"limit": str(PAGE_ITEMS), **query, **({"continue": more} if more else {})}
            page = await get_or_none(self.api, f"{place}?{urlencode(parameters)}")
            if page is None:  # the cluster does not serve it
                return
            for each in list_items(page, "items"):
                if not isinstance(get_path(each, "metadata.name"), str):
                    raise unexpected_response("an object without a name")
                yield each
            more = str(get_path(page, "metadata.continue") or "")
            if not more:
                return
        raise unexpected_response(f"more than {PAGE_ITEMS * MAX_PAGES} objects in one namespace")

    def _path(self, name: str, resource: str) -> str:
        """`resource` with its group and version, such as `apps/v1/deployments`."""
        version, _, plural = resource.rpartition("/")
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        base = f"{root}{NAMESPACES_PATH.removeprefix('/api/v1')}/{url_segment(self.target.namespace)}/{plural}"
        return f"{base}/{url_segment(name)}" if name else base

    def _build_quota(self) -> Object:
        meta = {
            "name": QUOTA_NAME,
            "namespace": self.target.namespace,
            "labels": self.target.with_ownership_labels(None),
        }
        return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": "0"}}}


def _stop(obj: Object) -> Object | None:
    replicas = _replicas(obj)
    if not replicas:
        return None
    return {"metadata": {"annotations": {REPLICAS: str(replicas)}}, "spec": {"replicas": 0}}


def _restore(obj: Object) -> Object | None:
    mark = _mark(obj)
    if not mark:
        return None
    paused = {
        open_source_chart.PAUSED_ANNOTATION: None,
        open_source_chart.PAUSED_REPLICAS_ANNOTATION: None,
        open_source_chart.PAUSED_DATE_ANNOTATION: None,
    }
    removed: dict[str, None] = {REPLICAS: None, **paused}
    is_number = mark.isascii() and mark.isdecimal() and len(mark) <= MAX_REPLICAS_DIGITS
    if _replicas(obj) or not is_number:  # others have started it, or have written the annotation
        return {"metadata": {"annotations": removed}}
    return {"metadata": {"annotations": removed}, "spec": {"replicas": int(mark)}}


def _unplace(obj: Object) -> Object | None:
    if NODE_KEY in (get_path(obj, "spec.template.spec.nodeSelector") or {}):
        return None
    return {"metadata": {}, "spec": {"template": {"spec": {"nodeSelector": {NODE_KEY: "true"}}}}}


def _place(obj: Object) -> Object | None:
    if NODE_KEY not in (get_path(obj, "spec.template.spec.nodeSelector") or {}):
        return None
    return {"metadata": {}, "spec": {"template": {"spec": {"nodeSelector": {NODE_KEY: None}}}}}


def _suspend(obj: Object) -> Object | None:
    """Jobs that are over stay as they are."""
    if _is_finished(obj) or get_path(obj, "spec.suspend"):
        return None
    return {"metadata": {"annotations": {SUSPENDED: "true"}}, "spec": {"suspend": True}}


def _resume(obj: Object) -> Object | None:
    if SUSPENDED not in annotations_of(obj):
        return None
    return {"metadata": {"annotations": {SUSPENDED: None}}, "spec": {"suspend": False}}


def _is_running_job(job: Object) -> bool:
    return bool(get_path(job, "status.active")) and not get_path(job, "spec.suspend") and not _is_finished(job)


def _is_finished(job: Object) -> bool:
    conditions = get_path(job, "status.conditions")
    found = conditions if isinstance(conditions, list) else []
    return any(
        isinstance(each, dict) and each.get("type") in ("Complete", "Failed") and each.get("status") == "True"
        for each in found
    )


def _keeps_data(workload: Object) -> bool:
    """Whether its data survives its pods: on the claim at the data path, or, without such a path, on any claim."""
    pod = get_path(workload, "spec.template.spec") or {}
    volumes = _dicts(get_path(pod, "volumes"))
    claimed = {str(each.get("name")) for each in volumes if each.get("persistentVolumeClaim")}
    templates = _dicts(get_path(workload, "spec.volumeClaimTemplates"))
    claimed |= {str(get_path(each, "metadata.name")) for each in templates}
    mounts = [mount for each in _dicts(get_path(pod, "containers")) for mount in _dicts(each.get("volumeMounts"))]
    data = {str(each.get("name")) for each in mounts if each.get("mountPath") == open_source_chart.DATA_PATH}
    return bool(data & claimed) if data else bool(claimed)


def _dicts(value: object) -> Iterable[Object]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _replicas(obj: Object) -> int:
    found = get_path(obj, "spec.replicas")
    return found if isinstance(found, int) else 1  # the default of the API server


def _mark(obj: Object) -> str:
    return str(annotations_of(obj).get(REPLICAS) or "")


def _uid(obj: Object) -> str:
    return str(get_path(obj, "metadata.uid") or "")


def _controller(obj: Object) -> str:
    """The uid of the object that controls this one; empty if nothing does."""
    owners = _dicts(get_path(obj, "metadata.ownerReferences"))
    return next((str(each.get("uid")) for each in owners if each.get("controller")), "")


def _title(path: str, obj: Object) -> str:
    return f"{_KINDS[path]} {name_of(obj)}"
