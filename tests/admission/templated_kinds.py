"""The kinds whose objects are made from templates."""

import pytest

TEMPLATES = {
    "SpaceInstance": "SpaceTemplate",
    "VirtualClusterInstance": "VirtualClusterTemplate",
    "DevPodWorkspaceInstance": "DevPodWorkspaceTemplate",
}
every_kind = pytest.mark.parametrize("kind", TEMPLATES)
