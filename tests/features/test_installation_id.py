"""features.contract: the ID of the installation."""

from pathlib import Path

import orjson

from fairlead.app.default_objects import ensure_default_objects
from fairlead.core.objects import metadata
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.settings import Settings
from tests.harness.services import open_services


async def test_the_id_of_a_new_installation_is_known_once_its_system_namespace_exists(tmp_path: Path) -> None:
    """Features are built before: their rules are needed to create it."""
    async with open_services(Settings(data=tmp_path)) as server:
        services = server.services
        assert services.installation_id() == ""
        await ensure_default_objects(services.registry, services.api_group, update_roles=True)
        stored = await services.registry.resource("", "namespaces").get("", SYSTEM_NAMESPACE)
        assert services.installation_id() == metadata(orjson.loads(stored.body))["uid"]
