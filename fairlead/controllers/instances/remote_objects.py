"""The objects of a template in a cluster: applied, and deleted when the template drops them.

Those of a space must be in its namespace; anything else is rejected. Objects of an administrator's template are applied
with the stored credential of the cluster, all others as the deployer of the namespace, which has the permissions of the
owner there (`confinement.py`). Those inside a virtual cluster may be anywhere in it (`inner_objects.py`).
"""

import asyncio
import re
from collections.abc import Sequence

from fairlead.controllers.instances.discovery import Discovery
from fairlead.controllers.instances.remote_errors import (
    ERROR,
    OWNER_FORBIDDEN,
    WARNING,
    InstanceError,
    translate_errors,
)
from fairlead.controllers.instances.remote_namespace import RemoteNamespace, uid_precondition
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX
from fairlead.core import yaml
from fairlead.core.objects import Object, deep_copy, get_path, metadata, name_of
from fairlead.domain.typed_objects import SPACE_OBJECTS, RemoteInstance
from fairlead.upstream.kube_client import KubeApi, delete_if_exists, get_or_none

INVALID_TEMPLATE_OBJECTS, KIND_NOT_SERVED = "InvalidTemplateObjects", "KindNotServed"
"""The reasons if the template itself is invalid, independent of the cluster; and if a virtual cluster does not serve a
kind, which a definition in the same template may change."""
MAX_OBJECTS = 200
"""How many objects a template may have: each is applied in every reconcile."""
MAX_TRACKED_OBJECTS = 3 * MAX_OBJECTS
"""How many objects are tracked for deletion: those of a partly applied template, and those before it."""

RBAC_RETRY_SECONDS = (0.1, 0.4, 1.5)
"""Retry delays, once per reconcile, until RoleBindings that were just created take effect."""

_SET_BY_SERVER = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"),
    *("deletionGracePeriodSeconds", "managedFields", "selfLink"),
)
"""Metadata of an exported object that would make an apply fail."""

_document_separator = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_name_pattern = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*", re.ASCII)
_label_pattern = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_api_version_pattern = re.compile(rf"({_label_pattern}(\.{_label_pattern})*/)?[a-z0-9]{{1,63}}", re.ASCII)


def parse_objects(text: str, max_objects: int = MAX_OBJECTS) -> list[Object]:
    """Parses a multi-document YAML text. Raises InstanceError."""
    found: list[Object] = []
    for number, document in enumerate(_document_separator.split(text), 1):
        try:
            value, _ = yaml.decode(document.encode())
        except yaml.Malformed as error:
            raise _template_error(f"document {number} is invalid: {error}") from None
        if value is None:
            continue
        if not isinstance(value, dict) or not _has_valid_identity(value):
            raise _template_error(f"document {number} has no valid apiVersion, kind and metadata.name")
        found.append(value)
        if len(found) > max_objects:
            raise _template_error(f"there are more than {max_objects} of them; at most {max_objects} are allowed")
    return found


def _has_valid_identity(value: Object) -> bool:
    texts = value.get("apiVersion"), value.get("kind"), get_path(value, "metadata.name")
    if not all(isinstance(text, str) for text in texts):
        return False
    version, kind, name = (str(text) for text in texts)
    return all((_api_version_pattern.fullmatch(version), _name_pattern.fullmatch(kind), _name_pattern.fullmatch(name)))


def _template_error(reason: str) -> InstanceError:
    return InstanceError(
        INVALID_TEMPLATE_OBJECTS, f"the objects of the template cannot be applied: {reason}; fix the template", ERROR
    )


class RemoteObjects:
    """The objects of one instance in one reconcile, with a discovery cache. `writer` is the API as the impersonated
    user `impersonate_user`; without it everything is done with the stored credential. With `is_whole_cluster`, objects
    may be in any namespace, with that of `target` as the default, or in none."""

    def __init__(
        self,
        api: KubeApi,
        target: RemoteNamespace,
        writer: KubeApi | None = None,
        impersonate_user: str = "",
        *,
        is_whole_cluster: bool = False,
    ) -> None:
        self._api = api
        self._target = target
        self._is_whole_cluster = is_whole_cluster
        self._writer = writer or api
        self._impersonate_user = impersonate_user
        self._retry_delays = list(RBAC_RETRY_SECONDS) if impersonate_user else []
        self._discovery = Discovery(api)

    async def apply(self, objects: Sequence[Object], previous: Sequence[Object]) -> list[Object]:
        """Applies all objects, and deletes those of `previous` that are not among them. If the cluster rejects one,
        such as a change of an immutable field, the others are applied anyway, and the first error is raised at the end.
        Returns those of `previous` that the owner is not permitted to delete."""
        if not self._is_whole_cluster:  # nothing is applied if a part of the template cannot be
            for each in objects:
                await self._find_path(each)
        paths: list[str] = []
        refusals: list[InstanceError] = []
        for each in objects:
            try:
                path = await self._find_path(each)
                paths.append(path)
                await self._apply_object(path, await self._prepare(each))
            except InstanceError as error:
                if error.severity != ERROR and error.reason != KIND_NOT_SERVED:
                    raise
                refusals.append(error)
        retained = await self._delete_obsolete(previous, paths)
        if refusals:
            first, more = refusals[0], len(refusals) - 1
            message = f"{first.message} (and {more} more objects)" if more else first.message
            raise InstanceError(first.reason, message, first.severity)
        return retained

    async def find_foreign(self, objects: Sequence[Object]) -> Object | None:
        """One of the objects that exists without the labels of this instance, which apply would take over."""
        for each in objects:
            path = await self._find_path(each)
            with translate_errors(self._target.cluster, f'read {each["kind"]} "{name_of(each)}"'):
                existing = await get_or_none(self._api, path)
            if existing is not None and not self._target.owns(existing):
                return each
        return None

    async def delete_owned(self, objects: Sequence[Object]) -> list[Object]:
        """Deletes those of the objects that belong to this instance. Returns those of them that still exist."""
        remaining = []
        for each in objects:
            path = await self._find_path(each, missing_ok=True)
            if not path:
                continue
            with translate_errors(self._target.cluster, f'delete {each["kind"]} "{name_of(each)}"'):
                await self._delete_object(path)
                existing = await get_or_none(self._api, path)
            if existing is not None and self._target.owns(existing):
                remaining.append(each)
        return remaining

    async def _apply_object(self, path: str, obj: Object) -> None:
        while True:
            try:
                with translate_errors(
                    self._target.cluster, f'apply {obj["kind"]} "{name_of(obj)}"', self._impersonate_user
                ):
                    await self._writer.apply(path, obj)
            except InstanceError as error:
                if error.reason != OWNER_FORBIDDEN or not self._retry_delays:
                    raise
                await asyncio.sleep(self._retry_delays.pop(0))
            else:
                self._retry_delays.clear()
                return

    async def _delete_obsolete(self, previous: Sequence[Object], paths: Sequence[str]) -> list[Object]:
        retained: list[Object] = []
        for each in previous:
            path = await self._find_previous_path(each)
            if not path or path in paths:
                continue
            try:
                with translate_errors(
                    self._target.cluster, f'delete {each["kind"]} "{name_of(each)}"', self._impersonate_user
                ):
                    await self._delete_object(path)
            except InstanceError as error:
                if error.reason != OWNER_FORBIDDEN:
                    raise
                retained.append(each)
        return retained

    async def _find_previous_path(self, obj: Object) -> str:
        """The path of an object of a former template; empty if it can never have been created."""
        try:
            return await self._find_path(obj, missing_ok=True)
        except InstanceError as error:
            if error.reason != INVALID_TEMPLATE_OBJECTS:
                raise
            return ""

    async def _delete_object(self, path: str) -> None:
        """With the stored credential, deletes only objects with the labels of this instance: an untrusted template may
        have named objects of others, which it was not permitted to change."""
        if self._impersonate_user:
            await delete_if_exists(self._writer, path)
            return
        existing = await get_or_none(self._api, path)
        if existing is not None and self._target.owns(existing):
            await delete_if_exists(self._writer, path, uid_precondition(existing))

    async def _prepare(self, obj: Object) -> Object:
        placed = deep_copy(obj)
        meta = metadata(placed)
        served = await self._discovery.find(obj["apiVersion"], obj["kind"])
        meta.pop("namespace", None)
        if served is not None and served.is_namespaced:
            meta["namespace"] = self._namespace_of(obj)
        labels = meta.get("labels") or {}
        if not isinstance(labels, dict):
            raise _template_error(f'the labels of {obj["kind"]} "{name_of(obj)}" are not a map')
        meta["labels"] = self._target.with_ownership_labels(labels)
        for field in _SET_BY_SERVER:
            meta.pop(field, None)
        placed.pop("status", None)
        return placed

    async def _find_path(self, obj: Object, *, missing_ok: bool = False) -> str:
        """The API path of the object. Empty with `missing_ok`, if the cluster does not serve the kind."""
        version, kind, name = obj["apiVersion"], obj["kind"], name_of(obj)
        if kind in ("RoleBinding", "ClusterRoleBinding") and name.startswith(BINDING_PREFIX):
            raise _template_error(f'names of {kind}s that begin with "{BINDING_PREFIX}" are reserved for the server')
        if self._namespace_of(obj) != self._target.namespace and not self._is_whole_cluster:
            raise _template_error(
                f'{kind} "{name}" is not in the namespace of the space; remove its metadata.namespace'
            )
        with translate_errors(self._target.cluster, f'discover the resources of "{version}"'):
            served = await self._discovery.find(version, kind)
        if served is None:
            if missing_ok:
                return ""
            message = f'cluster "{self._target.cluster}" does not serve {kind} of {version}'
            if self._is_whole_cluster:
                raise InstanceError(KIND_NOT_SERVED, f"{message}; define it in there, or fix the template", WARNING)
            raise _template_error(message)
        if not served.is_namespaced and not self._is_whole_cluster:
            raise _template_error(
                f'{kind} "{name}" is cluster-scoped, but a space can only have objects in its own namespace'
            )
        return served.path(name, self._namespace_of(obj))

    def _namespace_of(self, obj: Object) -> str:
        return str(get_path(obj, "metadata.namespace") or self._target.namespace)


def parse_recorded_objects(instance: RemoteInstance, field: str = SPACE_OBJECTS) -> list[Object]:
    """The objects that may exist, as `record_objects` has recorded them in a field of the status."""
    recorded = get_path(instance.status, f"{field}.lastAppliedObjects")
    return parse_objects(recorded or "", MAX_TRACKED_OBJECTS)


def record_objects(instance: RemoteInstance, *lists: Sequence[Object], field: str = SPACE_OBJECTS) -> Object:
    """The status fields with the objects that may exist, so that a later reconcile can delete them: references as YAML,
    with apiVersion, kind, name and namespace only, since the rest may be secret."""
    references: dict[tuple[str, str, str, str], Object] = {}
    for each in (each for objects in lists for each in objects):
        namespace = get_path(each, "metadata.namespace")
        named = {"name": name_of(each), "namespace": str(namespace)} if namespace else {"name": name_of(each)}
        key = (each["apiVersion"], each["kind"], name_of(each), str(namespace or ""))
        references[key] = {"apiVersion": each["apiVersion"], "kind": each["kind"], "metadata": named}
    texts = [yaml.encode(each).decode() for each in list(references.values())[:MAX_TRACKED_OBJECTS]]
    applied = "---\n".join(texts)
    known = instance.status.get(field) or {}
    if not applied and not known.get("lastAppliedObjects"):
        return {}
    return {field: {**known, "lastAppliedObjects": applied}}
