"""The Helm release of a virtual cluster: what is deployed, with whose permissions, and the kubeconfig that results."""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence

from fairlead.controllers.helm.attempts import Attempt, RunReason, read_attempt
from fairlead.controllers.helm.chart import Chart, Release, is_allowed_repository, parse_chart
from fairlead.controllers.helm.deploy import HELM_MISSING_REMARK, ReleaseRunner, cluster_target
from fairlead.controllers.helm.deployments import Deployment, Deployments
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.confinement import (
    applied_trust,
    check_owner,
    check_trust_marked,
    deployer_user,
    is_confined,
)
from fairlead.controllers.instances.instance_reconciler import InstanceReconciler, ReconcileAttempt
from fairlead.controllers.instances.remote_errors import ERROR, INFO, WARNING, InstanceError, translate_errors
from fairlead.controllers.instances.remote_namespace import MANAGED_LABEL, MANAGED_VALUE, NAMESPACES_PATH, url_segment
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX, build_deployer_binding
from fairlead.controllers.instances.status import VC_DEPLOYED
from fairlead.core.errors import AlreadyExists
from fairlead.core.objects import Object, get_path
from fairlead.domain.typed_objects import VirtualClusterInstance
from fairlead.kinds.core.server_objects import is_generated_kubeconfig
from fairlead.kinds.instances.fields import READY
from fairlead.kinds.instances.templates import CONFINED
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, condition
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.clusters import DEFAULT_KUBECONFIG_KEY, kubeconfig_secret_name
from fairlead.upstream.kube_client import get_or_none
from fairlead.upstream.kubeconfig import InvalidKubeconfig, parse_kubeconfig


def require_chart(instance: VirtualClusterInstance) -> Chart:
    """The chart of its rendered template. Raises InstanceError if there is none, or if it is invalid."""
    chart = parse_chart(instance.rendered)
    if chart is None:
        message = (
            "its template names no chart in helmRelease.chart; fix the template, or import a running virtual cluster "
            "with spec.config"
        )
        raise InstanceError("ChartNotSet", message, ERROR)
    return chart


def build_release(instance: VirtualClusterInstance) -> Release:
    """The release to deploy, at the place that `spec.clusterRef` names. Raises InstanceError."""
    return Release(
        name=instance.release_name,
        namespace=instance.remote_namespace,
        chart=require_chart(instance),
        values=instance.values,
        impersonate_user=_helm_user(instance),
    )


def build_removal_release(instance: VirtualClusterInstance) -> Release:
    return Release(instance.release_name, instance.remote_namespace, Chart("", ""), "", _helm_user(instance))


def _helm_user(instance: VirtualClusterInstance) -> str:
    """The user that helm impersonates; empty: none. Once confined, a release stays confined, even if no chart has been
    deployed yet: the owner could have written release Secrets into the namespace, and helm trusts those."""
    was_confined = instance.was_confined or applied_trust(instance) == CONFINED
    if not is_confined(instance) and not was_confined:
        return ""
    return deployer_user(instance.remote_namespace)


def confinement_bindings(release: Release, role: str) -> Sequence[Object]:
    """The RoleBinding that grants the deployer of a confined release the role in its namespace."""
    if not release.impersonate_user:
        return ()
    return (build_deployer_binding(f"{BINDING_PREFIX}deployer", release.namespace, role, release.impersonate_user),)


class VirtualClusterReleases:
    """The releases of virtual clusters. `repositories`: URL prefixes of repositories for charts that do not come from
    an administrator's template."""

    def __init__(
        self,
        registry: Registry,
        api_group: str,
        clusters: ClusterAccess,
        runner: ReleaseRunner,
        repositories: Sequence[str],
    ) -> None:
        self._registry = registry
        self._group = api_group
        self._secrets = registry.resource("", "secrets")
        self._clusters = clusters
        self._runner = runner
        self._deployments = Deployments(runner)
        self._repositories = repositories

    def check(self, instance: VirtualClusterInstance) -> None:
        """Raises InstanceError if there is no chart, or no helm program before the first deployment, before anything is
        created."""
        require_chart(instance)
        if instance.deploy_hash or instance.last_attempt:
            return
        try:
            self._runner.require_program()
        except InstanceError as error:
            message = f"{error.message}, or import a running virtual cluster with spec.config"
            raise InstanceError(error.reason, message, error.severity) from None

    async def deploy(
        self,
        reconciler: InstanceReconciler[VirtualClusterInstance],
        run: ReconcileAttempt[VirtualClusterInstance],
        release: Release,
    ) -> None:
        """Runs helm if the cluster has not the wanted release. One that is not ready may have been uninstalled."""
        instance = run.instance

        async def begin(attempt: Attempt) -> None:
            self._check_chart_allowed(instance, release)
            await reconciler.record(instance, lastAttempt=attempt.as_fields(), deployHash="")

        async def report(why: RunReason) -> None:
            if not why.is_foreign:
                return  # the failure is reported already
            await reconciler.write_status(instance, (condition(VC_DEPLOYED, FALSE, why.reason, why.message, WARNING),))

        attempt = read_attempt(instance.last_attempt)
        wanted = Deployment(
            key=reconciler.key_of(instance),
            uid=instance.uid,
            project=instance.namespace,
            generation=instance.generation,
            target=cluster_target(self._clusters, instance.cluster),
            release=release,
            attempt=attempt,
            deploy_hash=instance.deploy_hash,
            digest=attempt.digest if attempt is not None else "",
            begin=begin,
            report=report,
        )
        try:
            if await self._deployments.ensure(wanted, checks_always=not instance.is_true(READY)) is not None:
                run.fields["deployHash"] = release.hash
        finally:
            if wanted.attempt is not None:
                run.fields["lastAttempt"] = wanted.attempt.as_fields()
        remark = self._deployments.remark(wanted)
        if not self._runner.has_program():
            remark += HELM_MISSING_REMARK
        run.done(VC_DEPLOYED, "Deployed", f'release "{release.name}" is deployed{remark}')

    def _check_chart_allowed(self, instance: VirtualClusterInstance, release: Release) -> None:
        """Raises InstanceError unless an administrator allowed the chart or its repository."""
        if not release.impersonate_user:
            check_trust_marked(instance)
            return
        check_owner(self._registry, self._group, instance)
        if not is_allowed_repository(release.chart.repo, self._repositories):
            message = (
                "the chart does not come from an administrator's template, and its repository is not in the setting "
                "chart_repositories; create a new instance from an administrator's template (spec.templateRef), or ask "
                "an administrator to add the repository to that setting"
            )
            raise InstanceError("RepositoryNotAllowed", message, ERROR)

    async def uninstall(self, instance: VirtualClusterInstance) -> None:
        """Skipped without a helm program: the namespace is deleted anyway, with nearly all objects of the chart."""
        try:
            self._runner.require_program()
        except InstanceError:
            return
        target = cluster_target(self._clusters, instance.cluster)
        await self._runner.uninstall(instance.namespace, target, build_removal_release(instance))

    def forget(self, instance: VirtualClusterInstance) -> None:
        """The instance is gone: drops what is remembered about all its releases, also those of its template."""
        self._deployments.forget(instance.uid)

    async def copy_kubeconfig(self, instance: VirtualClusterInstance, release: Release) -> ClusterEndpoint:
        """Copies the kubeconfig that the chart created to the secret that the gateway reads. Returns what it says."""
        content = await self._read_chart_kubeconfig(instance.cluster, release)
        try:
            endpoint = parse_kubeconfig(content)
        except InvalidKubeconfig as error:
            message = (
                f"the kubeconfig that the chart created cannot be used: {'; '.join(error.problems)}; fix its values"
            )
            raise InstanceError("InvalidKubeconfig", message, ERROR) from error
        await self._store_kubeconfig(instance, b64encode(content).decode())
        return endpoint

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

    async def _store_kubeconfig(self, instance: VirtualClusterInstance, content: str) -> None:
        name = kubeconfig_secret_name(instance.name)
        namespace = instance.namespace
        entry = self._secrets.get_cached(namespace, name)
        if entry is None:
            body = _build_secret(instance, name, content)
            try:
                await self._secrets.create(body, namespace, server_write_options())
            except AlreadyExists as error:
                raise _secret_taken_error(name) from error
            return
        if not is_generated_kubeconfig(decode(entry), instance.uid):
            raise _secret_taken_error(name)

        def edit(current: Object) -> Object:
            is_own = is_generated_kubeconfig(current, instance.uid)
            return {**current, "data": {DEFAULT_KUBECONFIG_KEY: content}} if is_own else current

        if edit(decode(entry)) != decode(entry):
            await self._secrets.modify(namespace, name, edit, server_write_options())


def _secret_taken_error(name: str) -> InstanceError:
    message = (
        f'secret "{name}" exists and does not belong to this instance; delete it, so that the kubeconfig can be stored'
    )
    return InstanceError("SecretConflict", message, ERROR)


def _build_secret(instance: VirtualClusterInstance, name: str, content: str) -> Object:
    owner = {
        "apiVersion": instance.raw["apiVersion"],
        "kind": instance.raw["kind"],
        "name": instance.name,
        "uid": instance.uid,
    }
    secret_meta = {
        "name": name,
        "namespace": instance.namespace,
        "labels": {MANAGED_LABEL: MANAGED_VALUE},
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": secret_meta, "data": {DEFAULT_KUBECONFIG_KEY: content}}
