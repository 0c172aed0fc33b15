"""Deleting an imported virtual cluster removes all bindings from the real cluster."""

from base64 import b64encode
from pathlib import Path

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, create_resource, post_object
from tests.harness.server_process import MANAGEMENT
from tests.reference.connected_cluster import CLUSTER, ConnectedCluster, find_condition

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


SOURCE_NAMESPACE = "by-hand"
OTHER_PROJECT = "import-both-ways"
OTHER_INSTANCE = f"{M}/namespaces/service-p-{OTHER_PROJECT}/virtualclusterinstances/theirs"


def import_theirs(connected: ConnectedCluster, *flags: str) -> str:
    command = ("vcluster", "import", "theirs", "--project", OTHER_PROJECT, "--timeout", "60s")
    imported = connected.run_cli(*command, *flags)
    assert imported.returncode == 0, imported.stderr
    return imported.stderr


def test_a_virtual_cluster_is_imported_by_file_and_by_the_secret_of_its_chart(
    connected: ConnectedCluster, tmp_path: Path
) -> None:
    kubectl = connected.direct_kubectl()
    with connected.server.client() as admin:
        create_resource(admin, "projects", "Project", OTHER_PROJECT, owner={"user": "admin"})
        secret = f"{MANAGEMENT}/api/v1/namespaces/service-p-{OTHER_PROJECT}/secrets/vcluster-theirs"

        file = tmp_path / "theirs.kubeconfig"
        file.write_text(connected.plane.kubeconfig())
        assert "is Ready" in import_theirs(connected, "--kubeconfig", str(file), "--wait")
        assert admin.get(secret).json()["metadata"]["ownerReferences"][0]["name"] == "theirs"
        deleted = connected.run_cli("vcluster", "delete", "theirs", "--project", OTHER_PROJECT, "--yes")
        assert deleted.returncode == 0, deleted.stderr
        wait_until(lambda: admin.get(secret).status_code == 404, 30, "the Secret is deleted with the instance")

        place = ("--cluster", CLUSTER, "--namespace", SOURCE_NAMESPACE, "--virtual-cluster", "theirs")
        missing = connected.run_cli("vcluster", "import", "theirs", "--project", OTHER_PROJECT, *place)
        assert missing.returncode == 1 and "vc-theirs" in missing.stderr
        kubectl.run("create", "namespace", SOURCE_NAMESPACE)
        kubectl.run("-n", SOURCE_NAMESPACE, "create", "secret", "generic", "vc-theirs", f"--from-file=config={file}")
        import_theirs(connected, *place)

        def source() -> dict[str, str]:
            found: dict[str, str] = admin.get(OTHER_INSTANCE).json().get("status", {}).get("importedFrom") or {}
            return found

        wait_until(lambda: bool(source()), 30, "the source is verified")
        assert (source()["cluster"], source()["namespace"], source()["name"]) == (
            CLUSTER,
            SOURCE_NAMESPACE,
            "theirs",
        )
        kept = kubectl.get_names("secrets", "-n", SOURCE_NAMESPACE)
        connected.run_cli("vcluster", "delete", "theirs", "--project", OTHER_PROJECT, "--yes", "--abandon")
        assert kubectl.get_names("secrets", "-n", SOURCE_NAMESPACE) == kept == ["vc-theirs"]
