"""Deploys runners into connected clusters: those whose `spec.clusterRef` an administrator has set.

Everything is applied with the stored credential of the cluster, repaired when others change it, and deleted with the
Runner, which a finalizer delays until then. The namespace is created unless it exists. An existing one is used only if
`spec.clusterRef.namespace` names it and nothing else of Fairlead owns it; it is not changed, and objects of others in
it that have the names of the runner's are never taken over.

`runners.py` maintains the rest of the status; both agree that the condition `Deployed` is set here while the cluster
that a Runner names exists.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

from fairlead.controllers.instances.applied_objects import RecordingApi
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.drift import DriftTracker
from fairlead.controllers.instances.prerequisites import CLUSTERS, find_cluster_blocker
from fairlead.controllers.instances.remote_errors import ERROR, FORBIDDEN, INFO, InstanceError, translate_errors
from fairlead.controllers.instances.remote_instance import (
    ABANDON_ANNOTATION,
    DELETION_POLL_SECONDS,
    is_abandoned,
    relevant_state,
)
from fairlead.controllers.instances.remote_names import MANAGED_LABEL, RUNNER_LABEL, ownership_labels
from fairlead.controllers.instances.remote_namespace import (
    DELETING,
    NAMESPACE_CONFLICT,
    RemoteNamespace,
    delete_namespace,
    ensure_namespace,
    get_or_none,
    is_owned_by,
    list_items,
    url_segment,
)
from fairlead.controllers.instances.remote_objects import RemoteObjects
from fairlead.controllers.runtime.backoff import REQUEUE_SECONDS, InstanceBackoff
from fairlead.controllers.runtime.loop import Requeue
from fairlead.controllers.workspaces.runner_manifests import (
    RunnerInputs,
    build_runner_objects,
    list_runner_objects,
    pod_labels,
)
from fairlead.controllers.workspaces.runner_rollout import PROGRESSING, find_rollout_problem
from fairlead.controllers.workspaces.runners import DEPLOYED
from fairlead.core.backoff import add_jitter
from fairlead.core.clock import timestamp
from fairlead.core.errors import ApiError, NotFound
from fairlead.core.objects import Object, get_path, has_finalizer, metadata, name_of, remove_finalizer
from fairlead.core.workspaces import DEPLOYMENT_FINALIZER, deployed_runner_name
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT, RUNNERS
from fairlead.registry.codec import decode
from fairlead.registry.conditions import TRUE, condition, find_condition, record_event, with_condition
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.upstream.kube_client import RemoteApiError

AVAILABLE, NOT_APPROVED = "Available", "NotApproved"
IMAGE_NOT_SET, PUBLIC_URL_NOT_SET, KEY_UNAVAILABLE = "ImageNotSet", "PublicUrlNotSet", "KeyUnavailable"
OBJECT_CONFLICT, ABANDONED = "ObjectConflict", "Abandoned"
RESYNC_SECONDS, ROLLOUT_SECONDS = 60.0, 5.0
"""How often a deployed runner is checked, and one whose Pod does not run yet. Watches do not show the status."""


@dataclass(frozen=True, slots=True)
class RunnerDeploymentConfig:
    """What the server's settings say about runners that it deploys, and how their keys are read."""

    api_group: str
    system_namespace: str
    """The namespace of the Secrets with the keys of runners."""
    public_url: str
    image: str
    pod_security: str
    """The enforced pod security level of namespaces that are created; empty for none."""
    read_authority: Callable[[], str]
    """The PEM of the server's CA; empty if clients trust its certificate anyway."""
    get_key: Callable[[str], Awaitable[str]]
    """The access key of a runner, created if there is none. Raises ApiError."""


class RunnerDeploymentController:
    name, workers = "runner-deployments", 8

    def __init__(self, registry: Registry, config: RunnerDeploymentConfig, clusters: ClusterAccess) -> None:
        group = config.api_group
        self.watches = ((group, RUNNERS), (group, CLUSTERS), ("", "secrets"))
        self._registry = registry
        self._config = config
        self._access = clusters
        self._runners = registry.resource(group, RUNNERS)
        self._clusters = registry.resource(group, CLUSTERS)
        self._drift = DriftTracker(registry, clusters.watch_sender, RUNNER_LABEL, (group, RUNNERS))
        self._backoff = InstanceBackoff(registry.clock)
        self._observed: dict[str, object] = {}
        """The relevant state of each cluster, as last observed."""

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Changes in remote clusters trigger a reconcile, too."""
        return self._drift.informers.subscribe(requeue)

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        if key[1] == RUNNERS:
            return (key,)
        if key[1] == CLUSTERS:
            state = relevant_state(CLUSTERS, decode(entry)) if entry is not None else None
            before = self._observed.pop(key[3], None)
            if state is not None:
                self._observed[key[3]] = state
            if state == before:
                return ()
            return [each.key for each in self._entries() if each.fields.get("spec.clusterRef.cluster") == key[3]]
        # The Secret with the key of a runner: the key was rotated.
        if key[2] != self._config.system_namespace or not RUNNER_COMPONENT.is_key_secret_name(key[3]):
            return ()
        return [each.key for each in self._entries() if RUNNER_COMPONENT.key_secret_name(each.key[3]) == key[3]]

    def _entries(self) -> list[Entry]:
        return self._registry.view.entries(self._config.api_group, RUNNERS)

    async def reconcile(self, key: Key) -> float | None:
        entry = self._runners.get_cached("", key[3])
        runner = decode(entry) if entry is not None else None
        if runner is None:
            self._forget(key)
            return None
        with self._drift.cluster_slot(runner, self.workers) as wait:
            return wait or await self._reconcile_runner(key, runner)

    def _forget(self, key: Key) -> None:
        self._drift.forget(key)
        self._backoff.forget(("", key[3]))

    async def _reconcile_runner(self, key: Key, runner: Object) -> float | None:
        is_marked = has_finalizer(runner, DEPLOYMENT_FINALIZER)
        if "deletionTimestamp" in metadata(runner):
            return await self._remove(runner) if is_marked else None
        cluster = self._find_cluster(runner)
        if cluster is None:
            self._forget(key)
            return None
        if not is_marked:
            message = (
                "spec.clusterRef was not set by an administrator, so nothing is deployed; an administrator removes it "
                "and sets it again, or the runner is started with `fairlead runner start`"
            )
            await self._report(runner, InstanceError(NOT_APPROVED, message, ERROR))
            return None
        inputs = metadata(runner)["uid"], metadata(runner).get("generation"), relevant_state(CLUSTERS, cluster)
        return self._backoff.remaining_seconds(("", name_of(runner)), inputs) or await self._deploy(
            runner, cluster, inputs
        )

    def _find_cluster(self, runner: Object) -> Object | None:
        """The cluster that the runner names, if it exists."""
        entry = self._clusters.get_cached("", get_path(runner, "spec.clusterRef.cluster") or "")
        return decode(entry) if entry is not None else None

    def _find_target(self, runner: Object) -> RemoteNamespace:
        ref = get_path(runner, "spec.clusterRef") or {}
        name = name_of(runner)
        labels = ownership_labels(RUNNER_LABEL, "", name, metadata(runner)["uid"])
        return RemoteNamespace(ref.get("cluster") or "", ref.get("namespace") or deployed_runner_name(name), labels)

    # --- deployment ---------------------------------------------------------------------------------------------------

    async def _deploy(self, runner: Object, cluster: Object, attempt: object) -> float | None:
        target = self._find_target(runner)
        backoff_key = ("", name_of(runner))
        try:
            if blocker := find_cluster_blocker(runner, cluster):
                raise blocker
            problem = await self._apply(runner, target, await self._collect_inputs(runner, target.namespace))
        except NotFound:  # it was deleted meanwhile
            return None
        except InstanceError as error:
            await self._report(runner, error)
            return self._backoff.record_failure(backoff_key, attempt, error)
        self._backoff.forget(backoff_key)
        await self._report(runner, problem)
        return add_jitter(ROLLOUT_SECONDS if problem is not None else RESYNC_SECONDS)

    async def _collect_inputs(self, runner: Object, namespace: str) -> RunnerInputs:
        """Raises InstanceError if something is not configured, before anything is created; and NotFound."""
        image = get_path(runner, "spec.clusterRef.podTemplate.spec.image") or self._config.image
        if not image:
            message = (
                "no image for the runner is known; set spec.clusterRef.podTemplate.spec.image, or the setting "
                "runner_image of the server"
            )
            raise InstanceError(IMAGE_NOT_SET, message, ERROR)
        if not self._config.public_url:
            message = (
                "the runner would not know the address of this server; set the setting public_url to a URL that Pods "
                "in the cluster reach"
            )
            raise InstanceError(PUBLIC_URL_NOT_SET, message, ERROR)
        try:
            key = await self._config.get_key(name_of(runner))
        except NotFound:
            raise
        except ApiError as error:
            raise InstanceError(KEY_UNAVAILABLE, f"the key of the runner is unknown: {error.message}", ERROR) from error
        authority, group = self._config.read_authority(), self._config.api_group
        return RunnerInputs(
            namespace=namespace,
            image=image,
            server=self._config.public_url,
            authority=authority,
            api_group=group,
            key=key,
        )

    async def _apply(self, runner: Object, target: RemoteNamespace, inputs: RunnerInputs) -> InstanceError | None:
        """Applies everything. Returns why the Pod does not run yet, if so. Raises InstanceError."""
        objects = build_runner_objects(runner, inputs)
        with translate_errors(target.cluster, f'deploy the runner in namespace "{target.namespace}"'):
            async with self._drift.track_pass(runner, target, self._access.cluster_api(target.cluster)) as api:
                remote = RemoteObjects(api, target)
                is_owned = await self._ensure_namespace(api, target, runner)
                if not is_owned and (foreign := await remote.find_foreign(objects)):
                    message = (
                        f'{foreign["kind"]} "{name_of(foreign)}" in namespace "{target.namespace}" of cluster '
                        f'"{target.cluster}" does not belong to this Runner, and is not changed; delete it there, or '
                        "delete this Runner and create one with another namespace"
                    )
                    raise InstanceError(OBJECT_CONFLICT, message, ERROR)
                await remote.apply(objects, ())
                return await self._find_problem(api, target, runner)

    async def _ensure_namespace(self, api: RecordingApi, target: RemoteNamespace, runner: Object) -> bool:
        """Creates or updates the namespace. Returns whether it was created for this Runner."""
        existing = await get_or_none(api, target.path)
        if existing is None or is_owned_by(existing, target):
            await ensure_namespace(api, target, {}, pod_security=self._config.pod_security)
            return True
        location = f'namespace "{target.namespace}" in cluster "{target.cluster}"'
        if MANAGED_LABEL in (get_path(existing, "metadata.labels") or {}):
            message = (
                f"{location} belongs to something else that Fairlead manages, whose users could read the key of the "
                "runner; delete this Runner, and create one with another spec.clusterRef.namespace"
            )
            raise InstanceError(NAMESPACE_CONFLICT, message, ERROR)
        if not get_path(runner, "spec.clusterRef.namespace"):
            message = (
                f"{location} exists and was not created for this Runner; delete it there, or delete this Runner and "
                "create one that names it in spec.clusterRef.namespace, to have it used as it is"
            )
            raise InstanceError(NAMESPACE_CONFLICT, message, ERROR)
        return False

    async def _find_problem(self, api: RecordingApi, target: RemoteNamespace, runner: Object) -> InstanceError | None:
        namespace = url_segment(target.namespace)
        name = deployed_runner_name(name_of(runner))
        deployment = await api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
        location = f'Deployment "{name}" in namespace "{target.namespace}" of cluster "{target.cluster}"'
        problem = find_rollout_problem(deployment, (), location)
        if problem is None or problem.reason != PROGRESSING:
            return problem
        selector = ",".join(f"{key}={value}" for key, value in pod_labels(runner).items())
        try:
            pods = await api.get(f"/api/v1/namespaces/{namespace}/pods?{urlencode({'labelSelector': selector})}")
        except RemoteApiError as error:
            if error.status != 403:
                raise
            return InstanceError(FORBIDDEN, f"{problem.message}; the stored credential may not list its Pods", INFO)
        return find_rollout_problem(deployment, list_items(pods, "items"), location)

    # --- removal ------------------------------------------------------------------------------------------------------

    async def _remove(self, runner: Object) -> float | None:
        """Continues the cleanup. Returns the requeue delay; None when the finalizer is removed."""
        target = self._find_target(runner)
        location = f'namespace "{target.namespace}" in cluster "{target.cluster}"'
        if is_abandoned(runner) or self._find_cluster(runner) is None:
            await self._remove_finalizer(runner, f"the objects of the runner in {location} were not deleted")
            return None
        try:
            with translate_errors(target.cluster, f"delete the objects of the runner in {location}"):
                remaining = await self._tear_down(runner, target)
        except InstanceError as error:
            advice = f"to leave everything in {location}, annotate this Runner with {ABANDON_ANNOTATION}=true"
            await self._report(runner, InstanceError(error.reason, f"{error.message}; {advice}", error.severity))
            return add_jitter(REQUEUE_SECONDS)
        if remaining is None:
            await self._remove_finalizer(runner)
            return None
        detail = f": {remaining.message}" if remaining.message else ""
        message = f"waiting for the deletion of what the runner has in {location}{detail}"
        await self._report(runner, InstanceError(remaining.reason, message, remaining.severity))
        return DELETION_POLL_SECONDS

    async def _tear_down(self, runner: Object, target: RemoteNamespace) -> InstanceError | None:
        """Returns what the deletion waits for; None when nothing is left."""
        api = self._access.cluster_api(target.cluster)
        namespace = await get_or_none(api, target.path)
        if namespace is None:
            return None
        if is_owned_by(namespace, target):
            self._drift.track_removal(runner, target)
            return await delete_namespace(api, target)
        remaining = await RemoteObjects(api, target).delete_owned(list_runner_objects(runner))
        if not remaining:
            return None
        return InstanceError(DELETING, ", ".join(f"{each['kind']} {name_of(each)}" for each in remaining), INFO)

    async def _remove_finalizer(self, runner: Object, left_behind: str = "") -> None:
        """`left_behind` is recorded in an Event."""
        if left_behind:
            message = f"{left_behind}; if they still exist, delete them yourself"
            await record_event(self._registry, runner, ABANDONED, message, type="Warning")
        with suppress(NotFound):
            await self._runners.modify(
                "",
                name_of(runner),
                lambda current: remove_finalizer(current, DEPLOYMENT_FINALIZER),
                server_write_options(),
            )

    # --- status -------------------------------------------------------------------------------------------------------

    async def _report(self, runner: Object, problem: InstanceError | None) -> None:
        """Writes the condition `Deployed`. A new reason that needs attention is an Event, too."""
        target = self._find_target(runner)
        name = deployed_runner_name(name_of(runner))
        now = timestamp(self._registry.clock.now())
        message = f'Deployment "{name}" runs in namespace "{target.namespace}" of cluster "{target.cluster}"'
        message += self._drift.watch_caveat(runner)
        found = condition(DEPLOYED, TRUE, AVAILABLE, message) if problem is None else problem.as_condition(DEPLOYED)
        before = (find_condition(runner.get("status"), DEPLOYED) or {}).get("reason")

        def edit(current: Object) -> Object:
            if metadata(current)["uid"] != metadata(runner)["uid"]:
                return current
            generation = metadata(runner).get("generation")
            return {**current, "status": with_condition(current.get("status"), found, now, generation)}

        entry = self._runners.get_cached("", name_of(runner))
        if entry is None or edit(current := decode(entry)) == current:
            return
        with suppress(NotFound):  # it was deleted meanwhile
            await self._runners.modify("", name_of(runner), edit, server_write_options("status"))
            if problem is not None and problem.severity != INFO and problem.reason != before:
                await record_event(self._registry, runner, problem.reason, problem.message, type="Warning")
