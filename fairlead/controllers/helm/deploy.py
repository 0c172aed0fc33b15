"""One virtual cluster's release: deployed when there is news, its kubeconfig fetched, and uninstalled.

For `controllers/instances/virtual_clusters.py`. Helm runs take minutes and whatever changes about the instance has it looked at again, so a
run that has failed is not repeated at once.
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
"""Seconds before a run that failed is tried again as it was."""


class Deployer(Protocol):
    """What deploys charts: `helm.py`. All of it raises Trouble."""

    def find(self) -> str: ...

    async def install(self, release: Release, access: Access) -> None: ...

    async def uninstall(self, release: Release, access: Access) -> None: ...


class Deploying:
    """`repositories`: addresses at or below which charts may be that no template has settled."""

    def __init__(self, registry: Registry, reach: Reach, helm: Deployer, repositories: Sequence[str]) -> None:
        self._registry = registry
        self._clock = registry.clock
        self._secrets = registry.resource("", "secrets")
        self._reach = reach
        self._helm = helm
        self._repositories = repositories
        self._turns = Turns()
        self._failed: dict[str, tuple[str, float, Trouble]] = {}
        """By the uid of an instance: what was tried last, until when not to try it again, and why."""

    def check(self, instance: Object) -> None:
        """Raises Trouble where there is nothing to deploy, or nobody who could: before anything is made."""
        chart_for(instance)
        self._helm.find()

    async def deploy(self, instance: Object, release: Release, *, anew: bool = False) -> str:
        """Runs helm if what is deployed is not what should be, or is to be deployed `anew`. Returns what tells the two
        apart."""
        if not anew and dig(instance, "status.deployHash") == release.hash:
            return release.hash
        uid = metadata(instance)["uid"]
        known = self._failed.get(uid)
        if known is not None and known[0] == release.hash and self._clock.monotonic() < known[1]:
            raise Trouble(known[2].reason, known[2].message, known[2].severity)
        self._check_chosen(instance, release)
        with self._turns.one(metadata(instance)["namespace"]):
            try:
                await self._install(dig(instance, "spec.clusterRef.cluster"), release)
            except Trouble as trouble:
                self._failed[uid] = release.hash, self._clock.monotonic() + PAUSE, trouble
                raise
        self._failed.pop(uid, None)
        return release.hash

    def _check_chosen(self, instance: Object, release: Release) -> None:
        """Whether somebody stands for the chart. Helm fetches what it is told to, and goes where a repository sends it:
        to this server's neighbours, too."""
        if not release.confined_to:
            check_marked(instance)
            return
        check_owner(self._registry, str(instance["apiVersion"]).partition("/")[0], instance)
        if not is_listed(release.chart.repo, self._repositories):
            why = (
                "the repository of a chart that no administrator has chosen has to be one that this server is set to "
                "use; name a template of an administrator in spec.templateRef of a new instance, or have the "
                "repository added to the setting chart_repositories"
            )
            raise Trouble("RepositoryNotAllowed", why, ERROR)

    async def _install(self, cluster: str, release: Release) -> None:
        await self._check_repository(release.chart)
        with troubles(cluster, "deploy a chart"):
            access = await self._reach.access(cluster)
            try:
                await self._helm.install(release, access)
            except Trouble as trouble:
                if trouble.reason != RELEASE_PENDING:
                    raise
                if not await clear_pending_release(self._reach.cluster(cluster), release, self._clock.now()):
                    raise
                await self._helm.install(release, access)

    async def _check_repository(self, chart: Chart) -> None:
        """A template must not make this server talk to machines that only it can reach."""
        try:
            await self._reach.resolve(*chart.address)
        except UpstreamError as error:
            why = f"the repository of the chart cannot be used: {error.message}; have the template mended"
            raise Trouble("RepositoryUnreachable", why, ERROR) from error

    async def uninstall(self, instance: Object) -> None:
        """Without a helm the namespace goes all the same, with nearly everything that the chart made."""
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
        """Copies the kubeconfig that the chart has left to where the gateway looks for it."""
        content = await self._left_by_chart(dig(instance, "spec.clusterRef.cluster"), release)
        try:
            parse(content)
        except BadKubeconfig as error:
            why = f"the kubeconfig that the chart left cannot be used: {'; '.join(error.problems)}; mend its values"
            raise Trouble("BadKubeconfig", why, ERROR) from error
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
            why = f'the chart has not left a kubeconfig in secret "{name}", key "{CONFIG_KEY}", yet; it is waited for'
            raise Trouble("WaitingForKubeconfig", why, INFO)
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

        def renewed(current: Object) -> Object:
            return {**current, "data": {CONFIG_KEY: content}} if _is_of(current, instance) else current

        if renewed(decode(entry)) != decode(entry):
            await self._secrets.modify(namespace, name, renewed, by_the_server())


def _taken(name: str) -> Trouble:
    why = f'secret "{name}" is there already and is not of this instance; delete it, so that the kubeconfig can be kept'
    return Trouble("SecretTaken", why, ERROR)


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
    described = {
        "name": name,
        "namespace": meta["namespace"],
        "labels": {MANAGED: FAIRLEAD},
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": described, "data": {CONFIG_KEY: content}}
