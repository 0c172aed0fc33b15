"""kubectl through the gateway to a real kube-apiserver, as people use it every day."""

from tests.reference.connected_cluster import World


def test_discovery_works_again_from_kubectls_cache(world: World) -> None:
    """The second run sends the ETags of the first, and merges what a 304 says into what it keeps."""
    kubectl = world.through_gateway(name="cache")
    first, second = (kubectl("api-resources", "--no-headers").splitlines() for _ in range(2))
    assert len(first) > 50 and second == first
    assert "default" in kubectl.get_names("ns")


def test_objects_are_applied_read_and_deleted(world: World) -> None:
    kubectl = world.through_gateway()
    kubectl("create", "configmap", "tour", "--from-literal=a=1")
    assert kubectl.get_json("configmap", "tour")["data"] == {"a": "1"}
    kubectl("delete", "configmap", "tour")
