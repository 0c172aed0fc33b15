"""No instance is created in a project that is being deleted."""

import pytest

from fairlead.admission.projects import require_active_project
from fairlead.core.errors import Forbidden
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.harness.registry import open_registry

KIND = "DevPodWorkspaceInstance"


async def test_instances_are_created_in_active_projects_only() -> None:
    async with open_registry(rules=(require_active_project(GROUP, NAMESPACE_PREFIX),)) as api:
        await api.create("Project", "p")
        await api.create(KIND, "a", "service-p-p")
        await api.delete("Project", "p")
        with pytest.raises(Forbidden, match='"b" is forbidden: project "p" is being deleted; use another one'):
            await api.create(KIND, "b", "service-p-p")
        await api.create("ConfigMap", "c", "service-p-p")
        await api.create(KIND, "d", "demo")
