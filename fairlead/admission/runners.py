"""Admission of Runners: who may have this server connect to an address.

With `spec.endpointFingerprint`, the server connects to `spec.endpoint`. That is what connecting a cluster does as well,
so changing either needs the same permission: to create Clusters. Owners of a Runner alone do not have it, and neither
has the runner itself, which may write nothing but its status. Turning it off needs no more than updating the Runner.
"""

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, get_path, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.clusters.runner import RUNNERS
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

_FIELDS = ("spec.endpoint", "spec.endpointFingerprint")


def protect_runner_endpoint(authorize: Authorize, api_group: str) -> Rule:
    """Setting and changing the address that the server connects to needs the permission to create Clusters."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, RUNNERS))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None:
            return
        wanted = _target(change.new)
        if not wanted[1] or wanted == _target(change.old):
            return
        right = RequestInfo("create", "", "", api_group, "v1", "clusters", "", "", "")
        if not authorize(change.user, right).allowed:
            why = (
                f'User "{change.user.name}" may not create clusters, and spec.endpoint with spec.endpointFingerprint '
                "needs that permission because this server connects there; leave out the fingerprint, and let the "
                "runner connect to this server"
            )
            raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)

    return rule


def _target(runner: Object | None) -> tuple[object, ...]:
    return tuple(get_path(runner, path) or "" for path in _FIELDS) if runner else ("", "")
