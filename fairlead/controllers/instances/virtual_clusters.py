"""Reconciles virtual clusters: deploys them into connected clusters with Helm, and probes deployed and imported ones.

An instance with `spec.config` is imported: it is only probed. Others, in a cluster with a kubeconfig, get a namespace
there and the chart of their template. The kubeconfig that the chart stores in the Secret `vc-<release>` is copied to a
secret beside the instance, for the gateway. The chart of an administrator's template is deployed with the stored
credential of the cluster. Any other is not trusted, so it is deployed as a user with access to its namespace only.
"""

from collections.abc import Callable, Iterable, Sequence

from fairlead.controllers.apps.template_releases import (
    ReleasePlace,
    TemplateReleases,
    deploying_condition,
    has_releases,
)
from fairlead.controllers.helm.chart import Release
from fairlead.controllers.helm.deploy import ReleaseManager, ReleaseTarget, cluster_target
from fairlead.controllers.helm.slots import WAITING_FOR_HELM_SLOT
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.confinement import (
    applied_trust_fields,
    is_confined,
    plan_template,
    template_trust,
)
from fairlead.controllers.instances.drift import DriftTracker
from fairlead.controllers.instances.namespace_contents import DesiredContents, NamespaceContents
from fairlead.controllers.instances.prerequisites import InstanceConfig, has_kubeconfig
from fairlead.controllers.instances.remote_errors import InstanceError
from fairlead.controllers.instances.remote_instance import (
    DELETION_POLL_SECONDS,
    HELM_SLOT_RETRY_SECONDS,
    RemoteCleanup,
    RemoteInstanceStore,
    is_resolved,
)
from fairlead.controllers.instances.remote_names import (
    VIRTUAL_CLUSTER_LABEL,
    default_namespace,
    namespace_from_pattern,
    ownership_labels,
)
from fairlead.controllers.instances.remote_namespace import RemoteNamespace, delete_namespace, get_or_none, is_owned_by
from fairlead.controllers.instances.remote_objects import parse_objects
from fairlead.controllers.instances.status import (
    APPS_SYNCED,
    VC_APPS_SYNCED,
    VC_DEPLOYED,
    VIRTUAL_CLUSTER_FINALIZER,
)
from fairlead.controllers.instances.vcluster_release import (
    SYNCED,
    VirtualClusterAccess,
    build_release,
    build_removal_release,
    conditions_from_probe,
    confinement_bindings,
)
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.backoff import BackoffPolicy, add_jitter
from fairlead.core.errors import BadRequest, NotFound
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.domain.release_names import release_name
from fairlead.domain.spaces import SPACE_READY, SPACE_SYNCED
from fairlead.kinds.instances.remote_instances import VIRTUAL_CLUSTER
from fairlead.kinds.instances.templates import UNMARKED
from fairlead.registry.conditions import FALSE, TRUE, condition, find_condition
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.upstream.errors import ProtocolError, UpstreamError
from fairlead.upstream.kube_client import RemoteApiError

_INNER_OBJECTS = "virtualClusterObjects"
"""The field of the status with what is deployed in the virtual cluster."""
PROBE_SECONDS = 15.0
PROBE_RETRY = BackoffPolicy(first_seconds=PROBE_SECONDS, max_seconds=120.0)
"""Probe interval of a reachable virtual cluster, and the maximum for an unreachable one."""


class VirtualClusterController:
    # Many, since they mostly wait for responses of virtual clusters, which may be slow.
    name, workers = "virtual-clusters", 512

    def __init__(
        self,
        registry: Registry,
        config: InstanceConfig,
        clusters: ClusterAccess,
        releases: ReleaseManager,
        template_releases: TemplateReleases,
    ) -> None:
        self._instances = RemoteInstanceStore(registry, config, VIRTUAL_CLUSTER.plural, VIRTUAL_CLUSTER_FINALIZER)
        self.watches = self._instances.watches
        self._cleanup = RemoteCleanup(self._instances, self._tear_down, SPACE_SYNCED, SPACE_READY)
        self._clusters = clusters
        self._access = VirtualClusterAccess(registry, config, clusters)
        self._releases = releases
        self._template_releases = template_releases
        self._drift = DriftTracker(
            registry, clusters.watch_sender, VIRTUAL_CLUSTER_LABEL, (config.api_group, VIRTUAL_CLUSTER.plural)
        )
        self._config = config
        self._contents = NamespaceContents(registry, config, clusters, self._drift)
        self._probe_failures: dict[tuple[str, str], int] = {}
        """By namespace and name of an instance: consecutive failed probes."""

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Changes in remote clusters trigger a reconcile, too."""
        return self._drift.informers.subscribe(self._instances.retry_on_change(requeue))

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        return self._instances.keys_for(key, entry)

    async def reconcile(self, key: Key) -> float | None:
        instance = self._instances.get_managed(key)
        if instance is None or "deletionTimestamp" in metadata(instance):
            self._clusters.close_virtual_cluster(key[2], key[3])
            self._probe_failures.pop((key[2], key[3]), None)
        if instance is None:
            self._drift.forget(key)
            return None
        if "deletionTimestamp" in metadata(instance):
            return await self._remove(key, instance)
        if get_path(instance, "spec.networkPeer"):
            return None
        if get_path(instance, "spec.config.secretName"):
            imported = condition(VC_DEPLOYED, TRUE, "Imported", "it is imported: spec.config names its kubeconfig")
            return await self._probe(instance, (imported,))
        project = self._instances.project(instance)
        if not has_kubeconfig(self._instances.cluster(instance)):
            self._drift.forget(key)
        if project is None or get_path(instance, "spec.external") or not self._can_deploy(instance):
            return None
        with self._drift.cluster_slot(instance, self.workers) as wait:
            return wait or self._instances.backoff_seconds(instance) or await self._ensure(instance, project)

    async def _remove(self, key: Key, instance: Object) -> float | None:
        if (
            self._access.has_finalizer(instance)
            and (requeue_after := await self._access.remove_bindings(instance)) is not None
        ):
            return requeue_after
        with self._drift.cluster_slot(instance, self.workers) as wait:
            requeue_after = wait or await self._remove_from_cluster(instance)
        if requeue_after is None:
            self._drift.forget(key)
        return requeue_after

    async def _remove_from_cluster(self, instance: Object) -> float | None:
        return (
            await self._cleanup.remove(instance, self._remote_namespace)
            if self._instances.has_finalizer(instance)
            else None
        )

    def _can_deploy(self, instance: Object) -> bool:
        if not get_path(instance, "status.serviceUID") or not is_resolved(instance):
            return False
        if not self._instances.can_deploy(instance):
            self._instances.reset_backoff(instance)
            return False
        return has_kubeconfig(self._instances.cluster(instance))

    async def _ensure(self, instance: Object, project: Object) -> float | None:
        """Runs the deployment steps in order, up to the first that fails."""
        done: list[Object] = []
        fields: Object = {}
        stage = VC_DEPLOYED
        try:
            self._releases.check(instance)
            instance = await self._instances.claim_placement(
                instance, lambda current: self._cluster_ref(current, project)
            )
            if "deletionTimestamp" in metadata(instance) or not is_resolved(instance):
                return DELETION_POLL_SECONDS  # it has changed meanwhile, and the rendered template is outdated
            stage, release = SPACE_SYNCED, build_release(instance)
            if release.impersonate_user:  # recorded before anything is created, since later releases depend on it
                await self._instances.write_status(instance, (), deployedConfined=True)
            conditions, is_new = await self._apply_namespace(instance, release)
            done += conditions
            stage = VC_DEPLOYED
            if is_new:  # an earlier deployment was deleted with the namespace
                fields["deployHash"] = ""
            fields["deployHash"] = await self._releases.deploy(instance, release, force=is_new)
            done.append(condition(VC_DEPLOYED, TRUE, "Deployed", f'release "{release.name}" is deployed'))
            stage = SYNCED
            await self._releases.copy_kubeconfig(instance, release)
            done.append(condition(SYNCED, TRUE, "Synced", "the kubeconfig that the chart created is in use"))
            template = get_path(instance, "status.virtualCluster.spaceTemplate") or {}
            done += await self._deploy_releases(instance, template, self._host_place(instance), "spaceObjects")
        except NotFound:  # it was deleted meanwhile
            return None
        except InstanceError as error:
            done.append(error.as_condition(stage))
            await self._instances.write_status(instance, done, **fields)
            return (
                add_jitter(HELM_SLOT_RETRY_SECONDS)
                if error.reason == WAITING_FOR_HELM_SLOT
                else self._instances.record_failure(instance, error)
            )
        self._instances.reset_backoff(instance)
        return await self._probe(instance, done, **fields)

    async def _probe(self, instance: Object, conditions: Sequence[Object], **fields: object) -> float:
        """Probes the virtual cluster, binds the roles of its users, and writes the status."""
        instance_key = metadata(instance)["namespace"], name_of(instance)
        response: Object | UpstreamError | RemoteApiError
        try:
            response = await self._clusters.virtual_cluster_version(*instance_key)
        except (UpstreamError, RemoteApiError) as error:
            response = error
        except BadRequest as error:
            response = ProtocolError(error.message)
        online, ready = conditions_from_probe(response)
        is_online = online["status"] == TRUE
        access = await self._access.sync_bindings(instance) if ready["status"] == TRUE else ()
        has_inner_releases = ready["status"] == TRUE and is_resolved(instance)
        pending = self._pending_releases(instance) if has_inner_releases else ()
        await self._instances.write_status(
            instance, (*conditions, online, ready, *access, *pending), online=is_online, **fields
        )
        if has_inner_releases:
            template = get_path(instance, "status.virtualCluster") or {}
            await self._deploy_releases(instance, template, self._inner_place(instance), _INNER_OBJECTS)
        if is_online:
            self._probe_failures.pop(instance_key, None)
            return add_jitter(PROBE_SECONDS)
        failures = self._probe_failures[instance_key] = self._probe_failures.get(instance_key, 0) + 1
        return add_jitter(PROBE_RETRY.delay(failures))

    async def _deploy_releases(
        self, instance: Object, template: Object, place: ReleasePlace, status_field: str
    ) -> Sequence[Object]:
        """Deploys the charts and apps of the template, and records them in a field of the status. Returns the
        condition, which is written already."""
        type = APPS_SYNCED if status_field == "spaceObjects" else VC_APPS_SYNCED
        recorded = get_path(instance, f"status.{status_field}") or {}
        known = find_condition(instance.get("status"), type)
        if template_trust(instance) == UNMARKED or not (has_releases(template, recorded) or known):
            return ()
        result = await self._template_releases.sync(instance, template, recorded, place)
        synced = result.as_condition(type)
        fields: Object = {status_field: {**recorded, **result.states}}
        await self._instances.write_status(instance, (synced,), **fields)
        return (synced,)

    def _pending_releases(self, instance: Object) -> Sequence[Object]:
        """The condition while charts and apps in it are not deployed yet, so that it is not ready before. One that is
        False already stays until the result is known: it would be written twice in each pass, and trigger the next."""
        template, recorded = (get_path(instance, f"status.{part}") or {} for part in ("virtualCluster", _INNER_OBJECTS))
        known = find_condition(instance.get("status"), VC_APPS_SYNCED) or {}
        if not has_releases(template, recorded) or known.get("status") == FALSE or template_trust(instance) == UNMARKED:
            return ()
        place = self._inner_place(instance)
        is_synced = self._template_releases.is_synced(instance, template, recorded, place)
        return () if is_synced else (deploying_condition(VC_APPS_SYNCED),)

    def _host_place(self, instance: Object) -> ReleasePlace:
        """The namespace that the virtual cluster runs in, with the permissions that its own chart has."""
        release = build_removal_release(instance)
        target = cluster_target(self._clusters, get_path(instance, "spec.clusterRef.cluster"))
        return ReleasePlace(target, release.namespace, release.impersonate_user, is_confined=is_confined(instance))

    def _inner_place(self, instance: Object) -> ReleasePlace:
        key, clusters = (metadata(instance)["namespace"], name_of(instance)), self._clusters
        target = ReleaseTarget(
            key[1], lambda: clusters.virtual_cluster_endpoint(*key), lambda: clusters.virtual_cluster_api(*key)
        )
        confined = is_confined(instance)
        return ReleasePlace(target, "default", allows_other_namespaces=True, is_confined=confined)

    def _cluster_ref(self, instance: Object, project: Object) -> Object:
        """The clusterRef with namespace and release name, which are chosen once and never change."""
        ref: Object = get_path(instance, "spec.clusterRef")
        names = {"project": name_of(project), "name": name_of(instance)}
        if not ref.get("namespace"):
            pattern = get_path(project, "spec.namespacePattern.virtualCluster")
            namespace = (
                namespace_from_pattern(pattern, names)
                if pattern
                else default_namespace(VIRTUAL_CLUSTER_LABEL, names["project"], names["name"])
            )
            ref = {**ref, "namespace": namespace}
        return {**ref, "virtualCluster": ref.get("virtualCluster") or release_name(names["name"])}

    def _remote_namespace(self, instance: Object) -> RemoteNamespace:
        """Labelled with `status.serviceUID`, which does not change when the instance moves to another project."""
        ref = get_path(instance, "spec.clusterRef")
        name = name_of(instance)
        uid = get_path(instance, "status.serviceUID") or metadata(instance)["uid"]
        labels = ownership_labels(VIRTUAL_CLUSTER_LABEL, self._instances.project_name(instance), name, uid)
        return RemoteNamespace(ref["cluster"], ref.get("namespace") or "", labels)

    async def _apply_namespace(self, instance: Object, release: Release) -> tuple[Sequence[Object], bool]:
        """Applies the namespace. Returns its conditions, and whether it was just created."""
        target = self._remote_namespace(instance)
        template = get_path(instance, "status.virtualCluster.spaceTemplate") or {}
        plan = plan_template(self._config.confinement, instance, template, target.namespace)
        objects = () if plan.skips_contents else parse_objects(template.get("objects") or "")
        bindings = confinement_bindings(release, self._config.confinement.chart_role)
        try:
            result = await self._contents.apply(instance, target, plan, DesiredContents(bindings, objects))
        finally:
            await self._instances.write_status(instance, (), **applied_trust_fields(instance, plan))
        message = f'namespace "{target.namespace}" in cluster "{target.cluster}" is in sync'
        message += f"{self._drift.watch_caveat(instance)}{plan.omitted_note}"
        status, reason = (TRUE, "Active") if result.is_usable else (FALSE, "Terminating")
        ready = condition(SPACE_READY, status, reason, message)
        return (condition(SPACE_SYNCED, TRUE, "Synced", message), ready), result.is_new

    async def _tear_down(self, instance: Object, target: RemoteNamespace) -> InstanceError | None:
        """Uninstalls the release, then deletes the namespace. Returns what that waits for; None when done."""
        self._drift.track_removal(instance, target)
        api = self._clusters.cluster_api(target.cluster)
        existing = await get_or_none(api, target.path)
        if existing is not None and is_owned_by(existing, target) and "deletionTimestamp" not in metadata(existing):
            recorded = get_path(instance, "status.spaceObjects")
            await self._template_releases.uninstall_all(instance, recorded, self._host_place(instance))
            await self._releases.uninstall(instance)
        remaining = await delete_namespace(api, target)
        if remaining is None:
            self._releases.forget(instance)
        return remaining
