"""Binds Fairlead's administrators to `cluster-admin` in a cluster that is connected for the first time.

Requests to a cluster impersonate their user and the user's groups, and the cluster's own RBAC authorizes them. Without
any binding, a new cluster would be unusable. Later changes of the binding are respected, with one exception: if
`cluster_identity_prefix` has changed since this server created the binding, the group is renamed in it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead.controllers.clusters.probe import PROBE_TIMEOUT, HttpResult, send_request
from fairlead.controllers.clusters.status import ADMINISTRATORS_BOUND, ADMINISTRATORS_GROUP_FIELD, AdministratorsBinding
from fairlead.controllers.instances.remote_namespace import MANAGED_LABEL, MANAGED_VALUE
from fairlead.core.objects import Object, get_path
from fairlead.domain.cluster_identity import ADMIN_GROUP, ClusterIdentityMapper
from fairlead.registry.conditions import FALSE, TRUE, condition, find_condition, is_true
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream

BINDING_NAME: Final = "service.sh:admins"
RBAC: Final = "rbac.authorization.k8s.io"
BINDINGS_PATH = f"/apis/{RBAC}/v1/clusterrolebindings"
MANAGED_EXTERNALLY: Final = "ManagedExternally"
"""The reason if the binding was changed or deleted by others before the group could be renamed in it."""
ROLE_REF = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}


@dataclass(frozen=True, slots=True)
class UnbindResult:
    """The result of removing the administrators from the binding: the verb that failed with an HTTP status, or why the
    binding was kept. All empty if it was deleted."""

    refused_verb: str = ""
    status: int = 0
    retained_reason: str = ""


async def bind_administrators(upstream: Upstream, names: ClusterIdentityMapper) -> AdministratorsBinding | None:
    """The resulting condition; None if the cluster has no RBAC API or did not answer."""
    group = names.admin_group
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            answer = await send_request(upstream, "GET", f"{BINDINGS_PATH}/{BINDING_NAME}")
            if answer.status == 404:
                return await _create_binding(upstream, group)
            if answer.status != 200 or not _is_binding(answer):
                return _forbidden_result(group) if answer.status == 403 else None
            return _bound_result(group) if _is_bound(answer.body, group) else _foreign_binding_result(group)
    except (UpstreamError, TimeoutError):
        return None


async def rename_administrators(
    upstream: Upstream, names: ClusterIdentityMapper, old_group: str
) -> AdministratorsBinding | None:
    """Like `bind_administrators`, if another group was bound before. A binding that others changed is left alone."""
    group = names.admin_group
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            answer = await send_request(upstream, "GET", f"{BINDINGS_PATH}/{BINDING_NAME}")
            if answer.status == 404:
                return _managed_externally_result(group)
            if answer.status != 200 or not _is_binding(answer):
                return _forbidden_result(group) if answer.status == 403 else None
            if _is_bound(answer.body, group):
                return _bound_result(group)
            if not _is_managed(answer.body) or not _is_bound(answer.body, old_group):
                return _managed_externally_result(group)
            renamed = _replace_group(answer.body, old_group, group)
            return _write_result(await send_request(upstream, "PUT", f"{BINDINGS_PATH}/{BINDING_NAME}", renamed), group)
    except (UpstreamError, TimeoutError):
        return None


def is_binding_done(status: Object | None, names: ClusterIdentityMapper) -> bool:
    """Whether the administrators are bound under their current name, or the binding is managed by others."""
    found = find_condition(status, ADMINISTRATORS_BOUND) or {}
    if found.get("reason") == MANAGED_EXTERNALLY:
        return True
    return is_true(status, ADMINISTRATORS_BOUND) and bound_group(status) == names.admin_group


def bound_group(status: Object | None) -> str:
    """The bound group. Old versions did not record it; they used the name without a prefix."""
    return str(get_path(status or {}, ADMINISTRATORS_GROUP_FIELD) or ADMIN_GROUP)


async def unbind_administrators(upstream: Upstream, group: str) -> UnbindResult:
    """Removes the group from the binding. Deletes the binding only if it has no other subjects. Raises
    UpstreamError."""
    path = f"{BINDINGS_PATH}/{BINDING_NAME}"
    found = await send_request(upstream, "GET", path)
    if found.status == 404:
        return UnbindResult()
    if found.status != 200 or not _is_binding(found):
        return UnbindResult("read", found.status)
    binding = found.body
    if not _is_managed(binding) or get_path(binding, "roleRef.name") != ROLE_REF["name"]:
        return UnbindResult(retained_reason="it is not as this server created it")
    others = _other_subjects(binding, group)
    if not others:
        preconditions = {name: get_path(binding, f"metadata.{name}") for name in ("uid", "resourceVersion")}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        deleted = await send_request(upstream, "DELETE", path, options)
        return UnbindResult() if deleted.status in (200, 202, 404) else UnbindResult("delete", deleted.status)
    if len(others) < len(_subjects(binding)):
        # With its resourceVersion, so that a concurrent change is not overwritten.
        updated = await send_request(upstream, "PUT", path, {**binding, "subjects": others})
        if updated.status not in (200, 404):
            return UnbindResult("update", updated.status)
    return UnbindResult(retained_reason=f"it has other subjects than the group {group}, which was removed from it")


async def _create_binding(upstream: Upstream, group: str) -> AdministratorsBinding | None:
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": BINDING_NAME, "labels": {MANAGED_LABEL: MANAGED_VALUE}},
        "roleRef": ROLE_REF,
        "subjects": [_subject(group)],
    }
    return _write_result(await send_request(upstream, "POST", BINDINGS_PATH, binding), group)


def _subject(group: str) -> Object:
    return {"apiGroup": RBAC, "kind": "Group", "name": group}


def _is_bound(binding: Object, group: str) -> bool:
    subjects = [(get_path(each, "kind"), get_path(each, "name")) for each in _subjects(binding)]
    return get_path(binding, "roleRef.name") == ROLE_REF["name"] and ("Group", group) in subjects


def _is_binding(answer: HttpResult) -> bool:
    return bool(get_path(answer.body, "kind") == "ClusterRoleBinding")


def _is_managed(binding: Object) -> bool:
    labels = get_path(binding, "metadata.labels")
    return isinstance(labels, dict) and labels.get(MANAGED_LABEL) == MANAGED_VALUE


def _replace_group(binding: Object, old_group: str, group: str) -> Object:
    """Keeps other subjects, which were added by others, and the resourceVersion, so that a concurrent change is not
    overwritten."""
    return {**binding, "subjects": [*_other_subjects(binding, old_group), _subject(group)]}


def _other_subjects(binding: Object, group: str) -> list[Any]:
    return [each for each in _subjects(binding) if (get_path(each, "kind"), get_path(each, "name")) != ("Group", group)]


def _subjects(binding: Object) -> Sequence[Any]:
    found = binding.get("subjects")
    return found if isinstance(found, list) else ()


def _write_result(answer: HttpResult, group: str) -> AdministratorsBinding | None:
    if answer.status in (200, 201):
        return _bound_result(group)
    return _forbidden_result(group) if answer.status == 403 else None


def _bound_result(group: str) -> AdministratorsBinding:
    bound = condition(ADMINISTRATORS_BOUND, TRUE, "Bound", f"the group {group} is bound to cluster-admin")
    return AdministratorsBinding(bound, group)


def _managed_externally_result(group: str) -> AdministratorsBinding:
    message = (
        f'the ClusterRoleBinding "{BINDING_NAME}" was changed or deleted by others, and is left alone; bind the group '
        f"{group} yourself if administrators should have access to the cluster"
    )
    return AdministratorsBinding(condition(ADMINISTRATORS_BOUND, FALSE, MANAGED_EXTERNALLY, message, "Info"))


def _foreign_binding_result(group: str) -> AdministratorsBinding:
    message = (
        f'a ClusterRoleBinding "{BINDING_NAME}" of another origin exists; bind the group {group} by another binding'
    )
    return AdministratorsBinding(condition(ADMINISTRATORS_BOUND, FALSE, "ForeignBinding", message, "Warning"))


def _forbidden_result(group: str) -> AdministratorsBinding:
    message = (
        f"the stored credential may not bind the group {group} to cluster-admin; bind it yourself, otherwise "
        "administrators have no access to the cluster"
    )
    return AdministratorsBinding(condition(ADMINISTRATORS_BOUND, FALSE, "Forbidden", message, "Info"))
