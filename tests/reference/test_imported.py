"""Deleting an imported virtual cluster removes all bindings from the real cluster."""

from base64 import b64encode

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, create_resource, post_object
from tests.harness.server_process import MANAGEMENT
from tests.reference.connected_cluster import ConnectedCluster, find_condition

PROJECT = "import"
NAMESPACE = f"service-p-{PROJECT}"
INSTANCE = f"{M}/namespaces/{NAMESPACE}/virtualclusterinstances/theirs"
MANAGED_BINDINGS = ("clusterrolebindings", "-l", "service.sh/managed=fairlead,service.sh/uid")


def test_deletion_of_an_imported_virtual_cluster_removes_its_bindings(connected: ConnectedCluster) -> None:
    with connected.server.client() as admin:
        create_resource(admin, "projects", "Project", PROJECT, owner={"user": "admin"})
        data = {"config": b64encode(connected.plane.kubeconfig().encode()).decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs"}, "data": data}
        post_object(admin, f"{MANAGEMENT}/api/v1/namespaces/{NAMESPACE}/secrets", secret)
        plural = f"namespaces/{NAMESPACE}/virtualclusterinstances"
        create_resource(
            admin, plural, "VirtualClusterInstance", "theirs", owner={"user": "admin"}, config={"secretName": "theirs"}
        )

        def has_access() -> bool:
            return find_condition(admin.get(INSTANCE).json(), "AccessSynced").get("status") == "True"

        wait_until(has_access, 30, "roles are bound")
        assert connected.direct_kubectl().get_names(*MANAGED_BINDINGS) == ["service.sh:cluster-admin"]
        deleted = connected.run_cli("vcluster", "delete", "theirs", "--project", PROJECT, "--yes")
        assert deleted.returncode == 0, deleted.stderr
        assert connected.direct_kubectl().get_names(*MANAGED_BINDINGS) == []
        found = admin.get(f"{MANAGEMENT}/api/v1/namespaces/{NAMESPACE}/events").json()["items"]
        messages = [each["message"] for each in found if each["reason"] == "AccessRemoved"]
        assert len(messages) == 1 and "service.sh:cluster-admin" in messages[0]
        assert "service.sh:admins was kept" in messages[0]
