"""Finalizes a deleted Cluster: cleans up the remote cluster, then removes the finalizer. Used by `clusters.py`.

A Cluster gets its finalizer before anything is created in the remote cluster; one that was never reached has none. To
clean up are the ClusterRoleBinding of the administrators, and the record of this installation. Spaces, virtual
clusters, deployed apps and deployed runners have finalizers of their own; if some are left, an Event names them. An
unreachable cluster is retried: the condition `Ready` and an Event report that, and name the annotation that skips the
cleanup.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from fairlead.controllers.clusters.admin_binding import BINDING_NAME, bound_group, unbind_administrators
from fairlead.controllers.clusters.identity import IDENTITY_PROBE, Installation, release_identity
from fairlead.controllers.clusters.probe import PROBE_TIMEOUT
from fairlead.controllers.clusters.status import ADMINISTRATORS_BOUND, READY, STALLED
from fairlead.core.clock import timestamp
from fairlead.core.deployed_runners import DEPLOYMENT_FINALIZER, deployed_runner_name
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, add_finalizer, get_path, has_finalizer, metadata, name_of, remove_finalizer
from fairlead.domain.typed_objects import ABANDON_ANNOTATION, AppInstance, PlacedObject, TypedObject
from fairlead.kinds import CLUSTER_INSTANCES
from fairlead.kinds.clusters.runner import RUNNERS
from fairlead.kinds.instances.app_instance import APP_INSTANCE, TARGETS
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, condition, is_true, record_event, with_conditions, without_conditions
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.clusters import CLUSTERS, NotConnected, UpstreamRegistry
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream

FINALIZER: Final = "service.sh/cluster"
DELETING: Final = "Deleting"
BINDING_TITLE: Final = f'the ClusterRoleBinding "{BINDING_NAME}"'
RETRY_SECONDS = 5.0
CLUSTER_FIELD: Final = "spec.clusterRef.cluster"
MAX_LISTED_INSTANCES = 8
"""How many instances an Event lists."""


class _BindingDeletionError(Exception):
    """The cluster refused to delete the binding. `reason` is a condition reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class ClusterRemoval:
    def __init__(
        self,
        registry: Registry,
        api_group: str,
        upstreams: UpstreamRegistry,
        find_duplicate: Callable[[Object], str],
        installation: Callable[[], Installation | None],
    ) -> None:
        """`find_duplicate` returns the name of another Cluster for the same remote cluster, or an empty string."""
        self._registry = registry
        self._group = api_group
        self._clusters = registry.resource(api_group, CLUSTERS)
        self._upstreams = upstreams
        self._find_duplicate = find_duplicate
        self._installation = installation

    async def ensure_finalizer(self, cluster: Object) -> bool:
        """Adds the finalizer. False if the Cluster is deleted or being deleted: then nothing may be created there."""
        if has_finalizer(cluster, FINALIZER):
            return True
        uid = metadata(cluster)["uid"]
        is_added = False

        def edit(current: Object) -> Object:
            nonlocal is_added
            is_added = metadata(current)["uid"] == uid and "deletionTimestamp" not in metadata(current)
            return add_finalizer(current, FINALIZER) if is_added else current

        with suppress(NotFound):
            await self._clusters.modify("", name_of(cluster), edit, server_write_options())
        return is_added

    async def finalize(self, cluster: Object) -> float | None:
        """Continues a deletion. Returns the seconds until the next try; None when the finalizer is removed."""
        if not has_finalizer(cluster, FINALIZER):
            return None
        await self._release_identity(cluster)
        try:
            left_behind = await self._clean_up(cluster)
        except (UpstreamError, _BindingDeletionError) as error:
            await self._report_blocked(cluster, error.reason, error.message)
            return RETRY_SECONDS
        if others := self._list_instances(name_of(cluster)):
            left_behind = [*left_behind, _describe_instances(others)]
        if left_behind:
            await record_event(self._registry, cluster, "LeftBehind", "; ".join(left_behind), type="Warning")
        await self._remove_finalizer(cluster)
        return None

    async def _clean_up(self, cluster: Object) -> list[str]:
        """Deletes the binding. Returns messages about what is left. Raises UpstreamError and _BindingDeletionError."""
        if not is_true(cluster.get("status"), ADMINISTRATORS_BOUND):
            return []
        if TypedObject(cluster).is_abandoned:
            return [f"{BINDING_TITLE} was left in the cluster, as the annotation {ABANDON_ANNOTATION} requests"]
        if other := self._find_duplicate(cluster):
            return [f'{BINDING_TITLE} was kept for the Cluster "{other}", which is the same cluster']
        try:
            upstream = self._upstreams.open_cleanup_upstream(name_of(cluster))
        except NotConnected as error:
            return [f"{BINDING_TITLE} was left in the cluster, which cannot be reached any more: {error.message}"]
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                message = await _remove_binding(upstream, bound_group(cluster.get("status")))
        except TimeoutError:
            raise _BindingDeletionError(
                "TimedOut", f"the cluster did not answer within {PROBE_TIMEOUT:.0f} seconds"
            ) from None
        finally:
            await upstream.close()
        return [message] if message else []

    async def _release_identity(self, cluster: Object) -> None:
        """Removes the record of this installation. It does not delay the deletion: the record harms only another
        installation with the same prefix, which names it."""
        installation = self._installation()
        probes = get_path(cluster, "status.probes") or ()
        is_recorded = any((each["name"], each["ok"]) == (IDENTITY_PROBE, True) for each in probes)
        if installation is None or not is_recorded:
            return
        if TypedObject(cluster).is_abandoned or self._find_duplicate(cluster):
            return
        with suppress(NotConnected, UpstreamError, TimeoutError):
            upstream = self._upstreams.open_cleanup_upstream(name_of(cluster))
            try:
                async with asyncio.timeout(PROBE_TIMEOUT):
                    await release_identity(upstream, installation)
            finally:
                await upstream.close()

    async def _report_blocked(self, cluster: Object, reason: str, detail: str) -> None:
        """Reports what the deletion waits for, and how to skip that."""
        now = timestamp(self._registry.clock.now())
        message = (
            f"waiting for the deletion of {BINDING_TITLE} in the cluster, which fails ({reason}): {detail}; to leave "
            "the "
            f"binding there, annotate this Cluster with {ABANDON_ANNOTATION}=true"
        )

        def edit(current: Object) -> Object:
            status = without_conditions(current.get("status"), STALLED)
            ready = condition(READY, FALSE, DELETING, message, "Warning")
            status = with_conditions(status, (ready,), now, metadata(current).get("generation"))
            return {**current, "status": {**status, "reason": DELETING, "message": message, "online": False}}

        if get_path(cluster, "status.message") == message:
            return
        with suppress(NotFound):
            await self._clusters.modify("", name_of(cluster), edit, server_write_options("status"))
        if get_path(cluster, "status.reason") != DELETING:
            await record_event(self._registry, cluster, "DeletionBlocked", message, type="Warning")

    async def _remove_finalizer(self, cluster: Object) -> None:
        with suppress(NotFound):
            await self._clusters.modify(
                "", name_of(cluster), lambda current: remove_finalizer(current, FINALIZER), server_write_options()
            )

    def _list_instances(self, cluster: str) -> list[str]:
        """The instances, and the apps and runners that are deployed, in the cluster, each with its remote namespace.
        Apps that are deployed into one of the instances are in the cluster, too."""
        found = []
        targets = {(CLUSTERS, "", cluster)}
        for plural, instance in CLUSTER_INSTANCES.items():
            for entry in self._registry.view.entries(self._group, plural):
                if entry.fields.get(CLUSTER_FIELD) == cluster:
                    namespace = PlacedObject(decode(entry)).remote_namespace or "none yet"
                    found.append(f"{instance.noun} {entry.key[2]}/{entry.key[3]} (namespace {namespace})")
                    targets.add((plural, entry.key[2], entry.key[3]))
        for entry in self._registry.view.entries(self._group, APP_INSTANCE.plural):
            for field, (plural, _) in TARGETS.items():
                namespace = "" if plural == CLUSTERS else entry.key[2]
                if (plural, namespace, entry.fields.get(f"spec.target.{field}.name")) in targets:
                    release = AppInstance(decode(entry)).release
                    if release.get("name"):
                        found.append(f"app {entry.key[2]}/{entry.key[3]} (namespace {release.get('namespace')})")
        for entry in self._registry.view.entries(self._group, RUNNERS):
            runner = PlacedObject(decode(entry))
            if runner.cluster == cluster and has_finalizer(runner.raw, DEPLOYMENT_FINALIZER):
                namespace = runner.remote_namespace or deployed_runner_name(runner.name)
                found.append(f"runner {runner.name} (namespace {namespace})")
        return found


def _describe_instances(instances: Sequence[str]) -> str:
    more = f" and {len(instances) - MAX_LISTED_INSTANCES} more" if len(instances) > MAX_LISTED_INSTANCES else ""
    return f"objects of these instances were left in the cluster: {', '.join(instances[:MAX_LISTED_INSTANCES])}{more}"


async def _remove_binding(upstream: Upstream, group: str) -> str:
    """Removes the group from the binding. Returns a message if the binding itself is kept."""
    outcome = await unbind_administrators(upstream, group)
    if outcome.refused_verb:
        raise _refusal_error(outcome.status, outcome.refused_verb)
    return (
        f"{BINDING_TITLE} was left in the cluster, since {outcome.retained_reason}" if outcome.retained_reason else ""
    )


def _refusal_error(status: int, verb: str) -> _BindingDeletionError:
    if status == 401:
        return _BindingDeletionError("Unauthorized", "the cluster rejects the stored credential; store a new one")
    if status == 403:
        message = f"the stored credential may not {verb} it; grant that permission, or delete the binding yourself"
        return _BindingDeletionError("Forbidden", message)
    return _BindingDeletionError("Unhealthy", f"the cluster returns HTTP status {status}; check its API server")
