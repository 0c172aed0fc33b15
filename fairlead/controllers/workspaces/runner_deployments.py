"""Deploys runners into connected clusters: those whose `spec.clusterRef` an administrator has set.

Everything is applied with the stored credential of the cluster, repaired when others change it, and deleted with the
Runner, which a finalizer delays until then. The namespace is created unless it exists. An existing one is used only if
`spec.clusterRef.namespace` names it and nothing else of Fairlead owns it; it is not changed, and objects of others in
it that have the names of the runner's are never taken over.

`runners.py` maintains the rest of the status; both agree that the condition `Deployed` is set here while the cluster
that a Runner names exists.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.drift import DriftTracker
from fairlead.controllers.instances.instance_reconciler import InstanceReconciler, ReconcileAttempt, Removal
from fairlead.controllers.instances.prerequisites import CLUSTERS, ObservedStates, find_cluster_blocker
from fairlead.controllers.instances.remote_errors import (
    ERROR,
    FORBIDDEN,
    INFO,
    InstanceError,
    StillDeleting,
    translate_errors,
)
from fairlead.controllers.instances.remote_namespace import (
    DELETING,
    MANAGED_LABEL,
    NAMESPACE_CONFLICT,
    RUNNER_LABEL,
    RecordingApi,
    RemoteNamespace,
    delete_namespace,
    ensure_namespace,
    is_owned_by,
    list_items,
    ownership_labels,
    url_segment,
)
from fairlead.controllers.instances.remote_objects import RemoteObjects
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
from fairlead.core.deployed_runners import DEPLOYMENT_FINALIZER, deployed_runner_name
from fairlead.core.errors import ApiError, NotFound
from fairlead.core.objects import Object, get_path, labels_of, name_of
from fairlead.domain.typed_objects import ABANDON_ANNOTATION, Cluster, PlacedObject
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT, RUNNERS
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, find_condition, record_event
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.upstream.kube_client import RemoteApiError, get_or_none

AVAILABLE, NOT_APPROVED = "Available", "NotApproved"
IMAGE_NOT_SET, PUBLIC_URL_NOT_SET, KEY_UNAVAILABLE = "ImageNotSet", "PublicUrlNotSet", "KeyUnavailable"
OBJECT_CONFLICT = "ObjectConflict"
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
        self._runners = InstanceReconciler(
            registry, (group, RUNNERS), PlacedObject, DEPLOYMENT_FINALIZER, derive=_keep_status, record=_record_problem
        )
        self._clusters = registry.resource(group, CLUSTERS)
        self._drift = DriftTracker(registry, clusters.watch_sender, RUNNER_LABEL, (group, RUNNERS))
        self._observed = ObservedStates()

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Changes in remote clusters trigger a reconcile, too."""
        return self._drift.informers.subscribe(requeue)

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        if key[1] == RUNNERS:
            return (key,)
        if key[1] == CLUSTERS:
            state = Cluster(decode(entry)).relevant_state if entry is not None else None
            if not self._observed.has_changed(key, state):
                return ()
            return [each.key for each in self._entries() if each.fields.get("spec.clusterRef.cluster") == key[3]]
        # The Secret with the key of a runner: the key was rotated.
        if key[2] != self._config.system_namespace or not RUNNER_COMPONENT.is_key_secret_name(key[3]):
            return ()
        return [each.key for each in self._entries() if RUNNER_COMPONENT.key_secret_name(each.key[3]) == key[3]]

    def _entries(self) -> list[Entry]:
        return self._registry.view.entries(self._config.api_group, RUNNERS)

    async def reconcile(self, key: Key) -> float | None:
        runner = self._runners.find(key)
        if runner is None:
            self._drift.forget(key)
            return None
        with self._drift.cluster_slot(runner, self.workers) as wait:
            return wait or await self._reconcile_runner(key, runner)

    async def _reconcile_runner(self, key: Key, runner: PlacedObject) -> float | None:
        is_marked = self._runners.has_finalizer(runner)
        if runner.is_deleting:
            return await self._remove(runner) if is_marked else None
        cluster = self._find_cluster(runner)
        if cluster is None:
            self._drift.forget(key)
            self._runners.backoff.forget(runner.key)
            return None
        if not is_marked:
            message = (
                "spec.clusterRef was not set by an administrator, so nothing is deployed; an administrator removes it "
                "and sets it again, or the runner is started with `fairlead runner start`"
            )
            refusal = InstanceError(NOT_APPROVED, message, ERROR)
            with suppress(NotFound):  # it was deleted meanwhile
                await self._runners.write_status(runner, (refusal.as_condition(DEPLOYED),))
            return None

        def attempt_inputs(current: PlacedObject) -> object:
            return current.uid, current.generation, cluster.relevant_state

        return await self._runners.run(runner, attempt_inputs, partial(self._ensure, cluster=cluster))

    def _find_cluster(self, runner: PlacedObject) -> Cluster | None:
        """The cluster that the runner names, if it exists."""
        entry = self._clusters.get_cached("", runner.cluster)
        return Cluster(decode(entry)) if entry is not None else None

    def _find_target(self, runner: PlacedObject) -> RemoteNamespace:
        labels = ownership_labels(RUNNER_LABEL, "", runner.name, runner.uid)
        namespace = runner.remote_namespace or deployed_runner_name(runner.name)
        return RemoteNamespace(runner.cluster, namespace, labels)

    # --- deployment ---------------------------------------------------------------------------------------------------

    async def _ensure(self, run: ReconcileAttempt[PlacedObject], cluster: Cluster) -> float:
        """The steps to a running Pod, in order."""
        runner = run.instance
        run.stage = DEPLOYED
        if blocker := find_cluster_blocker(runner, cluster):
            raise blocker
        target = self._find_target(runner)
        inputs = await self._collect_inputs(runner, target.namespace)
        problem = await self._apply(runner, target, inputs)
        if problem is not None:
            await self._runners.write_status(runner, (problem.as_condition(DEPLOYED),))
            return add_jitter(ROLLOUT_SECONDS)
        name = deployed_runner_name(runner.name)
        location = f'namespace "{target.namespace}" of cluster "{target.cluster}"'
        run.done(DEPLOYED, AVAILABLE, f'Deployment "{name}" runs in {location}{self._drift.watch_caveat(runner)}')
        await self._runners.write_status(runner, run.conditions)
        return add_jitter(RESYNC_SECONDS)

    async def _collect_inputs(self, runner: PlacedObject, namespace: str) -> RunnerInputs:
        """Raises InstanceError if something is not configured, before anything is created; and NotFound."""
        image = get_path(runner.cluster_ref, "podTemplate.spec.image") or self._config.image
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
            key = await self._config.get_key(runner.name)
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

    async def _apply(self, runner: PlacedObject, target: RemoteNamespace, inputs: RunnerInputs) -> InstanceError | None:
        """Applies everything. Returns why the Pod does not run yet, if so. Raises InstanceError."""
        objects = build_runner_objects(runner.raw, inputs)
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

    async def _ensure_namespace(self, api: RecordingApi, target: RemoteNamespace, runner: PlacedObject) -> bool:
        """Creates or updates the namespace. Returns whether it was created for this Runner."""
        existing = await get_or_none(api, target.path)
        if existing is None or is_owned_by(existing, target):
            await ensure_namespace(api, target, {}, pod_security=self._config.pod_security)
            return True
        location = target.location
        if MANAGED_LABEL in labels_of(existing):
            message = (
                f"{location} belongs to something else that Fairlead manages, whose users could read the key of the "
                "runner; delete this Runner, and create one with another spec.clusterRef.namespace"
            )
            raise InstanceError(NAMESPACE_CONFLICT, message, ERROR)
        if not runner.remote_namespace:
            message = (
                f"{location} exists and was not created for this Runner; delete it there, or delete this Runner and "
                "create one that names it in spec.clusterRef.namespace, to have it used as it is"
            )
            raise InstanceError(NAMESPACE_CONFLICT, message, ERROR)
        return False

    async def _find_problem(
        self, api: RecordingApi, target: RemoteNamespace, runner: PlacedObject
    ) -> InstanceError | None:
        namespace = url_segment(target.namespace)
        name = deployed_runner_name(runner.name)
        deployment = await api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
        location = f'Deployment "{name}" in namespace "{target.namespace}" of cluster "{target.cluster}"'
        problem = find_rollout_problem(deployment, (), location)
        if problem is None or problem.reason != PROGRESSING:
            return problem
        selector = ",".join(f"{key}={value}" for key, value in pod_labels(runner.raw).items())
        try:
            pods = await api.get(f"/api/v1/namespaces/{namespace}/pods?{urlencode({'labelSelector': selector})}")
        except RemoteApiError as error:
            if error.status != 403:
                raise
            return InstanceError(FORBIDDEN, f"{problem.message}; the stored credential may not list its Pods", INFO)
        return find_rollout_problem(deployment, list_items(pods, "items"), location)

    # --- removal ------------------------------------------------------------------------------------------------------

    async def _remove(self, runner: PlacedObject) -> float | None:
        """Continues the cleanup. Returns the requeue delay; None when the finalizer is removed."""
        target = self._find_target(runner)
        location = target.location
        if runner.is_abandoned or self._find_cluster(runner) is None:
            message = (
                f"the objects of the runner in {location} were not deleted; if they still exist, delete them yourself"
            )
            await self._runners.abandon(runner, DEPLOYED, message)
            return None

        def waiting(remaining: StillDeleting) -> Sequence[Object]:
            detail = f": {remaining.message}" if remaining.message else ""
            message = f"waiting for the deletion of what the runner has in {location}{detail}"
            return (InstanceError(remaining.reason, message, remaining.severity).as_condition(DEPLOYED),)

        def blocked(error: InstanceError) -> Sequence[Object]:
            advice = f"to leave everything in {location}, annotate this Runner with {ABANDON_ANNOTATION}=true"
            message = f"{error.message}; {advice}"
            return (InstanceError(error.reason, message, error.severity).as_condition(DEPLOYED),)

        return await self._runners.clean_up(runner, Removal(partial(self._tear_down, runner, target), blocked, waiting))

    async def _tear_down(self, runner: PlacedObject, target: RemoteNamespace) -> None:
        """Raises StillDeleting until nothing is left."""
        with translate_errors(target.cluster, f"delete the objects of the runner in {target.location}"):
            api = self._access.cluster_api(target.cluster)
            namespace = await get_or_none(api, target.path)
            if namespace is None:
                return
            if is_owned_by(namespace, target):
                self._drift.track_removal(runner, target)
                await delete_namespace(api, target)
                return
            remaining = await RemoteObjects(api, target).delete_owned(list_runner_objects(runner.raw))
        if remaining:
            titles = ", ".join(f"{each['kind']} {name_of(each)}" for each in remaining)
            raise StillDeleting(DELETING, titles, INFO)


def _keep_status(runner: PlacedObject, status: Object, now: str) -> Object:
    """`runners.py` derives the rest of the status."""
    return status


async def _record_problem(registry: Registry, before: Object, status: Object) -> None:
    """A new reason that needs attention is an Event."""
    found = find_condition(status, DEPLOYED) or {}
    known = find_condition(before.get("status"), DEPLOYED) or {}
    needs_attention = found.get("status") == FALSE and found.get("severity") != INFO
    if needs_attention and found["reason"] != known.get("reason"):
        await record_event(registry, before, found["reason"], found["message"], type="Warning")
