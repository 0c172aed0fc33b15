"""Tests of docs/conditions.md: it lists every condition and reason that the code uses, and no other."""

import re
from pathlib import Path

import pytest

from fairlead.core.workspaces import WorkspaceState
from fairlead.runner.conditions import AVAILABLE, FULL, KNOWN, LOW, ORPHANED
from fairlead.runner.status import APPLIED, APPLIED_AT_NEXT_UP
from tests.controllers.condition_reasons import iter_constants, iter_reasons

PAGE = Path(__file__).parents[2] / "docs" / "conditions.md"
SECTIONS = {
    **{"controllers.workspaces.scheduling": "Workspaces", "controllers.workspaces.workspaces": "Workspaces"},
    "controllers.workspaces.readiness": "Workspaces",
    "controllers.workspaces.runner_deployments": "Runners",
    "controllers.workspaces.runner_rollout": "Runners",
    **{"controllers.workspaces.runners": "Runners", "controllers.projects.projects": "Projects"},
    **dict.fromkeys(
        (f"controllers.apps.{each}" for each in ("app_instances", "script_jobs", "status", "targets")), "Apps"
    ),
    "controllers.apps.release_records": "Apps",
    **{"controllers.access.access_keys": "Events", "controllers.core.garbage_collector": "Events"},
}
INSTANCES = "Spaces and virtual clusters"
NOT_REASONS = frozenset({"True", "False", "Unknown", "UpstreamError"})
"""Statuses, and the reason of an abstract error class."""
STATES = {
    *(("controllers.workspaces.scheduling", state) for state in ("Busy", "Running", "Stopped")),
    ("controllers.instances.virtual_cluster_release", "Confined"),
    *((f"controllers.instances.{module}", "Starting") for module in ("sleep_step", "status")),
}
"""States of containers, stages of a sleep and levels of trust: values that the code compares, not reasons."""
OTHER_REASONS = frozenset({"Conflict", "RequestEntityTooLarge", "Migrated", "MigratedAway", "NotFound"})
"""Reasons of Kubernetes itself, and of Events that no controller writes."""
RUNNER_REASONS = frozenset({APPLIED, APPLIED_AT_NEXT_UP, AVAILABLE, LOW, FULL, KNOWN, ORPHANED})
"""Reasons that runners set."""
COMMON_SECTIONS = ("", "Events")
"""Sections for all kinds; the top of the page has no title."""


def page_sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


@pytest.mark.parametrize(("module", "reason"), sorted({*iter_reasons(), *iter_constants()} - STATES))
def test_a_reason_is_on_the_page(module: str, reason: str) -> None:
    page = page_sections()
    section_names = (*COMMON_SECTIONS, SECTIONS.get(module, INSTANCES))
    assert reason in NOT_REASONS or any(f"`{reason}`" in page[section_name] for section_name in section_names), (
        f"{reason} of {module}"
    )


@pytest.mark.parametrize("state", WorkspaceState)
def test_a_state_of_workspaces_is_on_the_page(state: WorkspaceState) -> None:
    assert f"`{state}`" in page_sections()["Workspaces"]


def test_every_reason_on_the_page_is_used_by_the_code() -> None:
    used = {reason for _, reason in (*iter_reasons(), *iter_constants())} | OTHER_REASONS
    used |= RUNNER_REASONS | set(WorkspaceState)
    documented = set()
    for section in (INSTANCES, "Apps", "Workspaces", "Runners", "Projects"):
        for row in page_sections()[section].splitlines():
            cells = row.split("|")
            documented |= set(re.findall(r"`([A-Z][A-Za-z]+)`", cells[2])) if len(cells) > 3 else set()
    assert documented - used == set()
    assert {"NamespaceConflict", "HelmFailed", "Unreachable", "WaitingForRunner", "NamespaceReady"} <= documented


def test_every_kind_with_conditions_is_on_the_page() -> None:
    page = page_sections()
    assert {INSTANCES, "Apps", "Workspaces", "Runners", "Projects", "Events"} <= page.keys()
    assert "ProjectSecret, SharedSecret" in page["Kinds without reasons of their own"]
    assert "(clusters.md#what-the-status-says)" in page[""]
