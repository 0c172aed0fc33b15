"""What GitOps tools conclude from the status of each kind: Flux by kstatus, Argo CD by deploy/argocd/health.lua.

The statuses are computed by the controllers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime  # the version of Lua that Argo CD implements

from fairlead.controllers.apps import status as apps
from fairlead.controllers.clusters import status as clusters
from fairlead.controllers.instances import status as instances
from fairlead.controllers.instances.remote_errors import ERROR, WARNING, InstanceError
from fairlead.controllers.projects.projects import ProjectController
from fairlead.controllers.workspaces import runners, scheduling
from fairlead.core.objects import Object
from fairlead.domain.typed_objects import AppInstance, RemoteInstance, SpaceInstance, VirtualClusterInstance
from fairlead.kinds import KINDS
from fairlead.kinds.instances.fields import initial_status
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.conditions import FALSE, TRUE, condition, with_condition, with_conditions
from tests.harness.kstatus import CURRENT, FAILED, IN_PROGRESS, TERMINATING, kstatus
from tests.harness.registry import RegistryFixture

ROOT = Path(__file__).resolve().parents[2]
HEALTH = ROOT / "deploy" / "argocd" / "health.lua"
NOW = "2026-01-02T03:04:05Z"
HEALTHY, PROGRESSING, DEGRADED, SUSPENDED = "Healthy", "Progressing", "Degraded", "Suspended"
USUAL = {CURRENT: HEALTHY, IN_PROGRESS: PROGRESSING, FAILED: DEGRADED, TERMINATING: PROGRESSING}
"""What corresponds in Argo CD. Only a sleeping instance differs: kstatus has no word for it."""


@dataclass(frozen=True)
class Phase:
    kind: str
    name: str
    status: Object | None
    kstatus: str
    argo: str = ""

    def build(self, **meta: Any) -> Object:
        obj = new_object(self.kind)
        return {**obj, "metadata": {**obj["metadata"], **meta}, "status": self.status}


def new_object(kind: str, **spec: Any) -> Object:
    meta = {"name": "one", "namespace": "service-p-demo", "generation": 3, "creationTimestamp": NOW}
    return {"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": meta, "spec": spec}


def cluster_phases() -> Iterator[Phase]:
    def probe(name: str, result: clusters.ProbeResult, expected: str, duplicate: str = "") -> Phase:
        cluster = new_object("Cluster")
        return Phase("Cluster", name, clusters.next_status(cluster, result, duplicate, None, NOW), expected)

    def failure(*, is_permanent: bool) -> clusters.ProbeResult:
        return clusters.ProbeResult((), clusters.ProbeFailure("Unreachable", "no response", is_permanent))

    yield probe("ready", clusters.ProbeResult(()), CURRENT)
    yield probe("offline", failure(is_permanent=False), IN_PROGRESS)
    yield probe("failed", failure(is_permanent=True), FAILED)
    yield probe("not ready", clusters.ProbeResult((), not_ready="etcd is down"), IN_PROGRESS)
    yield probe("connected twice", clusters.ProbeResult(()), FAILED, "other")
    details = clusters.ClusterDetails(missing_rights="impersonate")
    yield probe("without permissions", clusters.ProbeResult((), details=details), FAILED)
    yield Phase("Cluster", "disconnected", clusters.disconnected_status(new_object("Cluster"), NOW), IN_PROGRESS)


def runner_phases() -> Iterator[Phase]:
    def report(name: str, phase: str, expected: str, *, silence: str = "", cluster_missing: bool = False) -> Phase:
        runner = {**new_object("Runner"), "status": {"phase": phase}}
        return Phase("Runner", name, runners.next_status(runner, cluster_missing, silence, NOW), expected)

    yield report("not started", "", IN_PROGRESS)
    yield report("ready", "Initialized", CURRENT)
    yield report("failed", "Failed", FAILED)
    yield report("silent", "Initialized", IN_PROGRESS, silence="since noon")
    yield report("without its cluster", "", FAILED, cluster_missing=True)


def workspace_phases() -> Iterator[Phase]:
    kind, scheduled = "DevPodWorkspaceInstance", condition("Scheduled", TRUE, "Scheduled")
    placed, silent = scheduling.Placement(scheduled, "r"), scheduling.Placement(scheduled, "r", silence="since noon")
    nowhere = scheduling.Placement(condition("Scheduled", FALSE, "NoRunner", "there is no runner", "Error"))

    def report(name: str, status: Object, placement: scheduling.Placement, expected: str, argo: str = "") -> Phase:
        workspace = {**new_object(kind), "status": status}
        return Phase(kind, name, scheduling.next_status(workspace, placement, NOW), expected, argo)

    yield report("waiting for its runner", {}, placed, IN_PROGRESS)
    yield report("running", {"phase": "Ready", "lastWorkspaceStatus": "Running"}, placed, CURRENT)
    yield report("starting", {"phase": "Ready", "lastWorkspaceStatus": "Busy"}, placed, IN_PROGRESS)
    yield report("stopped", {"phase": "Ready", "lastWorkspaceStatus": "Stopped"}, placed, IN_PROGRESS, SUSPENDED)
    yield report("not started", {"phase": "Ready", "lastWorkspaceStatus": "NotFound"}, placed, IN_PROGRESS, SUSPENDED)
    recovery = {"phase": "Ready", "lastWorkspaceStatus": "Running", "reason": "Recovery"}
    yield report("recovering", recovery, placed, IN_PROGRESS, DEGRADED)
    yield report("sleeping", {"phase": "Sleeping"}, placed, IN_PROGRESS, SUSPENDED)
    yield report("failed", {"phase": "Failed", "reason": "BuildFailed"}, placed, FAILED)
    yield report("without a runner", {}, nowhere, FAILED)
    yield report("on a silent runner", {"phase": "Ready"}, silent, IN_PROGRESS)
    unresolved = with_condition({}, condition("TemplateResolved", FALSE, "TemplateNotFound", "", "Error"), NOW)
    yield report("without its template", unresolved, placed, FAILED)


def remote_instance_phases() -> Iterator[Phase]:
    for view, required in (
        (SpaceInstance, instances.SPACE_CONDITIONS),
        (VirtualClusterInstance, instances.VC_CONDITIONS),
    ):
        kind = view.__name__
        instance = view(new_object(kind, clusterRef={"cluster": "berlin"}))
        usable: Object = {}
        for type in ("TemplateResolved", *required):
            usable = with_condition(usable, condition(type, TRUE, "Synced"), NOW, 3)

        def derive(name: str, status: Object, expected: str, argo: str = "", of: RemoteInstance = instance) -> Phase:
            blocker = InstanceError("ClusterOffline", "no response", WARNING) if "offline" in name else None
            return Phase(of.raw["kind"], name, instances.derive_status(of, status, blocker, NOW), expected, argo)

        yield Phase(kind, "created", initial_status(instance.meta), IN_PROGRESS)
        yield derive("in progress", {}, IN_PROGRESS)
        yield derive("ready", usable, CURRENT)
        yield derive("sleeping", {**usable, "phase": "Sleeping"}, IN_PROGRESS, SUSPENDED)
        notes = {"sleepmode.service.sh/sleep-type": "forcedSleep", "sleepmode.service.sh/sleeping-since": "1789000000"}
        forced = view({**instance.raw, "metadata": {**instance.meta, "annotations": notes}})
        asleep = {**usable, "sleep": {"stage": "Asleep"}}
        yield derive("put to sleep", asleep, IN_PROGRESS, SUSPENDED, forced)
        yield derive("asleep in an offline cluster", asleep, IN_PROGRESS, SUSPENDED, forced)
        yield derive("falling asleep", {**usable, "sleep": {"stage": "FallingAsleep"}}, IN_PROGRESS, "", forced)
        yield derive("waking up", {**usable, "sleep": {"stage": "WakingUp"}}, IN_PROGRESS)
        yield derive("in an offline cluster", usable, IN_PROGRESS)
        refused = condition("SpaceSynced", FALSE, "Forbidden", "not allowed", ERROR)
        yield derive("refused", with_condition(usable, refused, NOW, 3), FAILED)
        outdated = {**usable, "conditions": [{**each, "observedGeneration": 2} for each in usable["conditions"]]}
        yield derive("changed", outdated, IN_PROGRESS)


def app_phases() -> Iterator[Phase]:
    def derive(name: str, failing: Object | None, expected: str, *, is_complete: bool = True) -> Phase:
        types = (apps.APP_RESOLVED, apps.TARGET_READY, apps.DEPLOYED, apps.SYNCED) if is_complete else ()
        conditions = [condition(type, TRUE, "Done") for type in types]
        conditions += [failing] if failing else []
        status = with_conditions({}, conditions, NOW)
        instance = AppInstance(new_object("AppInstance"))
        return Phase("AppInstance", name, apps.derive_status(instance, status, NOW), expected)

    yield derive("in progress", None, IN_PROGRESS, is_complete=False)
    yield derive("deployed", None, CURRENT)
    yield derive("changed by others", condition("Synced", FALSE, "ReleaseChanged", "", "Warning"), IN_PROGRESS)
    yield derive("failed", condition("Deployed", FALSE, "HelmFailed", "no such image", ERROR), FAILED)


PHASES = [*cluster_phases(), *runner_phases(), *workspace_phases(), *remote_instance_phases(), *app_phases()]
REPORTED_BY_AGENTS = {"ProjectSecret", "SharedSecret"}
"""Their conditions are for agents that copy them. The server sets none, so they are ready as soon as they exist."""
KINDS_WITH_READINESS = sorted({*(each.kind for each in PHASES), "Project"})


def argo_health(obj: Object) -> tuple[str, str]:
    """Runs the script as Argo CD does: with `obj` as a global variable, and few libraries."""
    lua = LuaRuntime(unpack_returned_tuples=True, register_eval=False)
    lua.execute("io, os, require, dofile, loadfile, debug, string, math = nil")
    lua.globals().obj = lua.table_from(obj, recursive=True)
    returned = lua.execute(HEALTH.read_text())
    return returned.status, returned.message


def expect(obj: Object, expected: str, argo: str = "") -> None:
    assert (kstatus(obj), argo_health(obj)[0]) == (expected, argo or USUAL[expected])


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: f"{phase.kind} {phase.name}")
def test_tools_see_each_phase_as_the_controller_means_it(phase: Phase) -> None:
    expect(phase.build(), phase.kstatus, phase.argo)
    if phase.kstatus == FAILED:
        assert argo_health(phase.build())[1]


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: f"{phase.kind} {phase.name}")
def test_a_change_and_a_deletion_count_at_once(phase: Phase) -> None:
    expect(phase.build(deletionTimestamp=NOW), TERMINATING)
    if phase.name != "created":
        expect(phase.build(generation=4), IN_PROGRESS)


@pytest.mark.parametrize("kind", ["SpaceInstance", "VirtualClusterInstance", "AppInstance"])
async def test_the_first_revision_of_an_instance_is_in_progress(api: RegistryFixture, kind: str) -> None:
    """Otherwise a tool that looks before the controller does takes the object for ready."""
    spec = {"appRef": {"name": "nginx"}, "target": {"spaceInstance": {"name": "dev"}}} if kind == "AppInstance" else {}
    expect(await api.create(kind, "one", spec=spec), IN_PROGRESS)


async def test_a_project_is_ready_when_its_namespace_exists(api: RegistryFixture) -> None:
    await api.create("Project", "one")
    controller = ProjectController(api.registry, api.resource("Project").kind.group, NAMESPACE_PREFIX)
    await controller.reconcile(api.resource("Project").kind.key("", "one"))
    ready = api.get("Project", "one")
    assert ready is not None
    expect(ready, CURRENT)
    expect({**ready, "metadata": {**ready["metadata"], "generation": 9}}, IN_PROGRESS)


def test_argo_cd_gets_the_script_for_each_kind_with_a_ready_condition() -> None:
    data = yaml.safe_load((ROOT / "deploy" / "argocd" / "argocd-cm.yaml").read_text())["data"]
    prefix = "resource.customizations.health.management.service.sh_"
    assert data == {prefix + kind: HEALTH.read_text() for kind in KINDS_WITH_READINESS}


def test_no_kind_with_an_observed_generation_is_left_out() -> None:
    with_generation = {
        kind.name
        for kind in KINDS
        if kind.persisted and "observedGeneration" in (kind.fields.get("status") or {}).get("properties", {})
    }
    assert with_generation - REPORTED_BY_AGENTS == set(KINDS_WITH_READINESS)
