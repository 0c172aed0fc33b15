"""Clears releases that an interrupted helm run has left in a pending state.

Helm stores each revision of a release in a Secret, and refuses to start while the latest one is pending. A run that was
killed, or whose host crashed, or that the cluster did not answer any more, leaves it pending for ever. So a pending
revision that is older than any run can be is deleted, and one of this server's own run as soon as that is known to have
ended. The deployed objects stay; the next helm run takes them over.
"""

from datetime import UTC, datetime
from urllib.parse import quote

from fairlead.controllers.helm.attempts import Attempt, is_holder_gone
from fairlead.controllers.helm.chart import Release
from fairlead.controllers.instances.remote_namespace import NAMESPACES_PATH, list_items, uid_precondition, url_segment
from fairlead.core.objects import Object, get_path, name_of
from fairlead.upstream.kube_client import KubeApi, delete_if_exists

MAX_RUN_SECONDS = 600.0
"""`Helm` terminates a run well before that; the rest allows for clock skew."""
_PENDING_STATUSES = ("pending-install", "pending-upgrade", "pending-rollback")
_SECRET_NAME_PREFIX = "sh.helm.release.v1."
_CREATED_LABEL = "createdAt"
_MAX_SECONDS_DIGITS = 11


async def clear_pending_release(api: KubeApi, release: Release, now: datetime, former: Attempt | None = None) -> bool:
    """Deletes pending revisions of interrupted runs. Returns whether there were any. `former` is the last attempt of
    this server: if that has failed, or was interrupted and its process has ended, its revision is deleted at once."""
    path = f"{NAMESPACES_PATH}/{url_segment(release.namespace)}/secrets"
    found = False
    for status in _PENDING_STATUSES:  # one by one: the Secrets of all revisions may exceed the response limit
        selector = quote(f"owner=helm,name={release.name},status={status}", safe="")
        for each in list_items(await api.get(f"{path}?labelSelector={selector}"), "items"):
            created = _created_at(each)
            is_abandoned = created is not None and (
                (now - created).total_seconds() > run_limit_seconds(release) or _is_of_ended_run(created, now, former)
            )
            if name_of(each).startswith(_SECRET_NAME_PREFIX) and is_abandoned:
                await delete_if_exists(api, f"{path}/{url_segment(name_of(each))}", uid_precondition(each))
                found = True
    return found


def run_limit_seconds(release: Release) -> float:
    """Seconds after which a run of helm for the release has ended in any case."""
    return max(MAX_RUN_SECONDS, release.timeout + MAX_RUN_SECONDS / 2)


def _is_of_ended_run(created: datetime, now: datetime, former: Attempt | None) -> bool:
    """Whether a revision was created by an attempt that did not succeed, and whose run has ended. What was created
    after the end of that run is of another tool, which may be still running."""
    if former is None or former.has_succeeded:
        return False
    try:
        started = datetime.fromisoformat(former.started_at)
        deadline = datetime.fromisoformat(former.deadline)
        ended = datetime.fromisoformat(former.ended_at) if former.ended_at else None
    except ValueError:
        return False
    if ended is not None:
        return started <= created <= ended
    return started <= created <= deadline and (now > deadline or is_holder_gone(former.holder))


def _created_at(secret: Object) -> datetime | None:
    """When helm has created a revision. Its label has the clock of this server, unlike the time that the cluster sets,
    which is used if there is no label. None if neither is known."""
    label = get_path(secret, "metadata.labels")
    seconds = label.get(_CREATED_LABEL) if isinstance(label, dict) else None
    if isinstance(seconds, str) and seconds.isascii() and seconds.isdigit() and len(seconds) <= _MAX_SECONDS_DIGITS:
        return datetime.fromtimestamp(int(seconds), UTC)
    try:
        created = datetime.fromisoformat(get_path(secret, "metadata.creationTimestamp"))
    except (TypeError, ValueError):
        return None
    return created.replace(tzinfo=created.tzinfo or UTC)
