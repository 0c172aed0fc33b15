"""Manages the Helm release of a virtual cluster: deploys it on changes, copies its kubeconfig, and uninstalls it.

For `controllers/instances/virtual_clusters.py`. Helm runs take minutes, and any change of the instance triggers a
reconcile, so a failed run is not repeated at once.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from typing import Protocol

from fairlead.controllers.helm.chart import Chart, Release, is_listed
from fairlead.controllers.helm.helm import RELEASE_PENDING, Turns
from fairlead.controllers.helm.pending_release import clear_pending_release
from fairlead.controllers.instances.cluster_access import Reach
from fairlead.controllers.instances.confinement import check_marked, check_owner
from fairlead.controllers.instances.remote_errors import ERROR, INFO, Trouble, troubles
from fairlead.controllers.instances.remote_names import FAIRLEAD, MANAGED
from fairlead.controllers.instances.remote_namespace import NAMESPACES, found_at, step
from fairlead.controllers.instances.vcluster_release import chart_for, release_to_remove
from fairlead.core.errors import AlreadyExists
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import by_the_server
from fairlead.upstream.access import Access
from fairlead.upstream.clusters import CONFIG_KEY, kubeconfig_secret
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kubeconfig import BadKubeconfig, parse

PAUSE = 60.0
"""Seconds before a failed run is repeated with the same inputs."""


class Deployer(Protocol):
    """Deploys charts; implemented by `helm.py`. All methods raise InstanceError."""

    def find(self) -> str: ...

    async def install(self, release: Release, access: Access) -> None: ...

    async def uninstall(self, release: Release, access: Access) -> None: ...


class Deploying:
    """`repositories`: URL prefixes of repositories for charts that do not come from an administrator's template."""

    def __init__(self, registry: Registry, reach: Reach, helm: Deployer, repositories: Sequence[str]) -> None:
        self._registry = registry
        self._clock = registry.clock
        self._secrets = registry.resource("", "secrets")
        self._reach = reach
        self._helm = helm
        self._repositories = repositories
        self._turns = Turns()
        self._failed: dict[str, tuple[str, float, Trouble]] = {}
        """By uid of the instance: the hash of the failed release, when it may be retried, and the error."""

    def check(self, instance: Object) -> None:
        """Raises InstanceError if there is no chart or no helm program, before anything is created."""
        chart_for(instance)
        self._helm.find()

    async def deploy(self, instance: Object, release: Release, *, anew: bool = False) -> str:
        """Runs helm if the release has changed since the last deployment, or with `force`. Returns the release hash."""
        if not anew and dig(instance, "status.deployHash") == release.hash:
            return release.hash
        uid = metadata(instance)["uid"]
        last_failure = self._failed.get(uid)
        if last_failure is not None and last_failure[0] == release.hash and self._clock.monotonic() < last_failure[1]:
            raise Trouble(last_failure[2].reason, last_failure[2].message, last_failure[2].severity)
        self._check_chosen(instance, release)
        with self._turns.one(metadata(instance)["namespace"]):
            try:
                await self._install(dig(instance, "spec.clusterRef.cluster"), release)
            except Trouble as error:
                self._failed[uid] = release.hash, self._clock.monotonic() + PAUSE, error
                raise
        self._failed.pop(uid, None)
        return release.hash

    def _check_chosen(self, instance: Object, release: Release) -> None:
        """Raises InstanceError unless an administrator allowed the chart or its repository. Helm follows the URLs and
        redirects of a repository, so an untrusted one could make it send requests into this server's network (SSRF)."""
        if not release.confined_to:
            check_marked(instance)
            return
        check_owner(self._registry, str(instance["apiVersion"]).partition("/")[0], instance)
        if not is_listed(release.chart.repo, self._repositories):
            message = (
                "the chart does not come from an administrator's template, and its repository is not in the setting "
                "chart_repositories; create a new instance from an administrator's template (spec.templateRef), or ask "
                "an administrator to add the repository to that setting"
            )
            raise Trouble("RepositoryNotAllowed", message, ERROR)

    async def _install(self, cluster: str, release: Release) -> None:
        await self._check_repository(release.chart)
        with troubles(cluster, "deploy a chart"):
            access = await self._reach.access(cluster)
            try:
                await self._helm.install(release, access)
            except Trouble as error:
                if error.reason != RELEASE_PENDING:
                    raise
                if not await clear_pending_release(self._reach.cluster(cluster), release, self._clock.now()):
                    raise
                await self._helm.install(release, access)

    async def _check_repository(self, chart: Chart) -> None:
        """Applies the address policy: a template must not reach internal hosts through this server."""
        try:
            await self._reach.resolve(*chart.address)
        except UpstreamError as error:
            message = f"the repository of the chart cannot be used: {error.message}; fix the template"
            raise Trouble("RepositoryUnreachable", message, ERROR) from error

    async def uninstall(self, instance: Object) -> None:
        """Skipped without a helm program: the namespace is deleted anyway, with nearly all objects of the chart."""
        try:
            self._helm.find()
        except Trouble:
            return
        cluster = dig(instance, "spec.clusterRef.cluster")
        with self._turns.one(metadata(instance)["namespace"]):
            await self._helm.uninstall(release_to_remove(instance), await self._reach.access(cluster))

    def forget(self, instance: Object) -> None:
        self._failed.pop(metadata(instance)["uid"], None)

    async def take_kubeconfig(self, instance: Object, release: Release) -> None:
        """Copies the kubeconfig that the chart created to the secret that the gateway reads."""
        content = await self._left_by_chart(dig(instance, "spec.clusterRef.cluster"), release)
        try:
            parse(content)
        except BadKubeconfig as error:
            message = (
                f"the kubeconfig that the chart created cannot be used: {'; '.join(error.problems)}; fix its values"
            )
            raise Trouble("BadKubeconfig", message, ERROR) from error
        await self._keep(instance, b64encode(content).decode())

    async def _left_by_chart(self, cluster: str, release: Release) -> bytes:
        name = f"vc-{release.name}"
        with troubles(cluster, f'read secret "{name}"'):
            path = f"{NAMESPACES}/{step(release.namespace)}/secrets/{step(name)}"
            secret = await found_at(self._reach.cluster(cluster), path)
        try:
            content = b64decode(dig(secret, "data")[CONFIG_KEY], validate=True) if secret else b""
        except (KeyError, TypeError, ValueError, NotBase64):
            content = b""
        if not content:
            message = f'waiting for the chart to create the kubeconfig in secret "{name}", key "{CONFIG_KEY}"'
            raise Trouble("WaitingForKubeconfig", message, INFO)
        return content

    async def _keep(self, instance: Object, content: str) -> None:
        meta = metadata(instance)
        name, namespace = kubeconfig_secret(meta["name"]), meta["namespace"]
        entry = self._secrets.peek(namespace, name)
        if entry is None:
            body = _secret(instance, name, content)
            try:
                await self._secrets.create(body, namespace, by_the_server())
            except AlreadyExists as error:
                raise _taken(name) from error
            return
        if not _is_of(decode(entry), instance):
            raise _taken(name)

        def edit(current: Object) -> Object:
            return {**current, "data": {CONFIG_KEY: content}} if _is_of(current, instance) else current

        if edit(decode(entry)) != decode(entry):
            await self._secrets.modify(namespace, name, edit, by_the_server())


def _taken(name: str) -> Trouble:
    message = (
        f'secret "{name}" exists and does not belong to this instance; delete it, so that the kubeconfig can be stored'
    )
    return Trouble("SecretTaken", message, ERROR)


def _is_of(secret: Object, instance: Object) -> bool:
    owners = metadata(secret).get("ownerReferences") or ()
    return any(each.get("uid") == metadata(instance)["uid"] for each in owners)


def _secret(instance: Object, name: str, content: str) -> Object:
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
        "labels": {MANAGED: FAIRLEAD},
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": secret_meta, "data": {CONFIG_KEY: content}}
