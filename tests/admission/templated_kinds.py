"""The instance kinds that are created from templates, with the kinds of their templates."""

import pytest

TEMPLATES = {
    "SpaceInstance": "SpaceTemplate",
    "VirtualClusterInstance": "VirtualClusterTemplate",
    "DevPodWorkspaceInstance": "DevPodWorkspaceTemplate",
}
every_kind = pytest.mark.parametrize("kind", TEMPLATES)
