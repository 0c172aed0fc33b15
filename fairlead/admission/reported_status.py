"""What the server found out about clusters, spaces and virtual clusters is written by the server alone.

Its controllers go by this status: it says what is rendered and to be deployed with the credential that is stored for a
cluster, whose a namespace is, and where a gateway leads. So nobody else writes it, whatever rights they hold on
`status`, but administrators, who could have the credential itself.

Of a workspace, others may write the status, too. But that it sleeps, and so needs no room in quotas, is its runner's
word.
"""

from fairlead.admission.chain import Rule, concerning, is_one_of
from fairlead.core.errors import Forbidden
from fairlead.core.objects import dig, name_of
from fairlead.core.user import CONTROLLER
from fairlead.kinds.quotas import SLEEPING
from fairlead.kinds.runner import RUNNER_COMPONENT
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

PLURALS = ("clusters", "spaceinstances", "virtualclusterinstances")
WORKSPACES = "devpodworkspaceinstances"


def reported_status(api_group: str) -> Rule:
    @concerning(lambda kind, verb: verb == "update" and is_one_of(kind, api_group, *PLURALS, WORKSPACES))
    async def rule(change: Change, registry: Registry) -> None:
        free = change.user == CONTROLLER or change.user.holds_everything
        if change.subresource != "status" or free or change.new is None:
            return
        if change.kind.plural == WORKSPACES:
            _check_sleep(change)
        elif (change.old or {}).get("status") != change.new.get("status"):
            why = "its status is what the server found out, and is written by the server; change its spec instead"
            raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.new), why)

    return rule


def _check_sleep(change: Change) -> None:
    before, after = dig(change.old, "status.phase"), dig(change.new, "status.phase")
    if after == SLEEPING and before != SLEEPING and RUNNER_COMPONENT.group not in change.user.groups:
        why = "that it sleeps is said by its runner; ask for that with the annotation sleepmode.service.sh/force"
        raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)
