"""A real cluster that was imported as a virtual cluster keeps nothing of ours when its instance is deleted."""

from base64 import b64encode

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, create_resource, post_object
from tests.harness.server_process import MANAGEMENT
from tests.reference.connected_cluster import World, condition

PROJECT = "import"
NAMESPACE = f"service-p-{PROJECT}"
INSTANCE = f"{M}/namespaces/{NAMESPACE}/virtualclusterinstances/theirs"
MARKED = ("clusterrolebindings", "-l", "service.sh/managed=fairlead,service.sh/uid")


def test_deletion_of_an_imported_virtual_cluster_removes_its_bindings(world: World) -> None:
    with world.server.client() as admin:
        create_resource(admin, "projects", "Project", PROJECT, owner={"user": "admin"})
        data = {"config": b64encode(world.plane.kubeconfig().encode()).decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs"}, "data": data}
        post_object(admin, f"{MANAGEMENT}/api/v1/namespaces/{NAMESPACE}/secrets", secret)
        plural = f"namespaces/{NAMESPACE}/virtualclusterinstances"
        create_resource(
            admin, plural, "VirtualClusterInstance", "theirs", owner={"user": "admin"}, config={"secretName": "theirs"}
        )

        def has_access() -> bool:
            return condition(admin.get(INSTANCE).json(), "AccessSynced").get("status") == "True"

        wait_until(has_access, 30, "roles are bound")
        assert world.direct().get_names(*MARKED) == ["service.sh:cluster-admin"]
        deleted = world.fairlead("vcluster", "delete", "theirs", "--project", PROJECT, "--yes")
        assert deleted.returncode == 0, deleted.stderr
        assert world.direct().get_names(*MARKED) == []
        found = admin.get(f"{MANAGEMENT}/api/v1/namespaces/{NAMESPACE}/events").json()["items"]
        told = [each["message"] for each in found if each["reason"] == "AccessRemoved"]
        assert len(told) == 1 and "service.sh:cluster-admin" in told[0]
        assert "service.sh:admins was kept" in told[0]
