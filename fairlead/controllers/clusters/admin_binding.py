"""Binds Fairlead's administrators to `cluster-admin` in a cluster that is connected for the first time.

Requests to a cluster impersonate their user and the user's groups, and the cluster's own RBAC authorizes them. Without
any binding, a new cluster would be unusable. Later changes of the binding are respected, with one exception: if
`cluster_identity_prefix` has changed since this server created the binding, the group is renamed in it.
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
"""The reason if the binding was changed or deleted by others before the group could be renamed in it."""
ROLE = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}


@dataclass(frozen=True, slots=True)
class Unbinding:
    """The result of removing the administrators from the binding: the verb that failed with an HTTP status, or why the
    binding was kept. All empty if it was deleted."""

    refused: str = ""
    status: int = 0
    stays: str = ""


async def bind_administrators(upstream: Upstream, names: ClusterNames) -> AdministratorsBinding | None:
    """The resulting condition; None if the cluster has no RBAC API or did not answer."""
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
    """Like `bind_administrators`, if another group was bound before. A binding that others changed is left alone."""
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
    """Whether the administrators are bound under their current name, or the binding is managed by others."""
    found = find_condition(status, BOUND) or {}
    if found.get("reason") == LEFT_ALONE:
        return True
    return is_true(status, BOUND) and bound_group(status) == names.administrators


def bound_group(status: Object | None) -> str:
    """The bound group. Old versions did not record it; they used the name without a prefix."""
    return str(dig(status or {}, ADMINISTRATORS_GROUP) or ADMINISTRATORS)


async def unbind_administrators(upstream: Upstream, group: str) -> Unbinding:
    """Removes the group from the binding. Deletes the binding only if it has no other subjects. Raises
    UpstreamError."""
    path = f"{BINDINGS}/{NAME}"
    found = await ask(upstream, "GET", path)
    if found.status == 404:
        return Unbinding()
    if found.status != 200 or not _is_binding(found):
        return Unbinding("read", found.status)
    binding = found.body
    if not _is_ours(binding) or dig(binding, "roleRef.name") != ROLE["name"]:
        return Unbinding(stays="it is not as this server created it")
    others = _other_subjects(binding, group)
    if not others:
        preconditions = {name: dig(binding, f"metadata.{name}") for name in ("uid", "resourceVersion")}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        deleted = await ask(upstream, "DELETE", path, options)
        return Unbinding() if deleted.status in (200, 202, 404) else Unbinding("delete", deleted.status)
    if len(others) < len(_subjects(binding)):
        # With its resourceVersion, so that a concurrent change is not overwritten.
        updated = await ask(upstream, "PUT", path, {**binding, "subjects": others})
        if updated.status not in (200, 404):
            return Unbinding("update", updated.status)
    return Unbinding(stays=f"it has other subjects than the group {group}, which was removed from it")


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
    subjects = [(dig(each, "kind"), dig(each, "name")) for each in _subjects(binding)]
    return dig(binding, "roleRef.name") == ROLE["name"] and ("Group", group) in subjects


def _is_binding(answer: Answer) -> bool:
    return bool(dig(answer.body, "kind") == "ClusterRoleBinding")


def _is_ours(binding: Object) -> bool:
    labels = dig(binding, "metadata.labels")
    return isinstance(labels, dict) and labels.get(MANAGED) == FAIRLEAD


def _renamed(binding: Object, former: str, group: str) -> Object:
    """Keeps other subjects, which were added by others, and the resourceVersion, so that a concurrent change is not
    overwritten."""
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
    bound = condition(BOUND, TRUE, "Bound", f"the group {group} is bound to cluster-admin")
    return AdministratorsBinding(bound, group)


def _left_alone(group: str) -> AdministratorsBinding:
    message = (
        f'the ClusterRoleBinding "{NAME}" was changed or deleted by others, and is left alone; bind the group '
        f"{group} yourself if administrators should have access to the cluster"
    )
    return AdministratorsBinding(condition(BOUND, FALSE, LEFT_ALONE, message, "Info"))


def _bound_otherwise(group: str) -> AdministratorsBinding:
    message = f'a ClusterRoleBinding "{NAME}" of another origin exists; bind the group {group} by another binding'
    return AdministratorsBinding(condition(BOUND, FALSE, "BoundOtherwise", message, "Warning"))


def _forbidden(group: str) -> AdministratorsBinding:
    message = (
        f"the stored credential may not bind the group {group} to cluster-admin; bind it yourself, otherwise "
        "administrators have no access to the cluster"
    )
    return AdministratorsBinding(condition(BOUND, FALSE, "Forbidden", message, "Info"))
