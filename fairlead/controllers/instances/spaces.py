"""Reconciles spaces: one namespace in a connected cluster for each.

A space that names a cluster with a kubeconfig gets a namespace there, with the labels, annotations and objects of its
template, and RoleBindings for its users. It is reconciled when it, its cluster, its project or the remote objects
change, and periodically, so that drift is repaired. A finalizer delays its deletion until the namespace is deleted. An
unreachable cluster is reported in the conditions; an annotation skips the cleanup.
"""

from collections.abc import Callable, Iterable, Sequence

from fairlead.controllers.apps.template_releases import (
    ReleasePlace,
    ReleaseStates,
    TemplateReleases,
    deploying_condition,
    has_releases,
    is_waiting_for_slot,
)
from fairlead.controllers.helm.deploy import cluster_target
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.confinement import (
    app_deployer_user,
    applied_trust_fields,
    check_owner,
    deployer_user,
    describe_omitted,
    is_confined,
    plan_template,
    template_trust,
)
from fairlead.controllers.instances.drift import DriftTracker
from fairlead.controllers.instances.namespace_contents import DesiredContents, NamespaceContents
from fairlead.controllers.instances.prerequisites import InstanceConfig, has_kubeconfig
from fairlead.controllers.instances.remote_errors import INFO, NAMESPACE_TERMINATING, InstanceError
from fairlead.controllers.instances.remote_instance import (
    DELETION_POLL_SECONDS,
    HELM_SLOT_RETRY_SECONDS,
    RemoteCleanup,
    RemoteInstanceStore,
    is_resolved,
)
from fairlead.controllers.instances.remote_names import (
    SPACE_LABEL,
    default_namespace,
    namespace_from_pattern,
    ownership_labels,
)
from fairlead.controllers.instances.remote_namespace import NAMESPACE_CONFLICT, RemoteNamespace, delete_namespace
from fairlead.controllers.instances.remote_objects import (
    MAX_TRACKED_OBJECTS,
    encode_references,
    merge_objects,
    parse_objects,
)
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX, build_deployer_binding, build_role_bindings
from fairlead.controllers.instances.status import APPS_SYNCED, SPACE_FINALIZER
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.backoff import add_jitter
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.domain.spaces import SPACE_READY, SPACE_SYNCED
from fairlead.kinds.instances.templates import UNMARKED
from fairlead.registry.conditions import FALSE, TRUE, UNKNOWN, condition, find_condition
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

SPACES = "spaceinstances"
SYNCED, READY = SPACE_SYNCED, SPACE_READY
RESYNC_SECONDS = 60.0
"""Resync interval of a space whose remote objects are not all watched."""


class SpaceController:
    name, workers = "spaces", 32

    def __init__(
        self, registry: Registry, config: InstanceConfig, clusters: ClusterAccess, releases: TemplateReleases
    ) -> None:
        self._instances = RemoteInstanceStore(registry, config, SPACES, SPACE_FINALIZER)
        self.watches = self._instances.watches
        self._cleanup = RemoteCleanup(self._instances, self._tear_down, SYNCED, READY)
        self._clusters = clusters
        self._drift = DriftTracker(registry, clusters.watch_sender, SPACE_LABEL, (config.api_group, SPACES))
        self._config = config
        self._releases = releases
        self._contents = NamespaceContents(registry, config, clusters, self._drift)

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Changes in remote clusters trigger a reconcile, too."""
        return self._drift.informers.subscribe(self._instances.retry_on_change(requeue))

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        return self._instances.keys_for(key, entry)

    async def reconcile(self, key: Key) -> float | None:
        space = self._instances.get_managed(key)
        if space is None:
            self._drift.forget(key)
            return None
        with self._drift.cluster_slot(space, self.workers) as wait:
            requeue_after = wait or await self._reconcile_space(space)
        if requeue_after is None and not self._is_managed(space):
            self._drift.forget(key)
        return requeue_after

    def _is_managed(self, space: Object) -> bool:
        """Whether its namespace in a cluster is managed by this controller."""
        is_elsewhere = get_path(space, "spec.clusterRef.virtualCluster") or "deletionTimestamp" in metadata(space)
        return not is_elsewhere and has_kubeconfig(self._instances.cluster(space))

    async def _reconcile_space(self, space: Object) -> float | None:
        if "deletionTimestamp" in metadata(space):
            return (
                await self._cleanup.remove(space, self._remote_namespace)
                if self._instances.has_finalizer(space)
                else None
            )
        project = self._instances.project(space)
        if project is None or not self._is_managed(space) or not is_resolved(space):
            return None
        if not self._instances.can_deploy(space):
            self._instances.reset_backoff(space)
            return None
        return self._instances.backoff_seconds(space) or await self._ensure(space, project)

    async def _ensure(self, space: Object, project: Object) -> float | None:
        try:
            space = await self._instances.claim_placement(space, lambda current: self._cluster_ref(current, project))
            if "deletionTimestamp" in metadata(space) or not is_resolved(space):
                return DELETION_POLL_SECONDS  # it has changed meanwhile, and the rendered template is outdated
            await self._apply_template(space, project)
            releases = await self._deploy_releases(space)
        except NotFound:  # it was deleted meanwhile
            return None
        except InstanceError as error:
            await self._instances.write_status(space, _failed_conditions(space, error), online=False)
            return self._instances.record_failure(space, error)
        self._instances.reset_backoff(space)
        if releases is not None and releases.errors:
            waiting = is_waiting_for_slot(releases)
            return add_jitter(HELM_SLOT_RETRY_SECONDS if waiting else RESYNC_SECONDS)
        return add_jitter(self._drift.resync_seconds(space, RESYNC_SECONDS))

    def _cluster_ref(self, space: Object, project: Object) -> Object:
        """The clusterRef with a namespace, which is chosen once and never changes."""
        ref: Object = get_path(space, "spec.clusterRef")
        if ref.get("namespace"):
            return ref
        pattern = get_path(project, "spec.namespacePattern.space")
        name = name_of(space)
        values = {"project": name_of(project), "name": name}
        namespace = (
            namespace_from_pattern(pattern, values)
            if pattern
            else default_namespace(SPACE_LABEL, name_of(project), name)
        )
        return {**ref, "namespace": namespace}

    def _remote_namespace(self, space: Object) -> RemoteNamespace:
        ref = get_path(space, "spec.clusterRef")
        meta = metadata(space)
        labels = ownership_labels(SPACE_LABEL, self._instances.project_name(space), meta["name"], meta["uid"])
        return RemoteNamespace(ref["cluster"], ref.get("namespace") or "", labels)

    async def _apply_template(self, space: Object, project: Object) -> None:
        target = self._remote_namespace(space)
        rendered = get_path(space, "status.space") or {}
        plan = plan_template(self._config.confinement, space, rendered, target.namespace)
        before = parse_objects(get_path(space, "status.spaceObjects.lastAppliedObjects") or "", MAX_TRACKED_OBJECTS)
        objects = before if plan.skips_contents else parse_objects(rendered.get("objects") or "")
        rules, roles = self._config.confinement.confine_rules(get_path(space, "spec.extraAccessRules") or ())
        limited_space = {**space, "spec": {**space["spec"], "extraAccessRules": rules}}
        recorded = get_path(space, "status.spaceObjects")
        uses_charts = not plan.skips_contents and has_releases(rendered, recorded)
        deployer = plan.impersonate_user if objects or before or uses_charts else ""
        bindings = build_role_bindings(
            self._config.names, limited_space, plan.template, project, target.namespace, deployer
        )
        if uses_charts and not plan.impersonate_user:
            bindings.append(self._chart_binding(target.namespace))
        try:
            result = await self._contents.apply(space, target, plan, DesiredContents(bindings, objects, before))
        except InstanceError:  # some objects may have been applied
            await self._instances.write_status(
                space,
                (),
                **applied_trust_fields(space, plan),
                **_applied_objects_status(space, merge_objects(before, objects)),
            )
            raise
        caveat = f"{self._drift.watch_caveat(space)}{result.caveat}{plan.omitted_note}{describe_omitted((), roles)}"
        conditions = (*_synced_conditions(target, result.is_usable, caveat), *self._pending_releases(space))
        applied = _applied_objects_status(space, merge_objects(objects, result.retained))
        await self._instances.write_status(
            space, conditions, online=result.is_usable, **applied_trust_fields(space, plan), **applied
        )

    def _chart_binding(self, namespace: str) -> Object:
        """Charts of an administrator's template are deployed with a role in the namespace only: users of the space can
        write Secrets there, and Helm trusts the Secrets of its releases."""
        role, user = self._config.confinement.chart_role, app_deployer_user(namespace)
        return build_deployer_binding(f"{BINDING_PREFIX}charts", namespace, role, user)

    async def _deploy_releases(self, space: Object) -> ReleaseStates | None:
        """Deploys the charts and apps of the template. Returns None if there are none."""
        found = self._instances.get_managed(self._instances.key_of(space))
        rendered = get_path(found, "status.space") or {}
        recorded = get_path(found, "status.spaceObjects") or {}
        known = find_condition((found or {}).get("status"), APPS_SYNCED)
        if found is None or template_trust(found) == UNMARKED or not (has_releases(rendered, recorded) or known):
            return None
        try:
            place = self._release_place(found)
        except InstanceError as error:
            await self._instances.write_status(found, (error.as_condition(APPS_SYNCED),))
            return None
        result = await self._releases.sync(found, rendered, recorded, place)
        await self._instances.write_status(
            found, (result.as_condition(APPS_SYNCED),), spaceObjects={**recorded, **result.states}
        )
        return result

    def _pending_releases(self, space: Object) -> Sequence[Object]:
        """The condition while charts and apps are not deployed yet, so that the space is not ready before. One that is
        False already stays until the result is known: it would be written twice in each pass, and trigger the next."""
        rendered = get_path(space, "status.space") or {}
        recorded = get_path(space, "status.spaceObjects") or {}
        known = find_condition(space.get("status"), APPS_SYNCED) or {}
        if not has_releases(rendered, recorded) or known.get("status") == FALSE or template_trust(space) == UNMARKED:
            return ()
        try:
            is_synced = self._releases.is_synced(space, rendered, recorded, self._release_place(space))
        except InstanceError as error:
            return (error.as_condition(APPS_SYNCED),)
        return () if is_synced else (deploying_condition(APPS_SYNCED),)

    def _release_place(self, space: Object) -> ReleasePlace:
        cluster, namespace = (get_path(space, f"spec.clusterRef.{part}") for part in ("cluster", "namespace"))
        confined = is_confined(space)
        if confined:
            check_owner(self._instances.registry, self._config.api_group, space)
        user = deployer_user(namespace) if confined else app_deployer_user(namespace)
        return ReleasePlace(cluster_target(self._clusters, cluster), namespace, user, is_confined=confined)

    async def _tear_down(self, space: Object, target: RemoteNamespace) -> InstanceError | None:
        self._drift.track_removal(space, target)
        return await delete_namespace(self._clusters.cluster_api(target.cluster), target)


def _applied_objects_status(space: Object, objects: Sequence[Object]) -> Object:
    """The status fields with the objects that may exist, so that a later reconcile can delete them."""
    known = get_path(space, "status.spaceObjects") or {}
    applied = encode_references(objects)
    if not applied and not known.get("lastAppliedObjects"):
        return {}
    return {"spaceObjects": {**known, "lastAppliedObjects": applied}}


def _failed_conditions(space: Object, error: InstanceError) -> Sequence[Object]:
    """SpaceReady is Unknown only if the namespace was Ready before: the agent of the cluster relies on that."""
    synced = error.as_condition(SYNCED)
    if error.reason in (NAMESPACE_CONFLICT, NAMESPACE_TERMINATING):
        return synced, error.as_condition(READY)
    known = find_condition(space.get("status"), READY)
    if known is None or known.get("status") == FALSE:
        return (synced,)
    return synced, condition(READY, UNKNOWN, error.reason, "the namespace is not in sync")


def _synced_conditions(target: RemoteNamespace, is_usable: bool, caveat: str) -> Sequence[Object]:
    message = f'namespace "{target.namespace}" in cluster "{target.cluster}" is in sync{caveat}'
    synced = condition(SYNCED, TRUE, "Synced", message)
    if is_usable:
        return synced, condition(READY, TRUE, "Active", "the namespace can be used")
    return synced, condition(
        READY, FALSE, "Terminating", "the namespace is terminating; it will be created again after that", INFO
    )
