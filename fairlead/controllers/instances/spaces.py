"""Reconciles spaces: one namespace in a connected cluster for each.

A space that names a cluster with a kubeconfig gets a namespace there, with the labels, annotations and objects of its
template, and RoleBindings for its users. It is reconciled when it, its cluster, its project or the remote objects
change, and periodically, so that drift is repaired. A finalizer delays its deletion until the namespace is deleted. An
unreachable cluster is reported in the conditions; an annotation skips the cleanup.
"""

from collections.abc import Callable, Sequence
from functools import partial

from fairlead.controllers.apps.template_releases import ReleasePlace, ReleaseSet, TemplateReleases, has_releases
from fairlead.controllers.helm.deploy import cluster_target
from fairlead.controllers.helm.slots import WAITING_FOR_HELM_SLOT
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.confinement import (
    TemplatePlan,
    app_deployer_user,
    check_owner,
    deployer_user,
    is_confined,
    plan_template,
)
from fairlead.controllers.instances.drift import DriftTracker
from fairlead.controllers.instances.instance_reconciler import (
    HELM_SLOT_RETRY_SECONDS,
    InstanceReconciler,
    ReconcileAttempt,
)
from fairlead.controllers.instances.namespace_contents import DesiredContents, NamespaceContents
from fairlead.controllers.instances.prerequisites import InstanceConfig, InstanceContext, InstanceTriggers
from fairlead.controllers.instances.remote_errors import INFO, NAMESPACE_TERMINATING, InstanceError
from fairlead.controllers.instances.remote_namespace import (
    NAMESPACE_CONFLICT,
    SPACE_LABEL,
    RemoteNamespace,
    delete_namespace,
)
from fairlead.controllers.instances.remote_objects import parse_objects, parse_recorded_objects
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX, build_deployer_binding, build_role_bindings
from fairlead.controllers.instances.sleep_step import SleepStep
from fairlead.controllers.instances.status import APPS_SYNCED, SPACE_FINALIZER, derive_current_status
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.backoff import add_jitter
from fairlead.core.objects import Object
from fairlead.domain.typed_objects import SPACE_OBJECTS, SPACE_READY, SPACE_SYNCED, Project, SpaceInstance
from fairlead.kinds.instances.remote_instances import SPACE
from fairlead.registry.conditions import FALSE, UNKNOWN, condition
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key

RESYNC_SECONDS = 60.0
"""Resync interval of a space whose remote objects are not all watched."""


class SpaceController:
    name, workers = "spaces", 32

    def __init__(
        self, registry: Registry, config: InstanceConfig, clusters: ClusterAccess, template_releases: TemplateReleases
    ) -> None:
        self._config = config
        self._clusters = clusters
        self._template_releases = template_releases
        self._context = InstanceContext(registry, config)
        triggers = InstanceTriggers(self._context, SPACE.plural)
        self.watches = triggers.watches
        self.keys_for = triggers.keys_for
        derive = partial(derive_current_status, self._context)
        resource = (config.api_group, SPACE.plural)
        self._spaces = InstanceReconciler(registry, resource, SpaceInstance, SPACE_FINALIZER, derive)
        self._drift = DriftTracker(registry, clusters.watch_sender, SPACE_LABEL, resource)
        self._contents = NamespaceContents(self._spaces, self._context, clusters, self._drift, SPACE_LABEL, "space")
        self._sleep = SleepStep(self._contents)

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Changes in remote clusters, and free slots for helm, trigger a reconcile, too."""
        end_changes = self._drift.informers.subscribe(self._spaces.retry_on_change(requeue))
        end_slots = self._template_releases.subscribe((self._config.api_group, SPACE.plural), requeue)

        def unsubscribe() -> None:
            end_changes()
            end_slots()

        return unsubscribe

    async def reconcile(self, key: Key) -> float | None:
        space = self._spaces.find(key)
        if space is None or space.is_ignored:
            self._drift.forget(key)
            return None
        with self._drift.cluster_slot(space, self.workers) as wait:
            requeue_after = wait or await self._reconcile_space(space)
        if requeue_after is None and not self._is_managed(space):
            self._drift.forget(key)
        return requeue_after

    async def _reconcile_space(self, space: SpaceInstance) -> float | None:
        if space.is_deleting:
            requeue_after = await self._contents.remove(space, partial(self._tear_down, space))
            if requeue_after is None:
                self._template_releases.forget(space)
            return requeue_after
        project = self._context.project(space)
        if project is None or not self._is_managed(space) or not space.is_resolved:
            return None
        if not self._context.can_deploy(space):
            self._spaces.backoff.reset(space.key)
            return None
        return await self._spaces.run(space, self._context.attempt_inputs, partial(self._ensure, project=project))

    def _is_managed(self, space: SpaceInstance) -> bool:
        """Whether its namespace in a cluster is managed by this controller."""
        return not space.virtual_cluster and not space.is_deleting and self._context.has_transport(space)

    async def _ensure(self, run: ReconcileAttempt[SpaceInstance], project: Project) -> float:
        """The steps to Ready, in order."""
        asleep = await self._sleep.run(run)
        if asleep is not None:
            return asleep
        run.stage = SPACE_SYNCED
        run.describe_failure = _failed_conditions
        run.fields = {"online": False}
        space = run.instance = await self._contents.claim(run.instance, project)

        plan = plan_template(self._config.confinement, space)
        rules, omitted = self._config.confinement.confine_extra_rules(space)
        desired = self._build_contents(space, rules, project, plan)
        run.fields |= plan.status_fields
        result = await self._contents.apply(space, plan, desired)
        space = run.instance = result.instance
        run.done(SPACE_SYNCED, "Synced", f"{result.message}{omitted}")

        run.fields["online"] = result.is_usable
        if result.is_usable:
            run.done(SPACE_READY, "Active", "the namespace can be used")
        else:
            message = "the namespace is terminating; it will be created again after that"
            run.conditions.append(condition(SPACE_READY, FALSE, "Terminating", message, INFO))
        run.conditions += self._template_releases.find_pending(space, self._release_set(space))
        space = await self._spaces.write_status(space, run.conditions, **run.fields)

        errors = await self._template_releases.deploy(self._spaces, space, self._release_set(space))
        if any(each.reason == WAITING_FOR_HELM_SLOT for each in errors):
            return add_jitter(HELM_SLOT_RETRY_SECONDS)
        return add_jitter(RESYNC_SECONDS if errors else self._drift.resync_seconds(space, RESYNC_SECONDS))

    def _build_contents(
        self, space: SpaceInstance, rules: Sequence[Object], project: Project, plan: TemplatePlan
    ) -> DesiredContents:
        """What the namespace should contain. `rules` are the access rules of the space itself that are allowed."""
        namespace = space.remote_namespace
        previous = parse_recorded_objects(space)
        objects = previous if plan.skips_contents else parse_objects(space.rendered.get("objects") or "")
        uses_charts = not plan.skips_contents and has_releases(space.rendered, space.space_objects)
        deployer = plan.impersonate_user if objects or previous or uses_charts else ""
        limited = SpaceInstance({**space.raw, "spec": {**space.spec, "extraAccessRules": rules}})
        access = plan.template.get("access") or {}
        bindings = build_role_bindings(self._config.names, limited, access, project, namespace, deployer)
        if uses_charts and not plan.impersonate_user:
            # Charts of an administrator's template are deployed with a role in the namespace only: users of the space
            # can write Secrets there, and Helm trusts the Secrets of its releases.
            role = self._config.confinement.chart_role
            user = app_deployer_user(namespace)
            bindings.append(build_deployer_binding(f"{BINDING_PREFIX}charts", namespace, role, user))
        return DesiredContents(bindings, objects)

    def _release_set(self, space: SpaceInstance) -> ReleaseSet:
        """The charts and apps of its template."""

        def place() -> ReleasePlace:
            namespace = space.remote_namespace
            confined = is_confined(space)
            if confined:
                check_owner(self._spaces.registry, self._config.api_group, space)
            user = deployer_user(namespace) if confined else app_deployer_user(namespace)
            return ReleasePlace(cluster_target(self._clusters, space.cluster), namespace, user, is_confined=confined)

        return ReleaseSet(space.rendered, SPACE_OBJECTS, APPS_SYNCED, place)

    async def _tear_down(self, space: SpaceInstance, target: RemoteNamespace) -> None:
        await delete_namespace(self._clusters.cluster_api(target.cluster), target)


def _failed_conditions(space: SpaceInstance, error: InstanceError) -> Sequence[Object]:
    """SpaceReady is Unknown only if the namespace was Ready before: the agent of the cluster relies on that."""
    synced = error.as_condition(SPACE_SYNCED)
    if error.reason in (NAMESPACE_CONFLICT, NAMESPACE_TERMINATING):
        return synced, error.as_condition(SPACE_READY)
    if space.condition(SPACE_READY).get("status") in (None, FALSE):
        return (synced,)
    return synced, condition(SPACE_READY, UNKNOWN, error.reason, "the namespace is not in sync")
