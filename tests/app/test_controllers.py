"""app.controllers: the warning about a missing prefix for cluster identities."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from fairlead.app.controllers import build_cluster_services
from fairlead.settings import Settings
from fairlead.settings.values import OFF
from tests.harness.registry import open_registry


@pytest.mark.parametrize(("prefix", "warning_count"), [("fairlead:", 0), ("", 1), (OFF, 1)])
async def test_a_server_without_a_cluster_identity_prefix_logs_a_warning(prefix: str, warning_count: int) -> None:
    async with open_registry() as api:
        with capture_logs() as lines:
            build_cluster_services(
                replace(Settings(), cluster_identity_prefix=prefix),
                api.registry,
                8443,
            )
    warnings = [line for line in lines if line["log_level"] == "warning" and "cluster_identity_prefix" in line["event"]]
    assert len(warnings) == warning_count
