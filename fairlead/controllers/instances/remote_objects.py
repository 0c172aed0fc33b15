"""The objects that a template puts into a space: applied, and removed again when the template drops them.

They have to be objects in the namespace of the space; everything else is refused. Those of an administrator's template
are made with the credential that is stored for the cluster, all others as the deployer of the namespace, who has the
rights of the owner there (`confinement.py`).
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
"""The reason where the text itself is wrong, whatever the cluster would say."""
MOST = 200
"""How many objects a template may have: each is looked at in every pass."""
MOST_KEPT = 3 * MOST
"""How many are remembered for removal: those of a template that was applied in part, beside those before it."""

PATIENCE = (0.1, 0.4, 1.5)
"""Seconds to wait, once in a pass, for rights to take effect that were bound a moment ago."""

_SET_BY_SERVER = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"),
    *("deletionGracePeriodSeconds", "managedFields", "selfLink"),
)
"""Metadata that an object out of a cluster has, and that an apply is refused for."""

_document = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_step = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*", re.ASCII)
_label = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_version = re.compile(rf"({_label}(\.{_label})*/)?[a-z0-9]{{1,63}}", re.ASCII)


def parsed(text: str, most: int = MOST) -> list[Object]:
    """The objects of a text with `---` between them. Raises Trouble."""
    found: list[Object] = []
    for number, document in enumerate(_document.split(text), 1):
        try:
            value, _ = yaml.decode(document.encode())
        except yaml.Malformed as error:
            raise _bad(f"document {number} cannot be read: {error}") from None
        if value is None:
            continue
        if not isinstance(value, dict) or not _is_named(value):
            raise _bad(f"document {number} has no apiVersion, kind and metadata.name that could be used")
        found.append(value)
    if len(found) > most:
        raise _bad(f"there are {len(found)} of them, and {most} are allowed")
    return found


def _is_named(value: Object) -> bool:
    texts = value.get("apiVersion"), value.get("kind"), dig(value, "metadata.name")
    if not all(isinstance(text, str) for text in texts):
        return False
    version, kind, name = (str(text) for text in texts)
    return all((_version.fullmatch(version), _step.fullmatch(kind), _step.fullmatch(name)))


def _bad(why: str) -> Trouble:
    return Trouble(TEMPLATE_OBJECTS, f"the objects of the template cannot be made: {why}; have it mended", ERROR)


class FarObjects:
    """The objects of one space, in one pass: what the cluster serves is asked for once. `writer` is the way to the
    cluster as the user `acting_as`; without it everything is done with the stored credential."""

    def __init__(self, api: Api, place: Place, writer: Api | None = None, acting_as: str = "") -> None:
        self._api = api
        self._place = place
        self._writer = writer or api
        self._acting_as = acting_as
        self._patience = list(PATIENCE) if acting_as else []
        self._served: dict[str, Object] = {}

    async def apply(self, objects: Sequence[Object], before: Sequence[Object]) -> list[Object]:
        """Applies all, and removes those of `before` that are not among them. What the cluster refuses, such as a
        change of something immutable, keeps no other object from being made; the first refusal is raised in the end.
        Returns those of `before` that stay, since the owner may not delete them."""
        paths = [await self._path(each) for each in objects]
        placed = [self._placed(each) for each in objects]
        refusals: list[Trouble] = []
        for path, each in zip(paths, placed, strict=True):
            try:
                await self._apply(path, each)
            except Trouble as trouble:
                if trouble.severity != ERROR:
                    raise
                refusals.append(trouble)
        left = await self._remove(before, paths)
        if refusals:
            first, more = refusals[0], len(refusals) - 1
            why = f"{first.message} (and {more} more objects)" if more else first.message
            raise Trouble(first.reason, why, first.severity)
        return left

    async def _apply(self, path: str, obj: Object) -> None:
        while True:
            try:
                with troubles(self._place.cluster, f'apply {obj["kind"]} "{name_of(obj)}"', self._acting_as):
                    await self._writer.apply(path, obj)
            except Trouble as trouble:
                if trouble.reason != OWNER_FORBIDDEN or not self._patience:
                    raise
                await asyncio.sleep(self._patience.pop(0))
            else:
                self._patience.clear()
                return

    async def _remove(self, before: Sequence[Object], paths: Sequence[str]) -> list[Object]:
        left: list[Object] = []
        for each in before:
            path = await self._former_path(each)
            if not path or path in paths:
                continue
            try:
                with troubles(self._place.cluster, f'delete {each["kind"]} "{name_of(each)}"', self._acting_as):
                    await self._remove_one(path)
            except Trouble as trouble:
                if trouble.reason != OWNER_FORBIDDEN:
                    raise
                left.append(each)
        return left

    async def _former_path(self, obj: Object) -> str:
        """Where an object of a former template is; empty where it can never have been made."""
        try:
            return await self._path(obj, missing_ok=True)
        except Trouble as trouble:
            if trouble.reason != TEMPLATE_OBJECTS:
                raise
            return ""

    async def _remove_one(self, path: str) -> None:
        """With the stored credential only what is marked as this instance's: a template of somebody else may have named
        what others had made, and was refused it then."""
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
            raise _bad(f'the labels of {obj["kind"]} "{name_of(obj)}" are no map')
        meta["labels"] = self._place.marked(labels)
        for field in _SET_BY_SERVER:
            meta.pop(field, None)
        placed.pop("status", None)
        return placed

    async def _path(self, obj: Object, *, missing_ok: bool = False) -> str:
        """Where the object is in the API. Empty where the cluster does not know the kind and that is no matter."""
        version, kind, name = obj["apiVersion"], obj["kind"], name_of(obj)
        if kind == "RoleBinding" and name.startswith(BINDING_PREFIX):
            raise _bad(f'names of RoleBindings that begin with "{BINDING_PREFIX}" are kept for the server')
        if (dig(obj, "metadata.namespace") or self._place.namespace) != self._place.namespace:
            raise _bad(f'{kind} "{name}" names another namespace than that of the space; leave metadata.namespace out')
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        served = next(self._kinds(await self._discover(root), kind), None)
        if served is None:
            if missing_ok:
                return ""
            raise _bad(f'cluster "{self._place.cluster}" serves no {kind} of {version}')
        if not served.get("namespaced"):
            raise _bad(f'{kind} "{name}" lives in no namespace, and a space has objects of its own namespace only')
        return f"{root}/namespaces/{step(self._place.namespace)}/{step(served['name'])}/{step(name)}"

    async def _discover(self, root: str) -> Object:
        if root not in self._served:
            with troubles(self._place.cluster, f'list what it serves of "{root.removeprefix("/apis/")}"'):
                self._served[root] = await found_at(self._api, root) or {}
        return self._served[root]

    def _kinds(self, document: Object, kind: str) -> Iterator[Object]:
        for each in listed(document, "resources"):
            name = each.get("name")
            if each.get("kind") == kind and isinstance(name, str) and _step.fullmatch(name):
                yield each


def merged(*lists: Sequence[Object]) -> list[Object]:
    """All objects of several lists, each once."""
    by_name = {(each["apiVersion"], each["kind"], name_of(each)): each for objects in lists for each in objects}
    return list(by_name.values())[:MOST_KEPT]


def references(objects: Sequence[Object]) -> str:
    """What is kept of applied objects, as YAML text: which they were, and nothing that could be secret."""
    texts = (
        yaml.encode({"apiVersion": each["apiVersion"], "kind": each["kind"], "metadata": {"name": name_of(each)}})
        for each in objects
    )
    return "---\n".join(text.decode() for text in texts)
