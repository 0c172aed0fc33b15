"""Reconciles virtual clusters: deploys them into connected clusters with Helm, and probes deployed and imported ones.

An instance with `spec.config` is imported: it is only probed. Others, in a cluster with a kubeconfig, get a namespace
there and the chart of their template. The kubeconfig that the chart stores in the Secret `vc-<release>` is copied to a
secret beside the instance, for the gateway. The chart of an administrator's template is deployed with the stored
credential of the cluster. Any other is not trusted, so it is deployed as a user with access to its namespace only.
"""

from collections.abc import Callable, Iterable, Sequence

from fairlead.controllers.helm.chart import Release, release_name
from fairlead.controllers.helm.deploy import Deployer, Deploying
from fairlead.controllers.helm.helm import WAITING
from fairlead.controllers.instances.cluster_access import Reach
from fairlead.controllers.instances.confinement import applied_as, plan_template
from fairlead.controllers.instances.drift import Upkeep
from fairlead.controllers.instances.namespace_contents import Contents, Wanted
from fairlead.controllers.instances.prerequisites import Setting, is_connected
from fairlead.controllers.instances.remote_errors import Trouble
from fairlead.controllers.instances.remote_instance import POLL, TURN, ConnectedInstances, Removing, is_resolved
from fairlead.controllers.instances.remote_names import VIRTUAL_CLUSTER, default_namespace, marks, patterned_namespace
from fairlead.controllers.instances.remote_namespace import Place, found_at, is_ours, remove_namespace
from fairlead.controllers.instances.remote_objects import parsed
from fairlead.controllers.instances.status import DEPLOYED, SPACE_READY, SPACE_SYNCED, VIRTUAL_CLUSTER_FINALIZER
from fairlead.controllers.instances.vcluster_access import VirtualClusterAccess
from fairlead.controllers.instances.vcluster_release import SYNCED, confining, release_of, seen_from
from fairlead.controllers.runtime.backoff import jittered
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.errors import BadRequest, NotFound
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.registry.conditions import FALSE, TRUE, condition
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.upstream.errors import Broken, UpstreamError
from fairlead.upstream.kube_client import FarError

VIRTUAL_CLUSTERS = "virtualclusterinstances"
PROBE, LAST_PROBE = 15.0, 120.0
"""Probe interval of a reachable virtual cluster, and the maximum for an unreachable one."""


class VirtualClusters:
    # Many, since they mostly wait for responses of virtual clusters, which may be slow.
    name, workers = "virtual-clusters", 512

    def __init__(
        self, registry: Registry, setting: Setting, reach: Reach, helm: Deployer, repositories: Sequence[str] = ()
    ) -> None:
        self._instances = ConnectedInstances(registry, setting, VIRTUAL_CLUSTERS, VIRTUAL_CLUSTER_FINALIZER)
        self.watches = self._instances.watches
        self._removing = Removing(self._instances, self._take_down, SPACE_SYNCED, SPACE_READY)
        self._reach = reach
        self._access = VirtualClusterAccess(registry, setting, reach)
        self._deploying = Deploying(registry, reach, helm, repositories)
        self._upkeep = Upkeep(registry, reach.watching, VIRTUAL_CLUSTER, (setting.api_group, VIRTUAL_CLUSTERS))
        self._setting = setting
        self._contents = Contents(registry, setting, reach, self._upkeep)
        self._unanswered: dict[tuple[str, str], int] = {}
        """By namespace and name of an instance: consecutive failed probes."""

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Changes in remote clusters trigger a reconcile, too."""
        return self._upkeep.informers.subscribe(self._instances.trying_again(requeue))

    def concerned(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        return self._instances.concerned(key, entry)

    async def reconcile(self, key: Key) -> float | None:
        instance = self._instances.see(key)
        if instance is None or "deletionTimestamp" in metadata(instance):
            self._reach.forget_virtual_cluster(key[2], key[3])
            self._unanswered.pop((key[2], key[3]), None)
        if instance is None:
            self._upkeep.forget(key)
            return None
        if "deletionTimestamp" in metadata(instance):
            return await self._remove(key, instance)
        if dig(instance, "spec.networkPeer"):
            return None
        if dig(instance, "spec.config.secretName"):
            imported = condition(DEPLOYED, TRUE, "Imported", "it is imported: spec.config names its kubeconfig")
            return await self._look(instance, (imported,))
        project = self._instances.project(instance)
        if not is_connected(self._instances.cluster(instance)):
            self._upkeep.forget(key)
        if project is None or dig(instance, "spec.external") or not self._is_ready_to_go(instance):
            return None
        with self._upkeep.turn(instance, self.workers) as wait:
            return wait or self._instances.wait(instance) or await self._keep(instance, project)

    async def _remove(self, key: Key, instance: Object) -> float | None:
        if self._access.holds(instance) and (requeue_after := await self._access.take_away(instance)) is not None:
            return requeue_after
        with self._upkeep.turn(instance, self.workers) as wait:
            requeue_after = wait or await self._remove_from_cluster(instance)
        if requeue_after is None:
            self._upkeep.forget(key)
        return requeue_after

    async def _remove_from_cluster(self, instance: Object) -> float | None:
        return await self._removing.remove(instance, self._place) if self._instances.holds(instance) else None

    def _is_ready_to_go(self, instance: Object) -> bool:
        if not dig(instance, "status.serviceUID") or not is_resolved(instance):
            return False
        if not self._instances.can_be_made(instance):
            self._instances.start_over(instance)
            return False
        return is_connected(self._instances.cluster(instance))

    async def _keep(self, instance: Object, project: Object) -> float | None:
        """Runs the deployment steps in order, up to the first that fails."""
        done: list[Object] = []
        fields: Object = {}
        stage = DEPLOYED
        try:
            self._deploying.check(instance)
            instance = await self._instances.settle(instance, lambda current: self._cluster_ref(current, project))
            if "deletionTimestamp" in metadata(instance) or not is_resolved(instance):
                return POLL  # it has changed meanwhile, and the rendered template is outdated
            stage, release = SPACE_SYNCED, release_of(instance)
            if release.confined_to:  # recorded before anything is created, since later releases depend on it
                await self._instances.tell(instance, (), deployedConfined=True)
            conditions, is_new = await self._make_space(instance, release)
            done += conditions
            stage = DEPLOYED
            if is_new:  # an earlier deployment was deleted with the namespace
                fields["deployHash"] = ""
            fields["deployHash"] = await self._deploying.deploy(instance, release, anew=is_new)
            done.append(condition(DEPLOYED, TRUE, "Deployed", f'release "{release.name}" is deployed'))
            stage = SYNCED
            await self._deploying.take_kubeconfig(instance, release)
            done.append(condition(SYNCED, TRUE, "Synced", "the kubeconfig that the chart created is in use"))
        except NotFound:  # it was deleted meanwhile
            return None
        except Trouble as error:
            done.append(error.as_condition(stage))
            await self._instances.tell(instance, done, **fields)
            return jittered(TURN) if error.reason == WAITING else self._instances.failed(instance, error)
        self._instances.start_over(instance)
        return await self._look(instance, done, **fields)

    async def _look(self, instance: Object, told: Sequence[Object], **fields: object) -> float:
        """Probes the virtual cluster, binds the roles of its users, and writes the status."""
        instance_key = metadata(instance)["namespace"], name_of(instance)
        response: Object | UpstreamError | FarError
        try:
            response = await self._reach.version(*instance_key)
        except (UpstreamError, FarError) as error:
            response = error
        except BadRequest as error:
            response = Broken(error.message)
        online, ready = seen_from(response)
        is_online = online["status"] == TRUE
        access = await self._access.give(instance) if ready["status"] == TRUE else ()
        await self._instances.tell(instance, (*told, online, ready, *access), online=is_online, **fields)
        if is_online:
            self._unanswered.pop(instance_key, None)
            return jittered(PROBE)
        failures = self._unanswered[instance_key] = min(self._unanswered.get(instance_key, 0) + 1, 8)
        return jittered(min(LAST_PROBE, PROBE * 2 ** (failures - 1)))

    def _cluster_ref(self, instance: Object, project: Object) -> Object:
        """The clusterRef with namespace and release name, which are chosen once and never change."""
        ref: Object = dig(instance, "spec.clusterRef")
        names = {"project": name_of(project), "name": name_of(instance)}
        if not ref.get("namespace"):
            pattern = dig(project, "spec.namespacePattern.virtualCluster")
            namespace = (
                patterned_namespace(pattern, names)
                if pattern
                else default_namespace(VIRTUAL_CLUSTER, names["project"], names["name"])
            )
            ref = {**ref, "namespace": namespace}
        return {**ref, "virtualCluster": ref.get("virtualCluster") or release_name(names["name"])}

    def _place(self, instance: Object) -> Place:
        """Labelled with `status.serviceUID`, which does not change when the instance moves to another project."""
        ref, name = dig(instance, "spec.clusterRef"), name_of(instance)
        uid = dig(instance, "status.serviceUID") or metadata(instance)["uid"]
        labels = marks(VIRTUAL_CLUSTER, self._instances.project_name(instance), name, uid)
        return Place(ref["cluster"], ref.get("namespace") or "", labels)

    async def _make_space(self, instance: Object, release: Release) -> tuple[Sequence[Object], bool]:
        """Applies the namespace. Returns its conditions, and whether it was just created."""
        target, template = self._place(instance), dig(instance, "status.virtualCluster.spaceTemplate") or {}
        plan = plan_template(self._setting.confinement, instance, template, target.namespace)
        objects = () if plan.leaves_contents else parsed(template.get("objects") or "")
        bindings = confining(release, self._setting.confinement.chart_role)
        try:
            result = await self._contents.make(instance, target, plan, Wanted(bindings, objects))
        finally:
            await self._instances.tell(instance, (), **applied_as(instance, plan))
        message = f'namespace "{target.namespace}" in cluster "{target.cluster}" is in sync'
        message += f"{self._upkeep.caveat(instance)}{plan.left_out}"
        status, reason = (TRUE, "Active") if result.usable else (FALSE, "Terminating")
        ready = condition(SPACE_READY, status, reason, message)
        return (condition(SPACE_SYNCED, TRUE, "Synced", message), ready), result.is_new

    async def _take_down(self, instance: Object, place: Place) -> Trouble | None:
        """Uninstalls the release, then deletes the namespace. Returns what that waits for; None when done."""
        self._upkeep.follow_removal(instance, place)
        api = self._reach.cluster(place.cluster)
        existing = await found_at(api, place.path)
        if existing is not None and is_ours(existing, place) and "deletionTimestamp" not in metadata(existing):
            await self._deploying.uninstall(instance)
        remaining = await remove_namespace(api, place)
        if remaining is None:
            self._deploying.forget(instance)
        return remaining
