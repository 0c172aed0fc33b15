"""Clears releases that an interrupted helm run has left in a pending state. Called by `deploy.py`.

Helm stores each revision of a release in a Secret, and refuses to start while the latest one is pending. A run that was
killed, or whose host crashed, leaves it pending for ever. So a pending revision that is older than any run can be is
deleted. The deployed objects stay; the next helm run takes them over.
"""

from datetime import UTC, datetime
from urllib.parse import quote

from fairlead.controllers.helm.chart import Release
from fairlead.controllers.instances.remote_namespace import NAMESPACES, Api, listed, only, remove, step
from fairlead.core.objects import Object, dig, name_of

LONGEST_RUN = 600.0
"""`Helm` terminates a run well before that; the rest allows for clock skew."""
_PENDING = ("pending-install", "pending-upgrade", "pending-rollback")
_PREFIX = "sh.helm.release.v1."


async def clear_pending_release(api: Api, release: Release, now: datetime) -> bool:
    """Deletes pending revisions of interrupted runs. Returns whether there were any."""
    path = f"{NAMESPACES}/{step(release.namespace)}/secrets"
    found = False
    for status in _PENDING:  # one by one: the Secrets of all revisions may exceed the response limit
        selector = quote(f"owner=helm,name={release.name},status={status}", safe="")
        for each in listed(await api.get(f"{path}?labelSelector={selector}"), "items"):
            if name_of(each).startswith(_PREFIX) and _age(each, now) > LONGEST_RUN:
                await remove(api, f"{path}/{step(name_of(each))}", only(each))
                found = True
    return found


def _age(secret: Object, now: datetime) -> float:
    """Seconds since it was created; 0 if that is unknown."""
    try:
        created = datetime.fromisoformat(dig(secret, "metadata.creationTimestamp"))
    except (TypeError, ValueError):
        return 0.0
    return (now - created.replace(tzinfo=created.tzinfo or UTC)).total_seconds()
