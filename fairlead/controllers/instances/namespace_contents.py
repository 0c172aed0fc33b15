"""Applies the namespace of an instance with its bindings and objects, according to a `TemplatePlan`.

For `spaces.py` and `virtual_clusters.py`. The namespace and its bindings are applied with the stored credential of the
cluster; for the objects, see `confinement.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.controllers.instances.applied_objects import TrackedApi
from fairlead.controllers.instances.cluster_access import Reach
from fairlead.controllers.instances.confinement import TEMPLATE_NOT_TRUSTED, Plan, check_owner
from fairlead.controllers.instances.drift import Upkeep
from fairlead.controllers.instances.prerequisites import Setting
from fairlead.controllers.instances.remote_errors import ERROR, Trouble, troubles
from fairlead.controllers.instances.remote_namespace import Place, bind_roles, found_at, make_namespace
from fairlead.controllers.instances.remote_objects import FarObjects
from fairlead.core.objects import Object, name_of
from fairlead.registry.registry import Registry

MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """The desired content of a namespace. `previous` are objects that may exist from earlier reconciles."""

    bindings: Sequence[Object]
    objects: Sequence[Object]
    before: Sequence[Object] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """`retained` are objects of a former template that the owner is not permitted to delete."""

    usable: bool
    is_new: bool
    left: Sequence[Object]

    @property
    def caveat(self) -> str:
        if not self.left:
            return ""
        titles = ", ".join(f"{each['kind']} {name_of(each)}" for each in self.left[:MOST_NAMED])
        more = f" and {len(self.left) - MOST_NAMED} more" if len(self.left) > MOST_NAMED else ""
        return f"; {titles}{more} of a former template were kept, since the owner is not permitted to delete them"


@dataclass(frozen=True, slots=True)
class Contents:
    registry: Registry
    setting: Setting
    reach: Reach
    upkeep: Upkeep

    async def make(self, instance: Object, place: Place, plan: Plan, wanted: Wanted) -> Made:
        """Applies everything. Raises InstanceError."""
        if plan.acting_as and not plan.leaves_contents and (wanted.objects or wanted.before):
            check_owner(self.registry, self.setting.api_group, instance)
        with troubles(place.cluster, f'create namespace "{place.namespace}" and its content'):
            async with self.upkeep.passing(instance, place, self.reach.cluster(place.cluster)) as api:
                if plan.leaves_contents:
                    await _check_there(api, place)
                usable = await make_namespace(
                    *(api, place, plan.template), pod_security=plan.pod_security, leave_as_is=plan.leaves_contents
                )
                await bind_roles(api, place, wanted.bindings)
                retained = () if plan.leaves_contents else await self._apply(api, place, plan, wanted)
        return Made(usable, api.made_namespace, retained)

    async def _apply(self, api: TrackedApi, place: Place, plan: Plan, wanted: Wanted) -> Sequence[Object]:
        writer = api.through(self.reach.cluster(place.cluster, plan.acting_as)) if plan.acting_as else None
        return await FarObjects(api, place, writer, plan.acting_as).apply(wanted.objects, wanted.before)


async def _check_there(api: TrackedApi, place: Place) -> None:
    """A namespace that is created again without the objects of its template would be less restricted than before."""
    if await found_at(api, place.path) is None:
        message = (
            f'namespace "{place.namespace}" in cluster "{place.cluster}" was deleted, and is not created again until '
            "an administrator has marked its template: `kubectl annotate TEMPLATE NAME service.sh/trusted=true`"
        )
        raise Trouble(TEMPLATE_NOT_TRUSTED, message, ERROR)
