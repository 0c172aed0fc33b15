from tests.far_side.far_side import far_side

__all__ = ["far_side"]
