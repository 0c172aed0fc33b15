"""Clears releases that an interrupted helm run has left in a pending state.

Helm stores each revision of a release in a Secret, and refuses to start while the latest one is pending. A run that was
killed, or whose host crashed, leaves it pending for ever. So a pending revision that is older than any run can be is
deleted. The deployed objects stay; the next helm run takes them over.
"""

from datetime import UTC, datetime
from urllib.parse import quote

from fairlead.controllers.helm.chart import Release
from fairlead.controllers.instances.remote_namespace import (
    NAMESPACES_PATH,
    delete_if_exists,
    list_items,
    uid_precondition,
    url_segment,
)
from fairlead.core.objects import Object, get_path, name_of
from fairlead.upstream.kube_client import KubeApi

MAX_RUN_SECONDS = 600.0
"""`Helm` terminates a run well before that; the rest allows for clock skew."""
_PENDING_STATUSES = ("pending-install", "pending-upgrade", "pending-rollback")
_SECRET_NAME_PREFIX = "sh.helm.release.v1."


async def clear_pending_release(api: KubeApi, release: Release, now: datetime) -> bool:
    """Deletes pending revisions of interrupted runs. Returns whether there were any."""
    path = f"{NAMESPACES_PATH}/{url_segment(release.namespace)}/secrets"
    found = False
    for status in _PENDING_STATUSES:  # one by one: the Secrets of all revisions may exceed the response limit
        selector = quote(f"owner=helm,name={release.name},status={status}", safe="")
        for each in list_items(await api.get(f"{path}?labelSelector={selector}"), "items"):
            if name_of(each).startswith(_SECRET_NAME_PREFIX) and _age_seconds(each, now) > MAX_RUN_SECONDS:
                await delete_if_exists(api, f"{path}/{url_segment(name_of(each))}", uid_precondition(each))
                found = True
    return found


def _age_seconds(secret: Object, now: datetime) -> float:
    """Seconds since it was created; 0 if that is unknown."""
    try:
        created = datetime.fromisoformat(get_path(secret, "metadata.creationTimestamp"))
    except (TypeError, ValueError):
        return 0.0
    return (now - created.replace(tzinfo=created.tzinfo or UTC)).total_seconds()
