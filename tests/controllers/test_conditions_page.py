"""docs/conditions.md has every condition and every reason that the code gives, and none that it does not give."""

import re
from pathlib import Path

import pytest

from tests.controllers.condition_reasons import constants, reasons

PAGE = Path(__file__).parents[2] / "docs" / "conditions.md"
SECTIONS = {
    **{"controllers.workspaces.scheduling": "Workspaces", "controllers.workspaces.workspaces": "Workspaces"},
    **{"controllers.workspaces.runners": "Runners", "controllers.projects.projects": "Projects"},
    **{"controllers.access.access_keys": "Events", "controllers.core.garbage_collector": "Events"},
}
INSTANCES = "Spaces and virtual clusters"
NO_REASONS = frozenset({"True", "False", "Unknown", "UpstreamError"})
"""Statuses; and the reason of an error that is always one of its kinds."""
STATES = {
    *(("controllers.workspaces.scheduling", each) for each in ("Busy", "Running", "Stopped")),
    ("controllers.instances.vcluster_release", "Confined"),
}
"""What a runner says of a container, and how much a template is trusted: compared, and given as no reason."""
PASSED_ON = frozenset({"Conflict", "RequestEntityTooLarge", "Migrated", "MigratedAway", "NotFound"})
"""Kubernetes' own words, and those of Events that no controller writes."""
COMMON = ("", "Events")
"""The top of the page is about all kinds."""


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


@pytest.mark.parametrize(("module", "reason"), sorted({*reasons(), *constants()} - STATES))
def test_a_reason_is_on_the_page(module: str, reason: str) -> None:
    page = sections()
    places = (*COMMON, SECTIONS.get(module, INSTANCES))
    assert reason in NO_REASONS or any(f"`{reason}`" in page[place] for place in places), f"{reason} of {module}"


def test_the_page_has_no_reason_that_nobody_gives() -> None:
    given = {reason for _, reason in (*reasons(), *constants())} | PASSED_ON
    told = set()
    for section in (INSTANCES, "Workspaces", "Runners", "Projects"):
        for row in sections()[section].splitlines():
            cells = row.split("|")
            told |= set(re.findall(r"`([A-Z][A-Za-z]+)`", cells[2])) if len(cells) > 3 else set()
    assert told - given == set()
    assert {"NamespaceConflict", "HelmFailed", "Unreachable", "WaitingForRunner", "NamespaceReady"} <= told


def test_every_kind_with_conditions_is_on_the_page() -> None:
    page = sections()
    assert {INSTANCES, "Workspaces", "Runners", "Projects", "Events"} <= page.keys()
    assert "ProjectSecret, SharedSecret" in page["Kinds without reasons of their own"]
    assert "(clusters.md#what-the-status-says)" in page[""]
