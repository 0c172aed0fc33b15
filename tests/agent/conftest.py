from tests.fake_cluster.server import far_side

__all__ = ["far_side"]
