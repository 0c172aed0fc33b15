"""Where the objects of one workspace are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fairlead.client.client import build_path
from fairlead.core.objects import Object, metadata
from fairlead.runner.engines.contract import EngineError
from fairlead.runner.engines.devcontainer.grant import UID_LABEL
from fairlead.runner.engines.kubernetes.cluster import Cluster
from fairlead.runner.engines.kubernetes.manifests import INSTALLATION_LABEL, object_name, source_pod_name

CORE, NETWORKING = "/api/v1", "/apis/networking.k8s.io/v1"
PODS, CLAIMS, SECRETS, POLICIES, EVENTS = "pods", "persistentvolumeclaims", "secrets", "networkpolicies", "events"


@dataclass(frozen=True, slots=True)
class Place:
    cluster: Cluster
    namespace: str
    uid: str

    def collection(self, plural: str) -> str:
        return build_path(NETWORKING if plural == POLICIES else CORE, self.namespace, plural)

    def path(self, plural: str) -> str:
        """The path of the workspace's own object of this kind."""
        return f"{self.collection(plural)}/{object_name(self.uid)}"

    @property
    def source_pod_path(self) -> str:
        return f"{self.collection(PODS)}/{source_pod_name(self.uid)}"

    async def get_pod(self) -> Object | None:
        return await self.cluster.get(self.path(PODS))

    async def list_pods(self) -> tuple[Object | None, Object | None]:
        """The Pod of the workspace, and the one that fetches its source."""
        listed = await self.cluster.list(self.collection(PODS), labelSelector=f"{UID_LABEL}={self.uid}")
        by_name = {each["metadata"]["name"]: each for each in listed}
        return by_name.get(object_name(self.uid)), by_name.get(source_pod_name(self.uid))


async def list_labelled(cluster: Cluster, namespace: str, selector: str) -> dict[str, list[Object]]:
    """All objects of workspaces with these labels, by plural; in all namespaces if it is empty.

    Also Secrets and policies: they may be all that is left of a workspace. If the runner may not list them, those of a
    workspace whose Pod or claim is left are still deleted by name.
    """
    found: dict[str, list[Object]] = {}
    for plural in (CLAIMS, PODS, SECRETS, POLICIES):
        group = NETWORKING if plural == POLICIES else CORE
        path = build_path(group, namespace, plural) if namespace else f"{group}/{plural}"
        try:
            found[plural] = await cluster.list(path, labelSelector=selector)
        except EngineError:
            if plural in (CLAIMS, PODS):
                raise
    return found


def find_installations(listed: Mapping[str, Iterable[Object]]) -> dict[str, str | None]:
    """The installations of workspaces by uid. None if it is not known: an earlier version has made the objects."""
    found: dict[str, str | None] = {}
    for each in (each for objects in listed.values() for each in objects):
        meta = metadata(each)
        uid = str((meta.get("labels") or {}).get(UID_LABEL) or "")
        installation = (meta.get("annotations") or {}).get(INSTALLATION_LABEL)
        if uid and (installation is not None or uid not in found):
            found[uid] = installation
    return found
