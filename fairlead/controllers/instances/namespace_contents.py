"""Applies the namespace of an instance with its bindings and objects, according to a `TemplatePlan`.

For `spaces.py` and `virtual_clusters.py`. The namespace and its bindings are applied with the stored credential of the
cluster; for the objects, see `confinement.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.controllers.instances.applied_objects import RecordingApi
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.confinement import TEMPLATE_NOT_TRUSTED, TemplatePlan, check_owner
from fairlead.controllers.instances.drift import DriftTracker
from fairlead.controllers.instances.prerequisites import InstanceConfig
from fairlead.controllers.instances.remote_errors import ERROR, InstanceError, translate_errors
from fairlead.controllers.instances.remote_namespace import RemoteNamespace, bind_roles, ensure_namespace, get_or_none
from fairlead.controllers.instances.remote_objects import RemoteObjects
from fairlead.core.objects import Object, name_of
from fairlead.registry.registry import Registry

MAX_LISTED_OBJECTS = 5


@dataclass(frozen=True, slots=True)
class DesiredContents:
    """The desired content of a namespace. `previous` are objects that may exist from earlier reconciles."""

    bindings: Sequence[Object]
    objects: Sequence[Object]
    previous: Sequence[Object] = ()


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """`retained` are objects of a former template that the owner is not permitted to delete."""

    is_usable: bool
    is_new: bool
    retained: Sequence[Object]

    @property
    def caveat(self) -> str:
        if not self.retained:
            return ""
        titles = ", ".join(f"{each['kind']} {name_of(each)}" for each in self.retained[:MAX_LISTED_OBJECTS])
        more = f" and {len(self.retained) - MAX_LISTED_OBJECTS} more" if len(self.retained) > MAX_LISTED_OBJECTS else ""
        return f"; {titles}{more} of a former template were kept, since the owner is not permitted to delete them"


@dataclass(frozen=True, slots=True)
class NamespaceContents:
    registry: Registry
    config: InstanceConfig
    clusters: ClusterAccess
    drift: DriftTracker

    async def apply(
        self, instance: Object, target: RemoteNamespace, plan: TemplatePlan, desired: DesiredContents
    ) -> ApplyResult:
        """Applies everything. Raises InstanceError."""
        if plan.impersonate_user and not plan.skips_contents and (desired.objects or desired.previous):
            check_owner(self.registry, self.config.api_group, instance)
        with translate_errors(target.cluster, f'create namespace "{target.namespace}" and its content'):
            async with self.drift.track_pass(instance, target, self.clusters.cluster_api(target.cluster)) as api:
                if plan.skips_contents:
                    await _require_namespace(api, target)
                usable = await ensure_namespace(
                    api, target, plan.template, pod_security=plan.pod_security, leave_as_is=plan.skips_contents
                )
                await bind_roles(api, target, desired.bindings)
                retained = () if plan.skips_contents else await self._apply_objects(api, target, plan, desired)
        return ApplyResult(usable, api.has_created_namespace, retained)

    async def _apply_objects(
        self, api: RecordingApi, target: RemoteNamespace, plan: TemplatePlan, desired: DesiredContents
    ) -> Sequence[Object]:
        writer = (
            api.with_api(self.clusters.cluster_api(target.cluster, plan.impersonate_user))
            if plan.impersonate_user
            else None
        )
        return await RemoteObjects(api, target, writer, plan.impersonate_user).apply(desired.objects, desired.previous)


async def _require_namespace(api: RecordingApi, target: RemoteNamespace) -> None:
    """A namespace that is created again without the objects of its template would be less restricted than before."""
    if await get_or_none(api, target.path) is None:
        message = (
            f'namespace "{target.namespace}" in cluster "{target.cluster}" was deleted, and is not created again until '
            "an administrator has marked its template: `kubectl annotate TEMPLATE NAME service.sh/trusted=true`"
        )
        raise InstanceError(TEMPLATE_NOT_TRUSTED, message, ERROR)
