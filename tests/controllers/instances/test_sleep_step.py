"""Tests of spaces and virtual clusters that fall asleep and wake up in a cluster, from annotation to pods."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from fairlead.admission.quotas import enforce_quotas
from fairlead.controllers.instances.sleep import DELETION_GRACE_SECONDS, InstanceSleepController
from fairlead.controllers.instances.sleep_step import ASLEEP_RESYNC_SECONDS
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.domain.sleep_mode import build_wake_request, change_annotations
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.errors import Unreachable
from tests.controllers.instances.helm_fixture import RELEASE, VC, FakeHelm, helm
from tests.fake_cluster.kube import FakeKube
from tests.fake_cluster.workloads import add_cron_job, add_job, add_pod, add_workload, pods_in, run_workloads
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_space_controller, build_virtual_cluster_controller
from tests.harness.registry import RegistryFixture
from tests.harness.remote import (
    INSTANCE_CONFIG,
    TRUSTED,
    FakeAccess,
    condition_message,
    condition_status,
    create_cluster,
    set_online,
)

__all__ = ["helm"]

SPACE = "SpaceInstance"
PREFIX = "sleepmode.service.sh/"
NAMESPACE = "demo-one"
WEB = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/web"
QUOTA = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas/service.sh-sleep"
HOUR = 3600


@pytest.fixture
async def server(api: RegistryFixture, access: FakeAccess, helm: FakeHelm) -> AsyncIterator[RegistryFixture]:
    access.kube.after_write = run_workloads
    controllers = (
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        build_space_controller(api, access),
        build_virtual_cluster_controller(api, access, helm),
        InstanceSleepController(api.registry, MANAGEMENT_GROUP),
    )
    async with running_controllers(api, *controllers):
        yield api


@pytest.fixture
async def limited(api: RegistryFixture, access: FakeAccess, helm: FakeHelm) -> AsyncIterator[RegistryFixture]:
    """A server with quotas."""
    access.kube.after_write = run_workloads
    found = api.with_rules(enforce_quotas(MANAGEMENT_GROUP, ""))
    controllers = (
        InstanceTemplateController(found.registry, INSTANCE_CONFIG),
        build_space_controller(found, access),
        InstanceSleepController(found.registry, MANAGEMENT_GROUP),
    )
    async with running_controllers(found, *controllers):
        yield found


async def create_space(api: RegistryFixture, **annotations: str) -> None:
    """A space with a Deployment and a CronJob, that is Ready."""
    await create_cluster(api, quotas={"project": {"spaceinstances.active": "1"}})
    noted = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in annotations.items()}
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}}
    await api.create(SPACE, "one", metadata={"annotations": noted}, spec=spec)
    await eventually(lambda: phase_of(api, SPACE) == "Ready")


def add_contents(kube: FakeKube) -> None:
    add_workload(kube, NAMESPACE, "deployments", "web", 3)
    add_cron_job(kube, NAMESPACE, "nightly")


def phase_of(api: RegistryFixture, kind: str) -> str:
    return str(get_path(api.get(kind, "one"), "status.phase"))


def annotation(api: RegistryFixture, kind: str, name: str) -> str:
    return str((get_path(api.get(kind, "one"), "metadata.annotations") or {}).get(f"{PREFIX}{name}") or "")


async def annotate(api: RegistryFixture, kind: str, **values: str | None) -> None:
    changes = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in values.items()}

    def edit(obj: Object) -> None:
        obj["metadata"] = change_annotations(obj, changes)["metadata"]

    await api.patch(kind, "one", edit)


async def request_wake(api: RegistryFixture, kind: str) -> None:
    """What the gateway writes for a request."""
    now = int(api.clock.now().timestamp())
    info = '{"reason": "Request", "message": "woken up by ada", "user": "ada"}'

    def edit(obj: Object) -> None:
        obj["metadata"] = change_annotations(obj, build_wake_request(obj, now, info))["metadata"]

    await api.patch(kind, "one", edit)


def events(api: RegistryFixture) -> list[str]:
    found = sorted((decode(each) for each in api.view.entries("", "events")), key=lambda each: each["firstTimestamp"])
    return [str(each["reason"]) for each in found]


async def test_a_space_that_is_not_used_sleeps_and_a_request_wakes_it(server: RegistryFixture, kube: FakeKube) -> None:
    await create_space(server, sleep_after=str(HOUR))
    add_contents(kube)
    assert len(pods_in(kube, NAMESPACE)) == 3
    await asyncio.sleep(HOUR - 60)
    assert len(pods_in(kube, NAMESPACE)) == 3
    await eventually(lambda: phase_of(server, SPACE) == "Sleeping")
    assert pods_in(kube, NAMESPACE) == []
    assert QUOTA in kube.objects
    assert condition_status(server, SPACE, "Ready") == ("False", "Sleeping")
    assert "a request wakes it" in condition_message(server, SPACE, "Ready")
    assert condition_status(server, SPACE, "Asleep") == ("True", "Asleep")
    assert condition_status(server, SPACE, "Reconciling") == (None, None)
    await request_wake(server, SPACE)
    await eventually(lambda: phase_of(server, SPACE) == "Ready")
    assert len(pods_in(kube, NAMESPACE)) == 3
    assert QUOTA not in kube.objects
    assert condition_status(server, SPACE, "Asleep") == (None, None)
    assert get_path(server.get(SPACE, "one"), "status.sleep") is None
    found = [each for each in events(server) if each in ("SleepScheduled", "FellAsleep", "WokenUp")]
    assert sorted(found) == ["FellAsleep", "SleepScheduled", "WokenUp"]


async def test_a_person_puts_a_space_to_sleep_and_only_a_person_wakes_it(
    server: RegistryFixture, kube: FakeKube
) -> None:
    await create_space(server)
    add_contents(kube)
    await annotate(server, SPACE, force="true")
    await eventually(lambda: phase_of(server, SPACE) == "Sleeping")
    assert "only `fairlead space wake` wakes it" in condition_message(server, SPACE, "Ready")
    await asyncio.sleep(3 * HOUR)
    assert (phase_of(server, SPACE), pods_in(kube, NAMESPACE)) == ("Sleeping", [])
    await request_wake(server, SPACE)  # also removes the request to sleep
    await eventually(lambda: phase_of(server, SPACE) == "Ready")
    assert len(pods_in(kube, NAMESPACE)) == 3


async def test_nothing_is_repaired_while_it_sleeps(server: RegistryFixture, kube: FakeKube) -> None:
    template = {"objects": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2}\n"}
    await create_cluster(server)
    await server.create("SpaceTemplate", "t", metadata=TRUSTED, spec={"template": template})
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "templateRef": {"name": "t"}}
    await server.create(SPACE, "one", spec=spec)
    await eventually(lambda: phase_of(server, SPACE) == "Ready")
    assert len(pods_in(kube, NAMESPACE)) == 2
    await annotate(server, SPACE, force="true")
    await eventually(lambda: phase_of(server, SPACE) == "Sleeping")
    await asyncio.sleep(HOUR)
    assert pods_in(kube, NAMESPACE) == []
    await annotate(server, SPACE, force=None)
    await eventually(lambda: phase_of(server, SPACE) == "Ready")
    assert len(pods_in(kube, NAMESPACE)) == 2


async def test_pods_that_do_not_end_are_reported(server: RegistryFixture, kube: FakeKube) -> None:
    await create_space(server)
    add_contents(kube)
    kube.after_write = None
    await annotate(server, SPACE, force="true")
    await eventually(lambda: condition_status(server, SPACE, "Asleep") == ("False", "SleepIncomplete"))
    assert "pod web-0-0" in condition_message(server, SPACE, "Asleep")
    assert condition_status(server, SPACE, "Ready") == ("False", "FallingAsleep")
    assert phase_of(server, SPACE) == "Pending"
    run_workloads(kube)
    await eventually(lambda: phase_of(server, SPACE) == "Sleeping")


async def test_bare_pods_are_named_in_the_condition(server: RegistryFixture, kube: FakeKube) -> None:
    await create_space(server)
    add_pod(kube, NAMESPACE, "shell")
    await annotate(server, SPACE, force="true")
    await eventually(lambda: phase_of(server, SPACE) == "Sleeping")
    assert "pod shell" in condition_message(server, SPACE, "Asleep")


async def test_a_running_job_postpones_idle_sleep_only(server: RegistryFixture, kube: FakeKube) -> None:
    await create_space(server, sleep_after=str(HOUR))
    path = add_job(kube, NAMESPACE, "import")
    await asyncio.sleep(HOUR + 60)
    assert (phase_of(server, SPACE), pods_in(kube, NAMESPACE)) == ("Ready", ["import-0"])
    assert "SleepCancelled" in events(server)
    await annotate(server, SPACE, force="true")
    await eventually(lambda: phase_of(server, SPACE) == "Sleeping")
    assert get_path(kube.objects[path], "spec.suspend") is True


async def test_what_others_start_is_not_put_down_again(server: RegistryFixture, kube: FakeKube) -> None:
    await create_space(server)
    add_contents(kube)
    await annotate(server, SPACE, force="true")
    await eventually(lambda: phase_of(server, SPACE) == "Sleeping")
    kube.edit_object(WEB, lambda obj: obj["spec"].update(replicas=1))
    await asyncio.sleep(2 * ASLEEP_RESYNC_SECONDS)
    assert phase_of(server, SPACE) == "Ready"
    assert "ResumedOutside" in events(server)
    assert (annotation(server, SPACE, "force"), get_path(kube.objects[WEB], "spec.replicas")) == ("", 1)


async def test_a_quota_stops_again_what_others_start(limited: RegistryFixture, kube: FakeKube) -> None:
    await create_space(limited)
    add_contents(kube)
    await annotate(limited, SPACE, force="true")
    await eventually(lambda: phase_of(limited, SPACE) == "Sleeping")
    await limited.create(SPACE, "two", spec={"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}})
    kube.remove_object(QUOTA)
    kube.edit_object(WEB, lambda obj: obj["spec"].update(replicas=1))
    run_workloads(kube)
    assert len(pods_in(kube, NAMESPACE)) == 1
    await asyncio.sleep(2 * ASLEEP_RESYNC_SECONDS)
    assert (phase_of(limited, SPACE), pods_in(kube, NAMESPACE)) == ("Sleeping", [])
    assert annotation(limited, SPACE, "force") == "true"
    assert condition_status(limited, SPACE, "Asleep") == ("True", "Asleep")
    assert events(limited).count("StoppingAgain") == 1


async def test_pods_that_do_not_end_are_waited_for_when_it_is_stopped_again(
    limited: RegistryFixture, kube: FakeKube
) -> None:
    await create_space(limited)
    add_contents(kube)
    await annotate(limited, SPACE, force="true")
    await eventually(lambda: phase_of(limited, SPACE) == "Sleeping")
    await limited.create(SPACE, "two", spec={"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}})
    kube.remove_object(QUOTA)
    kube.edit_object(WEB, lambda obj: obj["spec"].update(replicas=1))
    run_workloads(kube)
    assert len(pods_in(kube, NAMESPACE)) == 1
    kube.after_write = None
    await asyncio.sleep(2 * ASLEEP_RESYNC_SECONDS)
    assert condition_status(limited, SPACE, "Asleep") == ("True", "StoppingAgain")
    assert "exceeded quota" in condition_message(limited, SPACE, "Asleep")
    assert phase_of(limited, SPACE) == "Sleeping"
    run_workloads(kube)
    await eventually(lambda: condition_status(limited, SPACE, "Asleep") == ("True", "Asleep"))


async def test_a_wake_up_that_a_quota_refuses_is_reported_and_retried(limited: RegistryFixture, kube: FakeKube) -> None:
    await create_space(limited)
    add_contents(kube)
    await annotate(limited, SPACE, force="true", force_duration=str(HOUR))
    await eventually(lambda: phase_of(limited, SPACE) == "Sleeping")
    await limited.create(SPACE, "two", spec={"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}})
    await asyncio.sleep(HOUR + 300)
    assert (phase_of(limited, SPACE), pods_in(kube, NAMESPACE)) == ("Sleeping", [])
    assert condition_status(limited, SPACE, "Asleep") == ("True", "QuotaExceeded")
    assert "spaceinstances.active=1" in condition_message(limited, SPACE, "Asleep")
    assert events(limited).count("QuotaExceeded") == 1
    await limited.delete(SPACE, "two")
    await eventually(lambda: phase_of(limited, SPACE) == "Ready")
    assert len(pods_in(kube, NAMESPACE)) == 3


async def test_a_refused_wake_up_that_is_no_longer_due_is_not_reported(
    limited: RegistryFixture, kube: FakeKube
) -> None:
    await create_space(limited)
    await annotate(limited, SPACE, force="true", force_duration=str(HOUR))
    await eventually(lambda: phase_of(limited, SPACE) == "Sleeping")
    await limited.create(SPACE, "two", spec={"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}})
    await eventually(lambda: condition_status(limited, SPACE, "Asleep") == ("True", "QuotaExceeded"), 2 * HOUR)
    await annotate(limited, SPACE, force_duration=None)
    await eventually(lambda: condition_status(limited, SPACE, "Asleep") == ("True", "Asleep"))


async def test_a_credential_that_may_not_do_it_leaves_the_space_awake(server: RegistryFixture, kube: FakeKube) -> None:
    await create_space(server, sleep_after=str(HOUR))
    add_contents(kube)
    kube.failing_paths["/cronjobs/"] = 403
    await asyncio.sleep(HOUR + 60)
    assert condition_status(server, SPACE, "Asleep") == ("False", "SleepForbidden")
    assert "fairlead cluster role" in condition_message(server, SPACE, "Asleep")
    assert (phase_of(server, SPACE), len(pods_in(kube, NAMESPACE))) == ("Ready", 3)
    assert QUOTA not in kube.objects
    kube.failing_paths.clear()
    await asyncio.sleep(HOUR + 60)
    assert phase_of(server, SPACE) == "Sleeping"


@pytest.mark.parametrize("missing", ["/resourcequotas/", "/cronjobs", "/pods"])
@pytest.mark.parametrize("annotations", [{"force": "true"}, {"sleep_after": "1"}], ids=["forced", "idle"])
async def test_a_credential_without_the_role_changes_nothing(
    server: RegistryFixture, kube: FakeKube, missing: str, annotations: dict[str, str]
) -> None:
    """Neither quotas nor lists: that of `fairlead cluster role spaces`."""
    await create_space(server)
    add_contents(kube)
    kube.failing_paths[missing] = 403
    kube.request_log.clear()
    await annotate(server, SPACE, **annotations)
    await eventually(lambda: condition_status(server, SPACE, "Asleep") == ("False", "SleepForbidden"))
    await eventually(lambda: phase_of(server, SPACE) == "Ready")
    assert (annotation(server, SPACE, "force"), annotation(server, SPACE, "sleep-type")) == ("", "")
    assert get_path(server.get(SPACE, "one"), "status.sleep.stage") is None
    assert len(pods_in(kube, NAMESPACE)) == 3
    assert "SleepForbidden" in events(server)
    await asyncio.sleep(60)
    assert phase_of(server, SPACE) == "Ready"


async def test_a_check_of_permissions_deletes_nothing(server: RegistryFixture, kube: FakeKube) -> None:
    """Whoever has created the quota before."""
    await create_space(server)
    kube.add_object(QUOTA, spec={"hard": {"pods": "0"}})
    kube.failing_paths["/cronjobs"] = 403
    await annotate(server, SPACE, force="true")
    await eventually(lambda: condition_status(server, SPACE, "Asleep") == ("False", "SleepForbidden"))
    assert QUOTA in kube.objects


async def test_a_sleep_that_is_withdrawn_halfway_is_undone(server: RegistryFixture, kube: FakeKube) -> None:
    await create_space(server)
    add_contents(kube)
    kube.failing_paths["/cronjobs/"] = 500
    await annotate(server, SPACE, force="true")
    await eventually(lambda: condition_status(server, SPACE, "Asleep") == ("False", "ClusterFailing"))
    assert pods_in(kube, NAMESPACE) == []
    await annotate(server, SPACE, force=None)
    kube.failing_paths.clear()
    await eventually(lambda: phase_of(server, SPACE) == "Ready")
    assert (len(pods_in(kube, NAMESPACE)), QUOTA in kube.objects) == (3, False)


async def test_a_wake_up_that_fails_is_reported_and_repeated(server: RegistryFixture, kube: FakeKube) -> None:
    await create_space(server)
    add_contents(kube)
    await annotate(server, SPACE, force="true")
    await eventually(lambda: phase_of(server, SPACE) == "Sleeping")
    kube.failing_paths["/deployments/"] = 500
    await request_wake(server, SPACE)
    await eventually(lambda: condition_status(server, SPACE, "Asleep") == ("True", "WakeFailed"))
    assert condition_status(server, SPACE, "Ready") == ("Unknown", "WakeFailed")
    kube.failing_paths.clear()
    await eventually(lambda: phase_of(server, SPACE) == "Ready")
    assert len(pods_in(kube, NAMESPACE)) == 3


async def test_a_sleeping_space_stays_asleep_while_its_cluster_is_offline(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await create_space(server)
    await annotate(server, SPACE, force="true")
    await eventually(lambda: phase_of(server, SPACE) == "Sleeping")
    access.down = Unreachable("no response")
    await set_online(server, False)
    await asyncio.sleep(HOUR)
    assert phase_of(server, SPACE) == "Sleeping"
    access.down = None
    await set_online(server, True)
    await request_wake(server, SPACE)
    await eventually(lambda: phase_of(server, SPACE) == "Ready")


async def test_a_sleeping_space_can_be_deleted(server: RegistryFixture, kube: FakeKube) -> None:
    await create_space(server)
    await annotate(server, SPACE, force="true")
    await eventually(lambda: phase_of(server, SPACE) == "Sleeping")
    await server.delete(SPACE, "one")
    await eventually(lambda: server.get(SPACE, "one") is None)
    assert f"/api/v1/namespaces/{NAMESPACE}" not in kube.objects


async def test_a_space_that_is_not_used_for_long_is_deleted_after_a_warning(
    server: RegistryFixture, kube: FakeKube
) -> None:
    await create_space(server, sleep_after=str(HOUR), delete_after=str(5 * HOUR))
    await asyncio.sleep(5 * HOUR + DELETION_GRACE_SECONDS - 120)
    assert (phase_of(server, SPACE), "DeletionScheduled" in events(server)) == ("Sleeping", True)
    await asyncio.sleep(600)
    assert server.get(SPACE, "one") is None
    assert f"/api/v1/namespaces/{NAMESPACE}" not in kube.objects


async def test_a_schedule_in_the_template_puts_it_to_sleep_and_wakes_it(
    server: RegistryFixture, kube: FakeKube
) -> None:
    moment = server.clock.now() + timedelta(hours=2)
    notes = {
        f"{PREFIX}sleep-schedule": f"0 {moment.hour} * * *",
        f"{PREFIX}wakeup-schedule": f"0 {(moment + timedelta(hours=3)).hour} * * *",
    }
    template = {"instanceTemplate": {"metadata": {"annotations": notes}}}
    await create_cluster(server)
    await server.create("SpaceTemplate", "t", metadata=TRUSTED, spec={"template": template})
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "templateRef": {"name": "t"}}
    await server.create(SPACE, "one", spec=spec)
    await eventually(lambda: phase_of(server, SPACE) == "Ready")
    add_contents(kube)
    await asyncio.sleep(3 * HOUR)
    assert (phase_of(server, SPACE), pods_in(kube, NAMESPACE)) == ("Sleeping", [])
    assert annotation(server, SPACE, "sleep-type") == "scheduledSleep"
    kube.remove_object(QUOTA)
    kube.edit_object(WEB, lambda obj: obj["spec"].update(replicas=3))
    run_workloads(kube)
    assert len(pods_in(kube, NAMESPACE)) == 3
    await asyncio.sleep(2 * ASLEEP_RESYNC_SECONDS)  # who starts it outside does not end the schedule of the template
    assert (phase_of(server, SPACE), pods_in(kube, NAMESPACE)) == ("Sleeping", [])
    await asyncio.sleep(3 * HOUR - 2 * ASLEEP_RESYNC_SECONDS)
    assert (phase_of(server, SPACE), len(pods_in(kube, NAMESPACE))) == ("Ready", 3)


def add_control_plane(kube: FakeKube, *, has_claim: bool = True) -> None:
    release = {"meta.helm.sh/release-name": "one"}
    path = add_workload(kube, "demo-v-one", "statefulsets", "one", 1, annotations=release)
    if has_claim:
        kube.objects[path]["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]


async def create_virtual_cluster(api: RegistryFixture, access: FakeAccess) -> None:
    access.virtual_down = None
    await create_cluster(api)
    await api.create("VirtualClusterTemplate", "t", metadata=TRUSTED, spec={"template": RELEASE})
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "templateRef": {"name": "t"}}
    await api.create(VC, "one", spec=spec)
    await eventually(lambda: phase_of(api, VC) == "Ready")


async def test_a_virtual_cluster_sleeps_and_is_awake_when_it_answers(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_virtual_cluster(server, access)
    add_control_plane(access.kube)
    await annotate(server, VC, force="true")
    await eventually(lambda: phase_of(server, VC) == "Sleeping")
    assert pods_in(access.kube, "demo-v-one") == []
    assert condition_status(server, VC, "VirtualClusterOnline") == ("Unknown", "Sleeping")
    probes = access.version_requests
    deployed = len(helm.installed)
    await asyncio.sleep(2 * HOUR)
    assert (access.version_requests, len(helm.installed)) == (probes, deployed)
    access.virtual_down = Unreachable("connection refused")
    await request_wake(server, VC)
    await eventually(lambda: pods_in(access.kube, "demo-v-one") == ["one-0"])
    await asyncio.sleep(5)
    assert condition_status(server, VC, "Ready") == ("Unknown", "WakingUp")
    assert "woken up by ada" in condition_message(server, VC, "Ready")
    access.virtual_down = None
    began = asyncio.get_running_loop().time()
    await eventually(lambda: phase_of(server, VC) == "Ready")
    assert asyncio.get_running_loop().time() - began < 3
    assert len(helm.installed) == deployed


LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def add_lease(access: FakeAccess, name: str, renewed: str) -> None:
    spec = {"holderIdentity": "one-0_x", "leaseDurationSeconds": 15, "renewTime": renewed}
    access.virtual.add_object(f"{LEASES}/{name}", spec=spec)


def lease_holder(access: FakeAccess, name: str) -> str:
    holder: str = access.virtual.objects[f"{LEASES}/{name}"]["spec"]["holderIdentity"]
    return holder


async def test_controllers_in_a_woken_virtual_cluster_need_not_wait_for_leases_of_those_that_were_stopped(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create_virtual_cluster(server, access)
    add_control_plane(access.kube)
    add_lease(access, "kube-controller-manager", "2000-01-01T00:00:00.000000Z")
    add_lease(access, "new-holder", "2999-01-01T00:00:00.000000Z")
    await annotate(server, VC, force="true")
    await eventually(lambda: phase_of(server, VC) == "Sleeping")
    await request_wake(server, VC)
    await eventually(lambda: phase_of(server, VC) == "Ready")
    assert (lease_holder(access, "kube-controller-manager"), lease_holder(access, "new-holder")) == ("", "one-0_x")


async def test_a_virtual_cluster_that_does_not_let_its_leases_be_read_wakes_up(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create_virtual_cluster(server, access)
    add_control_plane(access.kube)
    access.virtual.failing_paths["/leases"] = 403
    await annotate(server, VC, force="true")
    await eventually(lambda: phase_of(server, VC) == "Sleeping")
    await request_wake(server, VC)
    await eventually(lambda: phase_of(server, VC) == "Ready")


async def test_a_virtual_cluster_with_its_data_on_emptydir_is_not_put_to_sleep(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create_virtual_cluster(server, access)
    add_control_plane(access.kube, has_claim=False)
    await annotate(server, VC, force="true")
    await eventually(lambda: condition_status(server, VC, "Asleep") == ("False", "SleepRefused"))
    assert "emptyDir" in condition_message(server, VC, "Asleep")
    await eventually(lambda: annotation(server, VC, "force") == "")
    assert (phase_of(server, VC), pods_in(access.kube, "demo-v-one")) == ("Ready", ["one-0"])
    assert "SleepRefused" in events(server)


async def test_a_sleep_that_begins_before_it_answers_can_be_undone(server: RegistryFixture, access: FakeAccess) -> None:
    await create_virtual_cluster(server, access)
    add_control_plane(access.kube)
    await annotate(server, VC, force="true")
    await eventually(lambda: phase_of(server, VC) == "Sleeping")
    access.virtual_down = Unreachable("connection refused")
    await request_wake(server, VC)
    await eventually(lambda: get_path(server.get(VC, "one"), "status.sleep.stage") == "Starting")
    access.kube.failing_paths["/statefulsets/"] = 500
    await annotate(server, VC, force="true")
    await eventually(lambda: condition_status(server, VC, "Asleep") == ("False", "ClusterFailing"))
    quota = QUOTA.replace(NAMESPACE, "demo-v-one")
    assert quota in access.kube.objects
    access.kube.failing_paths.clear()
    await annotate(server, VC, force=None)
    access.virtual_down = None
    await eventually(lambda: phase_of(server, VC) == "Ready")
    assert (quota in access.kube.objects, pods_in(access.kube, "demo-v-one")) == (False, ["one-0"])


async def test_deletions_that_are_due_are_forgotten_with_the_instance(server: RegistryFixture) -> None:
    controller = InstanceSleepController(server.registry, MANAGEMENT_GROUP)
    key = (MANAGEMENT_GROUP, "spaceinstances", "demo", "gone")
    controller._deletions[key] = ("uid", 0.0)
    controller._refusals[key] = "exceeded quota"
    await controller.reconcile(key)
    assert (controller._deletions, controller._refusals) == ({}, {})
