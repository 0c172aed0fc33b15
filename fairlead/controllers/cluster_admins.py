"""Binds Fairlead's administrators to `cluster-admin` on a cluster that is connected for the first time.

Requests come to a cluster in the name of their user with the user's groups, and what those may do is the cluster's own
RBAC. Without any binding, a cluster that was just connected would let nobody in. What somebody has changed afterwards
is left as it is.
"""

import asyncio
from typing import Final

from fairlead.controllers.cluster_look import SECONDS, Answer, ask
from fairlead.controllers.cluster_state import BOUND
from fairlead.core.objects import Object, dig
from fairlead.registry.conditions import FALSE, TRUE, condition
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream

ADMINISTRATORS: Final = "service:admins"
NAME: Final = "service.sh:admins"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
SUBJECT = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": ADMINISTRATORS}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": NAME, "labels": {"service.sh/managed": "fairlead"}},
    "roleRef": ROLE,
    "subjects": [SUBJECT],
}


async def bind_administrators(upstream: Upstream) -> Object | None:
    """The condition that says what came of it; None where the cluster knows no such thing, or did not answer."""
    try:
        async with asyncio.timeout(SECONDS):
            answer = await ask(upstream, "GET", f"{BINDINGS}/{NAME}")
            if answer.status != 404:
                return _existing(answer)
            return _created((await ask(upstream, "POST", BINDINGS, BINDING)).status)
    except (UpstreamError, TimeoutError):
        return None


def _existing(answer: Answer) -> Object | None:
    if answer.status == 403:
        return _forbidden()
    if answer.status != 200 or dig(answer.body, "kind") != "ClusterRoleBinding":
        return None
    subjects = dig(answer.body, "subjects") or ()
    named = [(dig(each, "kind"), dig(each, "name")) for each in subjects]
    if dig(answer.body, "roleRef.name") == ROLE["name"] and ("Group", ADMINISTRATORS) in named:
        return _bound()
    why = f'a ClusterRoleBinding "{NAME}" of somebody else is there; bind the group {ADMINISTRATORS} by another one'
    return condition(BOUND, FALSE, "BoundOtherwise", why, "Warning")


def _created(status: int) -> Object | None:
    if status in (200, 201):
        return _bound()
    return _forbidden() if status == 403 else None


def _bound() -> Object:
    return condition(BOUND, TRUE, "Bound", f"the group {ADMINISTRATORS} is bound to cluster-admin")


def _forbidden() -> Object:
    why = (
        f"the credential may not bind the group {ADMINISTRATORS} to cluster-admin; do that yourself, or administrators "
        "have no rights in the cluster"
    )
    return condition(BOUND, FALSE, "Forbidden", why, "Info")
