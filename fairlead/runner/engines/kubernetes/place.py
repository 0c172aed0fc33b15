"""Where the objects of one workspace are."""

from dataclasses import dataclass

from fairlead.client.client import build_path
from fairlead.core.objects import Object
from fairlead.runner.engines.devcontainer.grant import UID_LABEL
from fairlead.runner.engines.kubernetes.cluster import Cluster
from fairlead.runner.engines.kubernetes.manifests import object_name, source_pod_name

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
