"""The namespace of an instance in a cluster and what belongs into it, made in one pass as a Plan has it.

For `spaces.py` and `virtual_clusters.py`. The namespace and its bindings are made with the credential that is stored
for the cluster; objects as `confinement.py` says.
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
    """What belongs into a namespace. `before` are the objects that may be there from earlier passes."""

    bindings: Sequence[Object]
    objects: Sequence[Object]
    before: Sequence[Object] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """`left` are objects of a former template that stay, since the owner may not delete them."""

    usable: bool
    is_new: bool
    left: Sequence[Object]

    @property
    def caveat(self) -> str:
        if not self.left:
            return ""
        named = ", ".join(f"{each['kind']} {name_of(each)}" for each in self.left[:MOST_NAMED])
        more = f" and {len(self.left) - MOST_NAMED} more" if len(self.left) > MOST_NAMED else ""
        return f"; {named}{more} of a former template stay there, since the owner may not delete them"


@dataclass(frozen=True, slots=True)
class Contents:
    registry: Registry
    setting: Setting
    reach: Reach
    upkeep: Upkeep

    async def make(self, instance: Object, place: Place, plan: Plan, wanted: Wanted) -> Made:
        """Raises Trouble."""
        if plan.acting_as and not plan.leaves_contents and (wanted.objects or wanted.before):
            check_owner(self.registry, self.setting.api_group, instance)
        with troubles(place.cluster, f'make namespace "{place.namespace}" and what belongs into it'):
            async with self.upkeep.passing(instance, place, self.reach.cluster(place.cluster)) as api:
                if plan.leaves_contents:
                    await _check_there(api, place)
                usable = await make_namespace(
                    *(api, place, plan.template), pod_security=plan.pod_security, leave_as_is=plan.leaves_contents
                )
                await bind_roles(api, place, wanted.bindings)
                left = () if plan.leaves_contents else await self._apply(api, place, plan, wanted)
        return Made(usable, api.made_namespace, left)

    async def _apply(self, api: TrackedApi, place: Place, plan: Plan, wanted: Wanted) -> Sequence[Object]:
        writer = api.through(self.reach.cluster(place.cluster, plan.acting_as)) if plan.acting_as else None
        return await FarObjects(api, place, writer, plan.acting_as).apply(wanted.objects, wanted.before)


async def _check_there(api: TrackedApi, place: Place) -> None:
    """A namespace that is made again without what its template puts into it could do more than the one before."""
    if await found_at(api, place.path) is None:
        why = (
            f'namespace "{place.namespace}" in cluster "{place.cluster}" is gone, and is not made again before an '
            "administrator has marked its template: `kubectl annotate TEMPLATE NAME service.sh/trusted=true`"
        )
        raise Trouble(TEMPLATE_NOT_TRUSTED, why, ERROR)
