from tests.fake_cluster.server import fake_cluster

__all__ = ["fake_cluster"]
