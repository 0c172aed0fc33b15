"""Releases that an interrupted run of helm has left pending. `deploy.py` asks.

Helm notes in the cluster that it is at work on a release, as a Secret for each revision, and refuses to start while it
stands there. A run that was killed, or whose machine went down, never takes its note back: helm then refuses for ever.
A note that is older than any run can be is removed. What was deployed before, and all that the run has made, stays;
helm takes it over in the next run.
"""

from datetime import UTC, datetime
from urllib.parse import quote

from fairlead.controllers.helm.chart import Release
from fairlead.controllers.instances.remote_namespace import NAMESPACES, Api, listed, only, remove, step
from fairlead.core.objects import Object, dig, name_of

LONGEST_RUN = 600.0
"""Seconds. `Helm` ends a run well before; the rest is for clocks that differ."""
_PENDING = ("pending-install", "pending-upgrade", "pending-rollback")
_PREFIX = "sh.helm.release.v1."


async def clear_pending_release(api: Api, release: Release, now: datetime) -> bool:
    """Removes what an interrupted run has left. Tells whether there was something of that sort."""
    path = f"{NAMESPACES}/{step(release.namespace)}/secrets"
    was_there = False
    for status in _PENDING:  # one by one: Secrets of all revisions may be more than an answer may have
        selector = quote(f"owner=helm,name={release.name},status={status}", safe="")
        for each in listed(await api.get(f"{path}?labelSelector={selector}"), "items"):
            if name_of(each).startswith(_PREFIX) and _age(each, now) > LONGEST_RUN:
                await remove(api, f"{path}/{step(name_of(each))}", only(each))
                was_there = True
    return was_there


def _age(secret: Object, now: datetime) -> float:
    """Seconds since it was made; none if that cannot be told."""
    try:
        made = datetime.fromisoformat(dig(secret, "metadata.creationTimestamp"))
    except (TypeError, ValueError):
        return 0.0
    return (now - made.replace(tzinfo=made.tzinfo or UTC)).total_seconds()
