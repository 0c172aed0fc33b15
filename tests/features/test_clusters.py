"""features.clusters: the warning about a missing prefix for cluster identities, and the metric of clusters."""

from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fairlead.features.clusters import count_clusters, describe_credentials
from fairlead.settings import Settings
from fairlead.settings.values import OFF
from tests.harness.services import open_services


@pytest.mark.parametrize(("prefix", "warning_count"), [("fairlead:", 0), ("", 1), (OFF, 1)])
async def test_a_server_without_a_cluster_identity_prefix_logs_a_warning(
    tmp_path: Path, prefix: str, warning_count: int
) -> None:
    with capture_logs() as lines:
        async with open_services(replace(Settings(data=tmp_path), cluster_identity_prefix=prefix)):
            pass
    warnings = [line for line in lines if line["log_level"] == "warning" and "cluster_identity_prefix" in line["event"]]
    assert len(warnings) == warning_count


def test_clusters_are_counted_by_phase() -> None:
    family = count_clusters([{}, {"status.phase": ""}, {"status.phase": "Failed"}, {"status.phase": "MadeUp"}])
    assert (family.name, family.labels) == ("fairlead_clusters", ("phase",))
    assert list(family.series) == [(("Pending",), 2), (("Initialized",), 0), (("Failed",), 1), (("Other",), 1)]


def test_credentials_are_counted_by_state_with_the_first_end_of_each() -> None:
    """The metrics have no names of clusters, as no metric has."""
    field = "status.credentialExpiry"

    def fields(state: str, end: str = "") -> dict[str, str]:
        return {f"{field}.state": state, f"{field}.expirationTimestamp": end}

    counts, ends = describe_credentials(
        [
            {},
            fields("Unlimited"),
            fields("Valid", "2026-03-01T00:00:00Z"),
            fields("Expiring", "2026-01-03T00:00:00Z"),
            fields("Expiring", "2026-01-02T00:00:00Z"),
        ]
    )
    assert (counts.labels, ends.labels) == (("state",), ("state",))
    assert list(counts.series) == [(("Unlimited",), 1), (("Valid",), 1), (("Expiring",), 2), (("Expired",), 0)]
    assert list(ends.series) == [(("Valid",), 1772323200.0), (("Expiring",), 1767312000.0)]
