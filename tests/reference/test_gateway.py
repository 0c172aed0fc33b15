"""kubectl through the gateway to a real kube-apiserver, in everyday use."""

from tests.reference.connected_cluster import ConnectedCluster


def test_discovery_works_again_from_kubectls_cache(connected: ConnectedCluster) -> None:
    """The second run sends the ETags of the first, and merges 304 responses into its cache."""
    kubectl = connected.gateway_kubectl(name="cache")
    first, second = (kubectl("api-resources", "--no-headers").splitlines() for _ in range(2))
    assert len(first) > 50 and second == first
    assert "default" in kubectl.get_names("ns")


def test_objects_are_applied_read_and_deleted(connected: ConnectedCluster) -> None:
    kubectl = connected.gateway_kubectl()
    kubectl("create", "configmap", "tour", "--from-literal=a=1")
    assert kubectl.get_json("configmap", "tour")["data"] == {"a": "1"}
    kubectl("delete", "configmap", "tour")
