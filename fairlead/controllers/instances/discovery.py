"""Which kinds a connected cluster serves, and the paths of their objects."""

import re
from dataclasses import dataclass

from fairlead.controllers.instances.remote_namespace import list_items, url_segment
from fairlead.core.objects import Object
from fairlead.upstream.kube_client import KubeApi, get_or_none

_name_pattern = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ServedKind:
    """`root` is the path of the group and version, and `plural` the name of the resource in it."""

    root: str
    plural: str
    is_namespaced: bool

    def path(self, name: str, namespace: str) -> str:
        """The path of an object. `namespace` has no effect for kinds that are cluster-scoped."""
        place = f"/namespaces/{url_segment(namespace)}" if self.is_namespaced else ""
        return f"{self.root}{place}/{url_segment(self.plural)}/{url_segment(name)}"


class Discovery:
    """Asks a cluster once for each group and version."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._documents: dict[str, Object] = {}

    async def find(self, version: str, kind: str) -> ServedKind | None:
        """The kind of an `apiVersion`; None if the cluster does not serve it. Raises InstanceError, RemoteApiError and
        UpstreamError."""
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if root not in self._documents:
            self._documents[root] = await get_or_none(self._api, root) or {}
        for each in list_items(self._documents[root], "resources"):
            plural = each.get("name")
            if each.get("kind") == kind and isinstance(plural, str) and _name_pattern.fullmatch(plural):
                return ServedKind(root, plural, bool(each.get("namespaced")))
        return None
