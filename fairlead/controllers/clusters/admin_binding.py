"""Binds Fairlead's administrators to `cluster-admin` on a cluster that is connected for the first time.

Requests come to a cluster in the name of their user with the user's groups, and what those may do is the cluster's own
RBAC. Without any binding, a cluster that was just connected would let nobody in. What somebody has changed afterwards
is left as it is, with one exception: where administrators were called otherwise when this server bound them, because
`cluster_identity_prefix` was another one, that name is replaced in the binding.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead.controllers.clusters.probe import SECONDS, Answer, ask
from fairlead.controllers.clusters.status import ADMINISTRATORS_GROUP, BOUND, AdministratorsBinding
from fairlead.controllers.instances.remote_names import FAIRLEAD, MANAGED
from fairlead.core.cluster_identity import ADMINISTRATORS, ClusterNames
from fairlead.core.objects import Object, dig
from fairlead.registry.conditions import FALSE, TRUE, condition, find_condition, is_true
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream

NAME: Final = "service.sh:admins"
RBAC: Final = "rbac.authorization.k8s.io"
BINDINGS = f"/apis/{RBAC}/v1/clusterrolebindings"
LEFT_ALONE: Final = "LeftAlone"
"""The reason where somebody has changed or removed the binding before it could be renamed."""
ROLE = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}


@dataclass(frozen=True, slots=True)
class Unbinding:
    """What came of taking the administrators out of the binding: the verb that the cluster refused with a status, or
    why the binding stays; nothing of these where it is gone."""

    refused: str = ""
    status: int = 0
    stays: str = ""


async def bind_administrators(upstream: Upstream, names: ClusterNames) -> AdministratorsBinding | None:
    """The condition that says what came of it; None where the cluster knows no such thing, or did not answer."""
    group = names.administrators
    try:
        async with asyncio.timeout(SECONDS):
            answer = await ask(upstream, "GET", f"{BINDINGS}/{NAME}")
            if answer.status == 404:
                return await _created(upstream, group)
            if answer.status != 200 or not _is_binding(answer):
                return _forbidden(group) if answer.status == 403 else None
            return _bound(group) if _is_bound(answer.body, group) else _bound_otherwise(group)
    except (UpstreamError, TimeoutError):
        return None


async def rename_administrators(upstream: Upstream, names: ClusterNames, former: str) -> AdministratorsBinding | None:
    """As `bind_administrators`, where the group `former` was bound before. What was changed since is left alone."""
    group = names.administrators
    try:
        async with asyncio.timeout(SECONDS):
            answer = await ask(upstream, "GET", f"{BINDINGS}/{NAME}")
            if answer.status == 404:
                return _left_alone(group)
            if answer.status != 200 or not _is_binding(answer):
                return _forbidden(group) if answer.status == 403 else None
            if _is_bound(answer.body, group):
                return _bound(group)
            if not _is_ours(answer.body) or not _is_bound(answer.body, former):
                return _left_alone(group)
            renamed = _renamed(answer.body, former, group)
            return _outcome(await ask(upstream, "PUT", f"{BINDINGS}/{NAME}", renamed), group)
    except (UpstreamError, TimeoutError):
        return None


def is_settled(status: Object | None, names: ClusterNames) -> bool:
    """Whether the administrators are bound by the name that they have, or somebody else has taken the matter over."""
    found = find_condition(status, BOUND) or {}
    if found.get("reason") == LEFT_ALONE:
        return True
    return is_true(status, BOUND) and bound_group(status) == names.administrators


def bound_group(status: Object | None) -> str:
    """The group that was bound. Before there was a prefix, nothing was noted, and the group had none."""
    return str(dig(status or {}, ADMINISTRATORS_GROUP) or ADMINISTRATORS)


async def unbind_administrators(upstream: Upstream, group: str) -> Unbinding:
    """Takes the group out of the binding. The binding itself is deleted only if nobody else is in it. Raises
    UpstreamError."""
    path = f"{BINDINGS}/{NAME}"
    found = await ask(upstream, "GET", path)
    if found.status == 404:
        return Unbinding()
    if found.status != 200 or not _is_binding(found):
        return Unbinding("read", found.status)
    binding = found.body
    if not _is_ours(binding) or dig(binding, "roleRef.name") != ROLE["name"]:
        return Unbinding(stays="it is not as this server made it")
    others = _other_subjects(binding, group)
    if not others:
        preconditions = {name: dig(binding, f"metadata.{name}") for name in ("uid", "resourceVersion")}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        deleted = await ask(upstream, "DELETE", path, options)
        return Unbinding() if deleted.status in (200, 202, 404) else Unbinding("delete", deleted.status)
    if len(others) < len(_subjects(binding)):
        # With its resourceVersion, so that nothing is overwritten that was changed meanwhile.
        updated = await ask(upstream, "PUT", path, {**binding, "subjects": others})
        if updated.status not in (200, 404):
            return Unbinding("update", updated.status)
    return Unbinding(stays=f"it has subjects beside the group {group}, which is not in it any more")


async def _created(upstream: Upstream, group: str) -> AdministratorsBinding | None:
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME, "labels": {MANAGED: FAIRLEAD}},
        "roleRef": ROLE,
        "subjects": [_subject(group)],
    }
    return _outcome(await ask(upstream, "POST", BINDINGS, binding), group)


def _subject(group: str) -> Object:
    return {"apiGroup": RBAC, "kind": "Group", "name": group}


def _is_bound(binding: Object, group: str) -> bool:
    named = [(dig(each, "kind"), dig(each, "name")) for each in _subjects(binding)]
    return dig(binding, "roleRef.name") == ROLE["name"] and ("Group", group) in named


def _is_binding(answer: Answer) -> bool:
    return bool(dig(answer.body, "kind") == "ClusterRoleBinding")


def _is_ours(binding: Object) -> bool:
    labels = dig(binding, "metadata.labels")
    return isinstance(labels, dict) and labels.get(MANAGED) == FAIRLEAD


def _renamed(binding: Object, former: str, group: str) -> Object:
    """Other subjects stay: somebody has added them. The resourceVersion stays, too, so that nothing is overwritten that
    was changed meanwhile."""
    return {**binding, "subjects": [*_other_subjects(binding, former), _subject(group)]}


def _other_subjects(binding: Object, group: str) -> list[Any]:
    return [each for each in _subjects(binding) if (dig(each, "kind"), dig(each, "name")) != ("Group", group)]


def _subjects(binding: Object) -> Sequence[Any]:
    found = binding.get("subjects")
    return found if isinstance(found, list) else ()


def _outcome(answer: Answer, group: str) -> AdministratorsBinding | None:
    if answer.status in (200, 201):
        return _bound(group)
    return _forbidden(group) if answer.status == 403 else None


def _bound(group: str) -> AdministratorsBinding:
    told = condition(BOUND, TRUE, "Bound", f"the group {group} is bound to cluster-admin")
    return AdministratorsBinding(told, group)


def _left_alone(group: str) -> AdministratorsBinding:
    why = (
        f'the ClusterRoleBinding "{NAME}" was changed or removed, and is left alone; bind the group {group} yourself '
        "if administrators are to have rights in the cluster"
    )
    return AdministratorsBinding(condition(BOUND, FALSE, LEFT_ALONE, why, "Info"))


def _bound_otherwise(group: str) -> AdministratorsBinding:
    why = f'a ClusterRoleBinding "{NAME}" of somebody else is there; bind the group {group} by another one'
    return AdministratorsBinding(condition(BOUND, FALSE, "BoundOtherwise", why, "Warning"))


def _forbidden(group: str) -> AdministratorsBinding:
    why = (
        f"the credential may not bind the group {group} to cluster-admin; do that yourself, or administrators have no "
        "rights in the cluster"
    )
    return AdministratorsBinding(condition(BOUND, FALSE, "Forbidden", why, "Info"))
