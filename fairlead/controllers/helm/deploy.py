"""Runs helm for releases, and manages those of virtual clusters: deploys them on changes, copies their kubeconfig, and
uninstalls them.

For `controllers/instances/virtual_clusters.py` and `controllers/apps/`. Helm runs take minutes, and any change of the
instance triggers a reconcile, so a failed run is not repeated at once.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import quote

from fairlead.controllers.helm.chart import Release, is_allowed_repository
from fairlead.controllers.helm.helm import RELEASE_PENDING
from fairlead.controllers.helm.slots import HelmSlots
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.confinement import check_owner, check_trust_marked
from fairlead.controllers.instances.remote_errors import ERROR, INFO, InstanceError, translate_errors
from fairlead.controllers.instances.remote_names import MANAGED_LABEL, MANAGED_VALUE
from fairlead.controllers.instances.remote_namespace import (
    NAMESPACES_PATH,
    delete_if_exists,
    get_or_none,
    list_items,
    uid_precondition,
    url_segment,
)
from fairlead.controllers.instances.vcluster_release import build_removal_release, require_chart
from fairlead.core.clock import Clock
from fairlead.core.errors import AlreadyExists
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.kinds.core.server_objects import is_generated_kubeconfig
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.clusters import DEFAULT_KUBECONFIG_KEY, kubeconfig_secret_name
from fairlead.upstream.kube_client import KubeApi
from fairlead.upstream.kubeconfig import InvalidKubeconfig, parse_kubeconfig

# --- pending release ---
# Clears releases that an interrupted helm run has left in a pending state.
#
# Helm stores each revision of a release in a Secret, and refuses to start while the latest one is pending. A run
# that was killed, or whose host crashed, leaves it pending for ever. So a pending revision that is older than any
# run can be is deleted. The deployed objects stay; the next helm run takes them over.


MAX_RUN_SECONDS = 600.0
"""`Helm` terminates a run well before that; the rest allows for clock skew."""
_PENDING_STATUSES = ("pending-install", "pending-upgrade", "pending-rollback")
_SECRET_NAME_PREFIX = "sh.helm.release.v1."


async def clear_pending_release(api: KubeApi, release: Release, now: datetime) -> bool:
    """Deletes pending revisions of interrupted runs. Returns whether there were any."""
    path = f"{NAMESPACES_PATH}/{url_segment(release.namespace)}/secrets"
    found = False
    for status in _PENDING_STATUSES:  # one by one: the Secrets of all revisions may exceed the response limit
        selector = quote(f"owner=helm,name={release.name},status={status}", safe="")
        for each in list_items(await api.get(f"{path}?labelSelector={selector}"), "items"):
            if name_of(each).startswith(_SECRET_NAME_PREFIX) and _age_seconds(each, now) > MAX_RUN_SECONDS:
                await delete_if_exists(api, f"{path}/{url_segment(name_of(each))}", uid_precondition(each))
                found = True
    return found


def _age_seconds(secret: Object, now: datetime) -> float:
    """Seconds since it was created; 0 if that is unknown."""
    try:
        created = datetime.fromisoformat(get_path(secret, "metadata.creationTimestamp"))
    except (TypeError, ValueError):
        return 0.0
    return (now - created.replace(tzinfo=created.tzinfo or UTC)).total_seconds()


FAILED_RETRY_SECONDS = 60.0
"""Seconds before a failed run is repeated with the same inputs."""


class ChartDeployer(Protocol):
    """Deploys charts; implemented by `helm.py`. All methods raise InstanceError."""

    def find_program(self) -> str: ...

    async def install(self, release: Release, endpoint: ClusterEndpoint) -> None: ...

    async def uninstall(self, release: Release, endpoint: ClusterEndpoint) -> None: ...


@dataclass(frozen=True, slots=True)
class ReleaseTarget:
    """The cluster that a release is in. `name` is for messages; `endpoint` and `api` raise UpstreamError."""

    name: str
    endpoint: Callable[[], Awaitable[ClusterEndpoint]]
    api: Callable[[], KubeApi]


class ReleaseRunner:
    """Runs helm for releases, with limits that all its users share: runs at once, and retries of failed runs."""

    def __init__(self, clock: Clock, helm: ChartDeployer) -> None:
        self._clock = clock
        self._helm = helm
        self._slots = HelmSlots(clock)
        self._failures: dict[str, tuple[str, float, InstanceError]] = {}
        """By key of the release: the hash of the failed release, when it may be retried, and the error."""

    def require_program(self) -> None:
        """Raises InstanceError if there is no helm program, before anything is created."""
        self._helm.find_program()

    async def install(self, key: str, project: str, target: ReleaseTarget, release: Release) -> None:
        """Installs or upgrades a release. A failed run is not repeated at once. `key` identifies the release, and
        `project` is what the runs are counted for. Raises InstanceError."""
        last_failure = self._failures.get(key)
        if last_failure is not None and last_failure[0] == release.hash and self._clock.monotonic() < last_failure[1]:
            raise InstanceError(last_failure[2].reason, last_failure[2].message, last_failure[2].severity)
        with self._slots.acquire(project):
            try:
                await self._install(target, release)
            except InstanceError as error:
                self._failures[key] = release.hash, self._clock.monotonic() + FAILED_RETRY_SECONDS, error
                raise
        self._failures.pop(key, None)

    async def _install(self, target: ReleaseTarget, release: Release) -> None:
        with translate_errors(target.name, "deploy a chart"):
            access = await target.endpoint()
            try:
                await self._helm.install(release, access)
            except InstanceError as error:
                if error.reason != RELEASE_PENDING:
                    raise
                if not await clear_pending_release(target.api(), release, self._clock.now()):
                    raise
                await self._helm.install(release, access)

    async def uninstall(self, project: str, target: ReleaseTarget, release: Release) -> None:
        """Uninstalls a release, if it exists. Raises InstanceError and UpstreamError."""
        with self._slots.acquire(project):
            await self._helm.uninstall(release, await target.endpoint())

    def forget(self, key: str) -> None:
        self._failures.pop(key, None)


class ReleaseManager:
    """The releases of virtual clusters. `repositories`: URL prefixes of repositories for charts that do not come from
    an administrator's template."""

    def __init__(
        self, registry: Registry, clusters: ClusterAccess, runner: ReleaseRunner, repositories: Sequence[str]
    ) -> None:
        self._registry = registry
        self._secrets = registry.resource("", "secrets")
        self._clusters = clusters
        self._runner = runner
        self._repositories = repositories

    def check(self, instance: Object) -> None:
        """Raises InstanceError if there is no chart or no helm program, before anything is created."""
        require_chart(instance)
        try:
            self._runner.require_program()
        except InstanceError as error:
            message = f"{error.message}, or import a running virtual cluster with spec.config"
            raise InstanceError(error.reason, message, error.severity) from None

    async def deploy(self, instance: Object, release: Release, *, force: bool = False) -> str:
        """Runs helm if the release has changed since the last deployment, or with `force`. Returns the release hash."""
        if not force and get_path(instance, "status.deployHash") == release.hash:
            return release.hash
        meta = metadata(instance)
        check_chart_allowed(self._registry, instance, release, self._repositories)
        await self._runner.install(meta["uid"], meta["namespace"], self._target(instance), release)
        return release.hash

    def _target(self, instance: Object) -> ReleaseTarget:
        return cluster_target(self._clusters, get_path(instance, "spec.clusterRef.cluster"))

    async def uninstall(self, instance: Object) -> None:
        """Skipped without a helm program: the namespace is deleted anyway, with nearly all objects of the chart."""
        try:
            self._runner.require_program()
        except InstanceError:
            return
        release = build_removal_release(instance)
        project = metadata(instance)["namespace"]
        await self._runner.uninstall(project, self._target(instance), release)

    def forget(self, instance: Object) -> None:
        self._runner.forget(metadata(instance)["uid"])

    async def copy_kubeconfig(self, instance: Object, release: Release) -> None:
        """Copies the kubeconfig that the chart created to the secret that the gateway reads."""
        content = await self._read_chart_kubeconfig(get_path(instance, "spec.clusterRef.cluster"), release)
        try:
            parse_kubeconfig(content)
        except InvalidKubeconfig as error:
            message = (
                f"the kubeconfig that the chart created cannot be used: {'; '.join(error.problems)}; fix its values"
            )
            raise InstanceError("InvalidKubeconfig", message, ERROR) from error
        await self._store_kubeconfig(instance, b64encode(content).decode())

    async def _read_chart_kubeconfig(self, cluster: str, release: Release) -> bytes:
        name = f"vc-{release.name}"
        with translate_errors(cluster, f'read secret "{name}"'):
            path = f"{NAMESPACES_PATH}/{url_segment(release.namespace)}/secrets/{url_segment(name)}"
            secret = await get_or_none(self._clusters.cluster_api(cluster), path)
        try:
            content = b64decode(get_path(secret, "data")[DEFAULT_KUBECONFIG_KEY], validate=True) if secret else b""
        except (KeyError, TypeError, ValueError, NotBase64):
            content = b""
        if not content:
            message = (
                f'waiting for the chart to create the kubeconfig in secret "{name}", key "{DEFAULT_KUBECONFIG_KEY}"'
            )
            raise InstanceError("WaitingForKubeconfig", message, INFO)
        return content

    async def _store_kubeconfig(self, instance: Object, content: str) -> None:
        meta = metadata(instance)
        name, namespace = kubeconfig_secret_name(meta["name"]), meta["namespace"]
        entry = self._secrets.get_cached(namespace, name)
        if entry is None:
            body = _build_secret(instance, name, content)
            try:
                await self._secrets.create(body, namespace, server_write_options())
            except AlreadyExists as error:
                raise _secret_taken_error(name) from error
            return
        if not is_generated_kubeconfig(decode(entry), meta["uid"]):
            raise _secret_taken_error(name)

        def edit(current: Object) -> Object:
            is_own = is_generated_kubeconfig(current, meta["uid"])
            return {**current, "data": {DEFAULT_KUBECONFIG_KEY: content}} if is_own else current

        if edit(decode(entry)) != decode(entry):
            await self._secrets.modify(namespace, name, edit, server_write_options())


def cluster_target(clusters: ClusterAccess, cluster: str) -> ReleaseTarget:
    """A connected cluster, with its stored credential."""
    return ReleaseTarget(cluster, lambda: clusters.cluster_endpoint(cluster), lambda: clusters.cluster_api(cluster))


def check_chart_allowed(registry: Registry, instance: Object, release: Release, repositories: Sequence[str]) -> None:
    """Raises InstanceError unless an administrator allowed the chart or its repository."""
    if not release.impersonate_user:
        check_trust_marked(instance)
        return
    check_owner(registry, str(instance["apiVersion"]).partition("/")[0], instance)
    if not is_allowed_repository(release.chart.repo, repositories):
        message = (
            "the chart does not come from an administrator's template, and its repository is not in the setting "
            "chart_repositories; create a new instance from an administrator's template (spec.templateRef), or ask "
            "an administrator to add the repository to that setting"
        )
        raise InstanceError("RepositoryNotAllowed", message, ERROR)


def _secret_taken_error(name: str) -> InstanceError:
    message = (
        f'secret "{name}" exists and does not belong to this instance; delete it, so that the kubeconfig can be stored'
    )
    return InstanceError("SecretConflict", message, ERROR)


def _build_secret(instance: Object, name: str, content: str) -> Object:
    meta = metadata(instance)
    owner = {
        "apiVersion": instance["apiVersion"],
        "kind": instance["kind"],
        "name": name_of(instance),
        "uid": meta["uid"],
    }
    secret_meta = {
        "name": name,
        "namespace": meta["namespace"],
        "labels": {MANAGED_LABEL: MANAGED_VALUE},
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": secret_meta, "data": {DEFAULT_KUBECONFIG_KEY: content}}
