"""Reconciles virtual clusters: deploys them into connected clusters with Helm, and probes deployed and imported ones.

An instance with `spec.config` is imported: it is only probed. Others, in a cluster with a kubeconfig, get a namespace
there and the chart of their template. The kubeconfig that the chart stores in the Secret `vc-<release>` is copied to a
secret beside the instance, for the gateway. The chart of an administrator's template is deployed with the stored
credential of the cluster. Any other is not trusted, so it is deployed as a user with access to its namespace only.
"""

import re
from collections.abc import Callable, Iterable
from functools import partial

from fairlead.controllers.apps.template_releases import ReleasePlace, ReleaseSet, TemplateReleases
from fairlead.controllers.helm.chart import Release
from fairlead.controllers.helm.deploy import cluster_target, virtual_cluster_target
from fairlead.controllers.instances.access_point import access_host, build_ingress, describe_access_point
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.confinement import is_confined, plan_template
from fairlead.controllers.instances.drift import DriftTracker
from fairlead.controllers.instances.full_reconciles import FullReconciles
from fairlead.controllers.instances.import_sources import ImportSources, MayUseCluster
from fairlead.controllers.instances.inner_objects import InnerObjects, InnerObjectsResult
from fairlead.controllers.instances.instance_reconciler import InstanceReconciler, ReconcileAttempt
from fairlead.controllers.instances.namespace_contents import DesiredContents, NamespaceContents
from fairlead.controllers.instances.prerequisites import InstanceConfig, InstanceContext, InstanceTriggers
from fairlead.controllers.instances.remote_errors import ERROR, WARNING, InstanceError
from fairlead.controllers.instances.remote_namespace import (
    VIRTUAL_CLUSTER_LABEL,
    RemoteNamespace,
    delete_namespace,
    is_owned_by,
)
from fairlead.controllers.instances.remote_objects import parse_objects
from fairlead.controllers.instances.sleep_step import SleepStep
from fairlead.controllers.instances.stale_leases import free_stale_leases
from fairlead.controllers.instances.status import (
    APPS_SYNCED,
    VC_APPS_SYNCED,
    VC_DEPLOYED,
    VC_ONLINE,
    VC_READY,
    VC_SYNCED,
    VIRTUAL_CLUSTER_FINALIZER,
    derive_current_status,
)
from fairlead.controllers.instances.virtual_cluster_access import VirtualClusterAccess
from fairlead.controllers.instances.virtual_cluster_release import (
    VirtualClusterReleases,
    build_release,
    build_removal_release,
    confinement_bindings,
)
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.backoff import BackoffPolicy, add_jitter
from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.domain.release_names import release_name
from fairlead.domain.typed_objects import (
    SPACE_OBJECTS,
    SPACE_READY,
    SPACE_SYNCED,
    STARTING,
    VIRTUAL_CLUSTER_OBJECTS,
    Project,
    TypedObject,
    VirtualClusterInstance,
)
from fairlead.kinds.instances.remote_instances import VIRTUAL_CLUSTER
from fairlead.kinds.instances.templates import forwards_token
from fairlead.registry.conditions import FALSE, TRUE, UNKNOWN, condition
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.upstream.errors import ProtocolError, UpstreamError
from fairlead.upstream.kube_client import RemoteApiError, get_or_none
from fairlead.upstream.tunnel_pods import PERMANENT_REASONS, WAITING_FOR_POD, PodTarget

PROBE_SECONDS = 15.0
PROBE_RETRY = BackoffPolicy(first_seconds=PROBE_SECONDS, max_seconds=120.0)
"""Probe interval of a reachable virtual cluster, and the maximum for an unreachable one."""
START_RETRY = BackoffPolicy(first_seconds=2.0, max_seconds=30.0)
"""The same while its pod starts."""
STARTING_PROBE_SECONDS, MAX_STARTING_PROBES = 1.0, 120
"""Probe interval of one that wakes up, while requests wait for it, and how often that happens at most."""
_version_pattern = re.compile(r"[0-9A-Za-z.+_-]{1,64}", re.ASCII)


class VirtualClusterController:
    # Many, since they mostly wait for responses of virtual clusters, which may be slow.
    name, workers = "virtual-clusters", 512

    def __init__(
        self,
        registry: Registry,
        config: InstanceConfig,
        clusters: ClusterAccess,
        releases: VirtualClusterReleases,
        template_releases: TemplateReleases,
        may_use_cluster: MayUseCluster,
    ) -> None:
        self._config = config
        self._clusters = clusters
        self._releases = releases
        self._template_releases = template_releases
        self._context = InstanceContext(registry, config)
        self._triggers = InstanceTriggers(self._context, VIRTUAL_CLUSTER.plural)
        self.watches = self._triggers.watches
        self._full_reconciles = FullReconciles(registry.clock)
        derive = partial(derive_current_status, self._context)
        resource = (config.api_group, VIRTUAL_CLUSTER.plural)
        self._instances = InstanceReconciler(
            registry, resource, VirtualClusterInstance, VIRTUAL_CLUSTER_FINALIZER, derive
        )
        self._access = VirtualClusterAccess(self._context, clusters, derive)
        self._drift = DriftTracker(registry, clusters.watch_sender, VIRTUAL_CLUSTER_LABEL, resource)
        self._contents = NamespaceContents(
            self._instances, self._context, clusters, self._drift, VIRTUAL_CLUSTER_LABEL, "virtualCluster"
        )
        self._import_sources = ImportSources(registry, clusters, may_use_cluster)
        self._sleep = SleepStep(self._contents)
        self._inner_objects = InnerObjects(self._instances, self._context, clusters)
        self._probe_failures: dict[tuple[str, str], int] = {}
        """By namespace and name of an instance: consecutive failed probes."""

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Changes in remote clusters, and free slots for helm, trigger a reconcile, too."""
        retry = self._instances.retry_on_change(requeue)

        def requeue_changed(key: Key, seconds: float) -> None:
            self._full_reconciles.mark_changed((key[2], key[3]))
            retry(key, seconds)

        end_changes = self._drift.informers.subscribe(requeue_changed)
        resource = (self._config.api_group, VIRTUAL_CLUSTER.plural)
        end_slots = self._template_releases.subscribe(resource, requeue_changed)

        def unsubscribe() -> None:
            end_changes()
            end_slots()

        return unsubscribe

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        keys = self._triggers.keys_for(key, entry)
        for each in keys:
            self._full_reconciles.mark_changed((each[2], each[3]))
        return keys

    async def reconcile(self, key: Key) -> float | None:
        instance = self._instances.find(key)
        if instance is not None and instance.is_ignored:
            instance = None
        if instance is None or instance.is_deleting:
            self._clusters.close_virtual_cluster(key[2], key[3])
            self._probe_failures.pop((key[2], key[3]), None)
            self._inner_objects.forget((key[2], key[3]))
            self._full_reconciles.forget((key[2], key[3]))
            self._import_sources.forget((key[2], key[3]))
        if instance is None:
            self._drift.forget(key)
            return None
        if instance.is_deleting:
            return await self._remove(key, instance)
        if instance.has_agent:
            return None
        if not self._full_reconciles.is_due(instance.key) and await self._is_still_ready(instance):
            return add_jitter(PROBE_SECONDS)
        self._full_reconciles.begin(instance.key)
        if instance.is_imported:
            return await self._instances.run(instance, self._context.attempt_inputs, self._ensure_imported)
        project = self._context.project(instance)
        is_connected = self._context.has_transport(instance)
        if not is_connected:
            self._drift.forget(key)
        if project is None or instance.is_external or not instance.service_uid or not instance.is_resolved:
            return None
        if not self._context.can_deploy(instance):
            self._instances.backoff.reset(instance.key)
            return None
        if not is_connected:
            return None
        with self._drift.cluster_slot(instance, self.workers) as wait:
            steps = partial(self._ensure, project=project)
            return wait or await self._instances.run(instance, self._context.attempt_inputs, steps)

    async def _remove(self, key: Key, instance: VirtualClusterInstance) -> float | None:
        requeue_after = await self._access.remove(instance)
        if requeue_after is not None:
            return requeue_after
        with self._drift.cluster_slot(instance, self.workers) as wait:
            requeue_after = wait or await self._contents.remove(instance, partial(self._tear_down, instance))
        if requeue_after is None:
            self._drift.forget(key)
            self._releases.forget(instance)
        return requeue_after

    async def _ensure(self, run: ReconcileAttempt[VirtualClusterInstance], project: Project) -> float:
        """The steps to Ready, in order."""
        asleep = await self._sleep.run(run)
        if asleep is not None:
            return asleep
        run.stage = VC_DEPLOYED
        self._releases.check(run.instance)
        name = run.instance.release_name or release_name(run.instance.name)
        instance = run.instance = await self._contents.claim(run.instance, project, virtualCluster=name)

        run.stage = SPACE_SYNCED
        release = build_release(instance)
        host = access_host(instance, self._context.cluster(instance))
        if release.impersonate_user:  # recorded before anything is created, since later releases depend on it
            await self._instances.write_status(instance, (), deployedConfined=True)
        instance = run.instance = await self._apply_namespace(run, release, host)

        run.stage = VC_DEPLOYED
        await self._releases.deploy(self._instances, run, release)

        run.stage = VC_SYNCED
        endpoint = await self._releases.copy_kubeconfig(instance, release)
        run.fields["accessPoint"] = describe_access_point(instance, host, endpoint.ca_data)
        note = describe_unused_token(instance)
        run.done(VC_SYNCED, "Synced", f"the kubeconfig that the chart created is in use{note}")
        await self._template_releases.deploy(self._instances, instance, self._host_releases(instance))
        return await self._probe(run)

    async def _ensure_imported(self, run: ReconcileAttempt[VirtualClusterInstance]) -> float:
        note = describe_unused_token(run.instance)
        run.done(VC_DEPLOYED, "Imported", f"it is imported: spec.config names its kubeconfig{note}")
        run.stage = VC_SYNCED
        try:
            source = await self._import_sources.check(run.instance)
        except InstanceError as error:
            # Other errors may recover by themselves.
            if error.severity == ERROR and run.instance.status.get("importedFrom"):
                run.instance = await self._instances.write_status(run.instance, (), importedFrom=None)
                self._clusters.close_virtual_cluster(*run.instance.key)
            raise
        if source != run.instance.status.get("importedFrom"):
            # Written before the probe, which depends on it.
            run.instance = await self._instances.write_status(run.instance, (), importedFrom=source)
        if source is not None:
            message = f'its kubeconfig is that of release "{source["name"]}" in cluster "{source["cluster"]}"'
            run.done(VC_SYNCED, "Synced", message)
        elif run.instance.condition(VC_SYNCED):
            run.done(VC_SYNCED, "Synced", "it has no import source")
        return await self._probe(run)

    async def _apply_namespace(
        self, run: ReconcileAttempt[VirtualClusterInstance], release: Release, host: str
    ) -> VirtualClusterInstance:
        """Applies the namespace. Returns the instance with what its status records then."""
        instance = run.instance
        plan = plan_template(self._config.confinement, instance)
        objects: list[Object] = []
        if not plan.skips_contents:
            objects = parse_objects(instance.space_template.get("objects") or "")
            objects += [build_ingress(instance, host)] if host else []
        bindings = confinement_bindings(release, self._config.confinement.chart_role)
        await self._instances.write_status(instance, (), **plan.status_fields)
        result = await self._contents.apply(instance, plan, DesiredContents(bindings, objects))
        status = TRUE if result.is_usable else FALSE
        reason = "Active" if result.is_usable else "Terminating"
        run.done(SPACE_SYNCED, "Synced", result.message)
        run.conditions.append(condition(SPACE_READY, status, reason, result.message))
        return result.instance

    async def _request_version(
        self, instance: VirtualClusterInstance, *, is_new_connection: bool
    ) -> Object | UpstreamError | RemoteApiError:
        try:
            return await self._clusters.virtual_cluster_version(*instance.key, is_new_connection=is_new_connection)
        except (UpstreamError, RemoteApiError) as error:
            return error
        except BadRequest as error:
            return ProtocolError(error.message)

    async def _is_still_ready(self, instance: VirtualClusterInstance) -> bool:
        """Probes a virtual cluster that was Ready, on a connection that is open already. If the status would change,
        the steps run again."""
        response = await self._request_version(instance, is_new_connection=False)
        target = self._clusters.virtual_cluster_target(*instance.key)
        is_same_place = describe_connection(target) == instance.connection
        same = [_is_same(each, instance.condition(each["type"])) for each in conditions_from_probe(response, target)]
        return all(same) and is_same_place

    async def _probe(self, run: ReconcileAttempt[VirtualClusterInstance]) -> float:
        """Probes the virtual cluster, binds the roles of its users, deploys what its template has inside, and writes
        the status."""
        instance = run.instance
        response = await self._request_version(instance, is_new_connection=True)
        target = self._clusters.virtual_cluster_target(*instance.key)
        online, ready = conditions_from_probe(response, target)
        is_online = online["status"] == TRUE
        is_ready = ready["status"] == TRUE
        run.conditions += (online, ready)
        if is_ready:
            run.conditions += await self._access.sync_bindings(instance)
            if instance.sleep_stage == STARTING:
                await free_stale_leases(instance, self._clusters.virtual_cluster_api(*instance.key))
                run.fields["sleep"] = None
        releases = None
        if is_ready and instance.is_resolved:
            objects = await self._inner_objects.sync(instance)
            instance = run.instance = objects.instance
            releases = self._inner_releases(instance, objects)
            run.conditions += self._template_releases.find_pending(instance, releases)
        if is_online:
            run.fields["connection"] = describe_connection(target)
        instance = await self._instances.write_status(instance, run.conditions, online=is_online, **run.fields)
        if releases is not None:
            await self._template_releases.deploy(self._instances, instance, releases)
        if is_ready and not any(each["status"] == FALSE for each in instance.status["conditions"]):
            self._full_reconciles.finish(instance.key)
        is_starting = instance.sleep_stage == STARTING and not is_ready
        if is_online and not is_starting:
            self._probe_failures.pop(instance.key, None)
            return add_jitter(PROBE_SECONDS)
        failures = self._probe_failures[instance.key] = self._probe_failures.get(instance.key, 0) + 1
        if is_starting and failures <= MAX_STARTING_PROBES:
            return STARTING_PROBE_SECONDS
        policy = START_RETRY if online["reason"] == WAITING_FOR_POD else PROBE_RETRY
        return add_jitter(policy.delay(failures))

    def _host_releases(self, instance: VirtualClusterInstance) -> ReleaseSet:
        """The charts and apps of its template for the namespace that it runs in."""
        return ReleaseSet(instance.space_template, SPACE_OBJECTS, APPS_SYNCED, lambda: self._host_place(instance))

    def _host_place(self, instance: VirtualClusterInstance) -> ReleasePlace:
        """The namespace that the virtual cluster runs in, with the permissions that its own chart has."""
        release = build_removal_release(instance)
        target = cluster_target(self._clusters, instance.cluster)
        return ReleasePlace(target, release.namespace, release.impersonate_user, is_confined=is_confined(instance))

    def _inner_releases(self, instance: VirtualClusterInstance, objects: InnerObjectsResult) -> ReleaseSet:
        """The charts and apps of its template for the virtual cluster itself, where its objects were applied."""

        def place() -> ReleasePlace:
            target = virtual_cluster_target(self._clusters, instance.key)
            confined = is_confined(instance)
            return ReleasePlace(target, "default", allows_other_namespaces=True, is_confined=confined)

        return ReleaseSet(
            template=instance.rendered,
            field=VIRTUAL_CLUSTER_OBJECTS,
            condition=VC_APPS_SYNCED,
            place=place,
            object_count=objects.count,
            object_error=objects.error,
        )

    async def _tear_down(self, instance: VirtualClusterInstance, target: RemoteNamespace) -> None:
        """Uninstalls the release, then deletes the namespace. Raises StillDeleting until that is done."""
        api = self._clusters.cluster_api(target.cluster)
        existing = await get_or_none(api, target.path)
        if existing is not None and is_owned_by(existing, target) and not TypedObject(existing).is_deleting:
            place = self._host_place(instance)
            await self._template_releases.uninstall_all(instance, instance.space_objects, place)
            await self._releases.uninstall(instance)
        await delete_namespace(api, target)


def _is_same(found: Object, known: Object) -> bool:
    """Whether a condition says the same as the one in the status."""
    return all(found[name] == known.get(name) for name in ("status", "reason", "message"))


def describe_unused_token(instance: VirtualClusterInstance) -> str:
    """A note for a condition, if its template has `forwardToken` and no token is forwarded."""
    if not instance.rendered.get("forwardToken") or forwards_token(instance):
        return ""
    return "; forwardToken has no effect: only an administrator's template that is deployed here has tokens forwarded"


def describe_connection(target: PodTarget | None) -> Object:
    """The field `connection` of the status."""
    if target is None:
        return {"mode": "Direct"}
    return {
        "mode": "Tunnel",
        "service": target.service,
        "port": target.port,
        "pod": target.pod,
        "podUID": target.uid,
    }


def conditions_from_probe(
    response: Object | UpstreamError | RemoteApiError, target: PodTarget | None = None
) -> tuple[Object, Object]:
    """The conditions Online and Ready, from the response to the version request. `target` is the pod that a tunnel
    leads to."""
    if isinstance(response, UpstreamError):
        severity = ERROR if response.reason in PERMANENT_REASONS else WARNING
        offline = condition(VC_ONLINE, FALSE, response.reason, f"it cannot be reached: {response.message}", severity)
        return offline, condition(VC_READY, UNKNOWN, response.reason, "unknown while it cannot be reached")
    online = condition(VC_ONLINE, TRUE, "Reachable", "it can be reached")
    if target is not None:
        message = f'it is reached by port-forward to pod "{target.pod}"'
        online = condition(VC_ONLINE, TRUE, "Tunnelled", message)
    if isinstance(response, RemoteApiError):
        message = f"it returns HTTP status {response.status} for /version; check that its kubeconfig is still valid"
        return online, condition(VC_READY, FALSE, "NotReady", message, WARNING)
    version = response.get("gitVersion")
    known = version if isinstance(version, str) and _version_pattern.fullmatch(version) else "of an unknown version"
    return online, condition(VC_READY, TRUE, "Ready", f"it runs Kubernetes {known}")
