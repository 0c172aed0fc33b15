"""A server without Helm says so when an app or a virtual cluster is created."""

from typing import Any

import pytest

from fairlead.admission.helm import warn_without_helm
from fairlead.core.helm_program import MISSING_HELM
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import RegistryFixture

ADMIN = User("root", ("system:masters",))
NAMESPACE = f"{NAMESPACE_PREFIX}web"
APP: dict[str, Any] = {"appRef": {"name": "app"}, "target": {"spaceInstance": {"name": "space"}}}


async def create(api: RegistryFixture, kind: str, spec: dict[str, Any], helm: str | None, user: User = ADMIN):
    server = api.with_rules(warn_without_helm(GROUP, lambda: helm))
    options = WriteOptions(user)
    await server.submit(kind, server.build_object(kind, "one", NAMESPACE, spec=spec), options)
    return options.warnings


@pytest.mark.parametrize(("kind", "spec"), [("AppInstance", APP), ("VirtualClusterInstance", {})])
async def test_without_helm_the_writer_is_warned(api: RegistryFixture, kind: str, spec: dict[str, Any]) -> None:
    assert await create(api, kind, spec, helm=None) == [f"nothing is deployed yet: {MISSING_HELM}"]


@pytest.mark.parametrize(("kind", "spec"), [("AppInstance", APP), ("VirtualClusterInstance", {})])
async def test_with_helm_there_is_no_warning(api: RegistryFixture, kind: str, spec: dict[str, Any]) -> None:
    assert await create(api, kind, spec, helm="/usr/bin/helm") == []


async def test_what_needs_no_helm_causes_no_warning(api: RegistryFixture) -> None:
    assert await create(api, "SpaceInstance", {}, helm=None) == []
    assert await create(api, "VirtualClusterInstance", {"external": True}, helm=None) == []


async def test_the_server_itself_is_not_warned(api: RegistryFixture) -> None:
    assert await create(api, "AppInstance", APP, helm=None, user=CONTROLLER_USER) == []
