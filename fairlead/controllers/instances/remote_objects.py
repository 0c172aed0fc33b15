"""The objects of a template in the namespace of a space: applied, and deleted when the template drops them.

They must be in the namespace of the space; anything else is rejected. Objects of an administrator's template are
applied with the stored credential of the cluster, all others as the deployer of the namespace, which has the
permissions of the owner there (`confinement.py`).
"""

import asyncio
import re
from collections.abc import Iterator, Sequence

from fairlead.controllers.instances.remote_errors import ERROR, OWNER_FORBIDDEN, Trouble, troubles
from fairlead.controllers.instances.remote_namespace import Api, Place, found_at, listed, only, remove, step
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX
from fairlead.core import yaml
from fairlead.core.objects import Object, copied, dig, metadata, name_of

TEMPLATE_OBJECTS = "TemplateObjects"
"""The reason if the template itself is invalid, independent of the cluster."""
MOST = 200
"""How many objects a template may have: each is applied in every reconcile."""
MOST_KEPT = 3 * MOST
"""How many objects are tracked for deletion: those of a partly applied template, and those before it."""

PATIENCE = (0.1, 0.4, 1.5)
"""Retry delays, once per reconcile, until RoleBindings that were just created take effect."""

_SET_BY_SERVER = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"),
    *("deletionGracePeriodSeconds", "managedFields", "selfLink"),
)
"""Metadata of an exported object that would make an apply fail."""

_document = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_step = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*", re.ASCII)
_label = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_version = re.compile(rf"({_label}(\.{_label})*/)?[a-z0-9]{{1,63}}", re.ASCII)


def parsed(text: str, most: int = MOST) -> list[Object]:
    """Parses a multi-document YAML text. Raises InstanceError."""
    found: list[Object] = []
    for number, document in enumerate(_document.split(text), 1):
        try:
            value, _ = yaml.decode(document.encode())
        except yaml.Malformed as error:
            raise _bad(f"document {number} is invalid: {error}") from None
        if value is None:
            continue
        if not isinstance(value, dict) or not _is_named(value):
            raise _bad(f"document {number} has no valid apiVersion, kind and metadata.name")
        found.append(value)
    if len(found) > most:
        raise _bad(f"there are {len(found)} of them, but at most {most} are allowed")
    return found


def _is_named(value: Object) -> bool:
    texts = value.get("apiVersion"), value.get("kind"), dig(value, "metadata.name")
    if not all(isinstance(text, str) for text in texts):
        return False
    version, kind, name = (str(text) for text in texts)
    return all((_version.fullmatch(version), _step.fullmatch(kind), _step.fullmatch(name)))


def _bad(why: str) -> Trouble:
    return Trouble(TEMPLATE_OBJECTS, f"the objects of the template cannot be applied: {why}; fix the template", ERROR)


class FarObjects:
    """The objects of one space in one reconcile, with a discovery cache. `writer` is the API as the impersonated user
    `impersonate_user`; without it everything is done with the stored credential."""

    def __init__(self, api: Api, place: Place, writer: Api | None = None, acting_as: str = "") -> None:
        self._api = api
        self._place = place
        self._writer = writer or api
        self._acting_as = acting_as
        self._patience = list(PATIENCE) if acting_as else []
        self._served: dict[str, Object] = {}

    async def apply(self, objects: Sequence[Object], before: Sequence[Object]) -> list[Object]:
        """Applies all objects, and deletes those of `previous` that are not among them. If the cluster rejects one,
        such as a change of an immutable field, the others are applied anyway, and the first error is raised at the end.
        Returns those of `previous` that the owner is not permitted to delete."""
        paths = [await self._path(each) for each in objects]
        placed = [self._placed(each) for each in objects]
        refusals: list[Trouble] = []
        for path, each in zip(paths, placed, strict=True):
            try:
                await self._apply(path, each)
            except Trouble as error:
                if error.severity != ERROR:
                    raise
                refusals.append(error)
        retained = await self._remove(before, paths)
        if refusals:
            first, more = refusals[0], len(refusals) - 1
            message = f"{first.message} (and {more} more objects)" if more else first.message
            raise Trouble(first.reason, message, first.severity)
        return retained

    async def _apply(self, path: str, obj: Object) -> None:
        while True:
            try:
                with troubles(self._place.cluster, f'apply {obj["kind"]} "{name_of(obj)}"', self._acting_as):
                    await self._writer.apply(path, obj)
            except Trouble as error:
                if error.reason != OWNER_FORBIDDEN or not self._patience:
                    raise
                await asyncio.sleep(self._patience.pop(0))
            else:
                self._patience.clear()
                return

    async def _remove(self, before: Sequence[Object], paths: Sequence[str]) -> list[Object]:
        retained: list[Object] = []
        for each in before:
            path = await self._former_path(each)
            if not path or path in paths:
                continue
            try:
                with troubles(self._place.cluster, f'delete {each["kind"]} "{name_of(each)}"', self._acting_as):
                    await self._remove_one(path)
            except Trouble as error:
                if error.reason != OWNER_FORBIDDEN:
                    raise
                retained.append(each)
        return retained

    async def _former_path(self, obj: Object) -> str:
        """The path of an object of a former template; empty if it can never have been created."""
        try:
            return await self._path(obj, missing_ok=True)
        except Trouble as error:
            if error.reason != TEMPLATE_OBJECTS:
                raise
            return ""

    async def _remove_one(self, path: str) -> None:
        """With the stored credential, deletes only objects with the labels of this instance: an untrusted template may
        have named objects of others, which it was not permitted to change."""
        if self._acting_as:
            await remove(self._writer, path)
            return
        existing = await found_at(self._api, path)
        if existing is not None and self._place.has_marked(existing):
            await remove(self._writer, path, only(existing))

    def _placed(self, obj: Object) -> Object:
        placed = copied(obj)
        meta = metadata(placed)
        meta["namespace"] = self._place.namespace
        labels = meta.get("labels") or {}
        if not isinstance(labels, dict):
            raise _bad(f'the labels of {obj["kind"]} "{name_of(obj)}" are not a map')
        meta["labels"] = self._place.marked(labels)
        for field in _SET_BY_SERVER:
            meta.pop(field, None)
        placed.pop("status", None)
        return placed

    async def _path(self, obj: Object, *, missing_ok: bool = False) -> str:
        """The API path of the object. Empty with `missing_ok`, if the cluster does not serve the kind."""
        version, kind, name = obj["apiVersion"], obj["kind"], name_of(obj)
        if kind == "RoleBinding" and name.startswith(BINDING_PREFIX):
            raise _bad(f'names of RoleBindings that begin with "{BINDING_PREFIX}" are reserved for the server')
        if (dig(obj, "metadata.namespace") or self._place.namespace) != self._place.namespace:
            raise _bad(f'{kind} "{name}" is not in the namespace of the space; remove its metadata.namespace')
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        served = next(self._kinds(await self._discover(root), kind), None)
        if served is None:
            if missing_ok:
                return ""
            raise _bad(f'cluster "{self._place.cluster}" does not serve {kind} of {version}')
        if not served.get("namespaced"):
            raise _bad(f'{kind} "{name}" is cluster-scoped, but a space can only have objects in its own namespace')
        return f"{root}/namespaces/{step(self._place.namespace)}/{step(served['name'])}/{step(name)}"

    async def _discover(self, root: str) -> Object:
        if root not in self._served:
            with troubles(self._place.cluster, f'discover the resources of "{root.removeprefix("/apis/")}"'):
                self._served[root] = await found_at(self._api, root) or {}
        return self._served[root]

    def _kinds(self, document: Object, kind: str) -> Iterator[Object]:
        for each in listed(document, "resources"):
            name = each.get("name")
            if each.get("kind") == kind and isinstance(name, str) and _step.fullmatch(name):
                yield each


def merged(*lists: Sequence[Object]) -> list[Object]:
    """All objects of several lists, without duplicates."""
    by_name = {(each["apiVersion"], each["kind"], name_of(each)): each for objects in lists for each in objects}
    return list(by_name.values())[:MOST_KEPT]


def references(objects: Sequence[Object]) -> str:
    """References to applied objects as YAML: apiVersion, kind and name only, since the rest may be secret."""
    texts = (
        yaml.encode({"apiVersion": each["apiVersion"], "kind": each["kind"], "metadata": {"name": name_of(each)}})
        for each in objects
    )
    return "---\n".join(text.decode() for text in texts)
