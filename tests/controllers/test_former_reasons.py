"""Tests of `fairlead.controllers.former_reasons`: unused in the code, and understood in stored objects."""

import re
from pathlib import Path

import pytest

import fairlead
from fairlead.controllers.clusters.admin_binding import is_binding_done
from fairlead.controllers.former_reasons import FORMER_REASONS, current_reason
from fairlead.controllers.instances.status import record_transition
from fairlead.controllers.workspaces.scheduling import Placement, next_status
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.registry.conditions import condition
from tests.controllers.condition_reasons import iter_constants, iter_reasons
from tests.harness.registry import open_registry

PAGE = Path(__file__).parents[2] / "docs" / "upgrades.md"
CLUSTER_CONTROLLER = Path(fairlead.__file__).parent / "controllers" / "clusters"
CONTAINER_STATES = {"Busy"}
"""A state of a container, not a reason."""


def test_the_code_uses_no_former_reason_and_all_current_ones() -> None:
    used = {reason for _, reason in (*iter_reasons(), *iter_constants())}
    for path in CLUSTER_CONTROLLER.glob("*.py"):
        used |= set(re.findall(r'"([A-Z][A-Za-z]+)"', path.read_text()))
    assert used & FORMER_REASONS.keys() == CONTAINER_STATES
    assert set(FORMER_REASONS.values()) - used == set()


def test_the_page_about_upgrades_has_the_same_table() -> None:
    section = PAGE.read_text().partition("### Reasons of conditions and Events")[2].partition("\n### ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|$", section, re.MULTILINE)) == FORMER_REASONS


@pytest.mark.parametrize("reason", ["", None, "ClusterOffline", "KubeconfigNotSet"])
def test_other_reasons_are_not_changed(reason: str | None) -> None:
    assert current_reason(reason) == reason


@pytest.mark.parametrize("reason", ["LeftAlone", "ManagedExternally"])
def test_a_binding_that_others_manage_is_not_bound_again_after_an_upgrade(reason: str) -> None:
    status = {"conditions": [condition("AdministratorsBound", "False", reason)]}
    assert is_binding_done(status, ClusterIdentityMapper("corp:"))


@pytest.mark.parametrize("reason", ["TargetNotServed", "TargetNotSupported"])
def test_a_phase_set_by_an_earlier_version_is_not_mistaken_for_one_of_the_runner(reason: str) -> None:
    status = {"phase": "Pending", "reason": reason, "message": "x"}
    placement = Placement(condition("Scheduled", "True", "Scheduled"), "a")
    after = next_status({"metadata": {}, "status": status}, placement, "2026-01-02T03:04:05Z")
    assert (after["phase"], after["reason"]) == ("Pending", "WaitingForRunner")


@pytest.mark.parametrize(("reason", "count"), [("NamespaceTaken", 0), ("NamespaceConflict", 0), ("OddAnswer", 1)])
async def test_a_renamed_reason_is_no_transition(reason: str, count: int) -> None:
    async with open_registry() as api:
        before = {**await api.create("SpaceInstance", "one"), "status": {"reason": reason}}
        await record_transition(api.registry, before, {"reason": "NamespaceConflict", "message": "x"})
        assert len(api.list_names("Event")) == count
