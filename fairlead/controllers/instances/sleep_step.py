"""The step of spaces and virtual clusters that puts what they have in a cluster to sleep, and wakes it.

It comes before all other steps of a reconcile, and ends it while the instance is asleep: no template is applied, no
chart is deployed, no drift is repaired and nothing is probed then. `sleep.py` has decided what is to be done, and
`sleeping_workloads.py` does it. `status.sleep.stage` is written before the first change that belongs to it.
"""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from fairlead.controllers.instances.instance_reconciler import ReconcileAttempt
from fairlead.controllers.instances.namespace_contents import NamespaceContents
from fairlead.controllers.instances.remote_errors import FORBIDDEN, INFO, WARNING, InstanceError, translate_errors
from fairlead.controllers.instances.sleeping_workloads import SleepingNamespace, SleepProgress
from fairlead.controllers.instances.status import VC_ONLINE, VC_READY
from fairlead.core.backoff import add_jitter
from fairlead.core.errors import QUOTA, Forbidden
from fairlead.core.objects import Object
from fairlead.domain.instance_sleep import SLEEP_SCHEDULE, read_instance_policy
from fairlead.domain.sleep_decisions import SLEEP_CANCELLED
from fairlead.domain.sleep_mode import (
    FORCE,
    FORCE_DURATION,
    INACTIVITY_SLEEP,
    LAST_ACTIVITY,
    LAST_ACTIVITY_INFO,
    SCHEDULED_TYPE,
    Changes,
    build_wake,
    build_withdrawal,
    change_annotations,
    encode_info,
    template_annotations,
)
from fairlead.domain.typed_objects import (
    ASLEEP,
    ASLEEP_STAGE,
    FALLING_ASLEEP,
    SLEEP_REFUSED,
    STARTING,
    WAKE_FAILED,
    WAKING_UP,
    RemoteInstance,
    VirtualClusterInstance,
)
from fairlead.registry.conditions import FALSE, TRUE, UNKNOWN, condition, find_condition, record_event
from fairlead.registry.write_options import server_write_options

POLL_SECONDS = 1.0
"""Requeue delay while pods end."""
ASLEEP_RESYNC_SECONDS = 300.0
"""How often an instance that sleeps is checked for workloads that others have started."""
SLEEP_FORBIDDEN, SLEEP_INCOMPLETE = "SleepForbidden", "SleepIncomplete"
RESUMED_OUTSIDE, STOPPING_AGAIN = "ResumedOutside", "StoppingAgain"
MAX_LISTED = 5

R = TypeVar("R", bound=RemoteInstance)


class SleepStep(Generic[R]):
    """For the instances of one controller."""

    def __init__(self, contents: NamespaceContents[R]) -> None:
        self._contents = contents
        self._reconciler = contents.reconciler
        self._registry = contents.reconciler.registry

    async def run(self, run: ReconcileAttempt[R]) -> float | None:
        """Returns the requeue delay if the instance sleeps, or falls asleep; None if the other steps are to be done.
        Raises InstanceError, NotFound and ChangedMeanwhile."""
        instance = run.instance
        if not instance.can_sleep or not (instance.sleep_type or instance.sleep_stage):
            return None
        run.stage = ASLEEP
        if instance.sleep_type:
            with translate_errors(instance.cluster, "put it to sleep"):
                return await self._put_to_sleep(instance)
        if instance.sleep_stage == STARTING:
            return None
        run.describe_failure = _describe_wake_failure
        with translate_errors(instance.cluster, "wake it up"):
            await self._wake(run)
        run.describe_failure = None
        return None

    async def _put_to_sleep(self, instance: R) -> float:
        place = self._place(instance)
        if instance.sleep_stage == ASLEEP_STAGE:
            return await self._check_asleep(instance, place)
        if instance.sleep_stage in ("", STARTING):
            # Before the stage is written: from then on, requests are held, and only a credential that may delete the
            # quota again can go back.
            try:
                with translate_errors(instance.cluster, "put it to sleep"):
                    await place.check_permissions()
            except InstanceError as error:
                return await self._refuse_forbidden(instance, error)
        if not instance.sleep_stage:
            if isinstance(instance, VirtualClusterInstance) and (volatile := await place.find_volatile_store()):
                message = f"its data is on an emptyDir volume of {volatile}, so it would be lost; give it a claim"
                return await self._refuse(instance, SLEEP_REFUSED, message)
            jobs = await place.find_running_jobs() if instance.sleep_type == INACTIVITY_SLEEP else []
            if jobs:
                return await self._postpone(instance, f"{_list_titles(jobs)} is running")
        if instance.sleep_stage != FALLING_ASLEEP:
            instance = await self._reconciler.write_status(instance, (), sleep={"stage": FALLING_ASLEEP})
        try:
            with translate_errors(instance.cluster, "put it to sleep"):
                progress = await place.put_to_sleep() if await place.exists() else SleepProgress()
        except InstanceError as error:
            if error.reason == FORBIDDEN:
                await place.wake()  # what was done is undone
            return await self._refuse_forbidden(instance, error)
        if progress.running:
            message = f"still running: {_list_titles(progress.running)}"
            incomplete = condition(ASLEEP, FALSE, SLEEP_INCOMPLETE, message, INFO)
            await self._reconciler.write_status(instance, (incomplete,), sleep={"stage": FALLING_ASLEEP})
            return add_jitter(POLL_SECONDS)
        conditions = (condition(ASLEEP, TRUE, ASLEEP, _describe_stopped(progress)), *_unprobed(instance))
        await self._reconciler.write_status(instance, conditions, online=False, sleep={"stage": ASLEEP_STAGE})
        return add_jitter(ASLEEP_RESYNC_SECONDS)

    async def _check_asleep(self, instance: R, place: SleepingNamespace) -> float:
        if (find_condition(instance.status, ASLEEP) or {}).get("reason") == STOPPING_AGAIN:
            return await self._stop_again(instance, place)
        resumed = await place.find_resumed() if await place.exists() else []
        if not resumed:
            # Also a new state of the project or the cluster may be in the status.
            await self._reconciler.write_status(instance, _unprobed(instance))
            return add_jitter(ASLEEP_RESYNC_SECONDS)
        started = f"others have started {_list_titles(resumed)}"
        refusal = await self._try_to_resume(instance, f"{started}, so it is awake")
        if not refusal:
            return POLL_SECONDS
        message = f"{started}, which is stopped again: {refusal}"
        stopping = condition(ASLEEP, TRUE, STOPPING_AGAIN, message, WARNING)
        instance = await self._reconciler.write_status(instance, (stopping,))
        await record_event(self._registry, instance.raw, STOPPING_AGAIN, message, type="Warning")
        return await self._stop_again(instance, place)

    async def _try_to_resume(self, instance: R, message: str) -> str:
        """Ends the sleep of an instance that others have started. Returns why that is not allowed; empty if it is."""
        if instance.sleep_type == SCHEDULED_TYPE and template_annotations(instance.rendered).get(SLEEP_SCHEDULE):
            return "its template says when it sleeps"
        try:
            await self._write_annotations(instance, build_wake(self._now(), encode_info(RESUMED_OUTSIDE, message)))
        except Forbidden as error:
            if error.refused_by != QUOTA:
                raise
            return error.message
        await record_event(self._registry, instance.raw, RESUMED_OUTSIDE, message)
        return ""

    async def _stop_again(self, instance: R, place: SleepingNamespace) -> float:
        """The stage stays: an instance that only falls asleep counts as awake, and quotas would let it wake up."""
        progress = await place.put_to_sleep() if await place.exists() else SleepProgress()
        if progress.running:
            return add_jitter(POLL_SECONDS)
        stopped = condition(ASLEEP, TRUE, ASLEEP, _describe_stopped(progress))
        await self._reconciler.write_status(instance, (stopped, *_unprobed(instance)))
        return add_jitter(ASLEEP_RESYNC_SECONDS)

    async def _refuse_forbidden(self, instance: R, error: InstanceError) -> float:
        """The stored credential may not do it. Other errors are raised: it is tried again."""
        if error.reason != FORBIDDEN:
            raise error
        advice = "grant that: `fairlead cluster role sleep` prints a suitable role"
        return await self._refuse(instance, SLEEP_FORBIDDEN, f"{error.message}; {advice}")

    async def _refuse(self, instance: R, reason: str, message: str) -> float:
        """It stays awake. Only a person tries that again within the next hour."""
        refusal = condition(ASLEEP, FALSE, reason, message, WARNING)
        await self._reconciler.write_status(instance, (refusal,), sleep={"refusedAt": self._now()})
        await self._write_annotations(instance, {FORCE: None, FORCE_DURATION: None, **build_withdrawal()})
        await record_event(self._registry, instance.raw, reason, message, type="Warning")
        return POLL_SECONDS

    async def _postpone(self, instance: R, why: str) -> float:
        changes: Changes = {
            **build_withdrawal(),
            LAST_ACTIVITY: str(self._now()),
            LAST_ACTIVITY_INFO: encode_info("JobRunning", why),
        }
        await self._write_annotations(instance, changes)
        await record_event(self._registry, instance.raw, SLEEP_CANCELLED, why)
        return POLL_SECONDS

    async def _wake(self, run: ReconcileAttempt[R]) -> None:
        instance = run.instance
        place = self._place(instance)
        if instance.sleep_stage != WAKING_UP:
            await self._reconciler.write_status(instance, (), sleep={"stage": WAKING_UP})
        if await place.exists():
            await place.wake()
        # A virtual cluster is awake when it answers.
        sleep = {"stage": STARTING} if isinstance(instance, VirtualClusterInstance) else None
        run.instance = await self._reconciler.write_status(instance, (), sleep=sleep)

    def _place(self, instance: R) -> SleepingNamespace:
        return SleepingNamespace(
            api=self._contents.clusters.cluster_api(instance.cluster),
            target=self._contents.target(instance),
            now=self._registry.clock.now(),
            release=instance.release_name if isinstance(instance, VirtualClusterInstance) else "",
            deletes_bare_pods=read_instance_policy(instance).deletes_bare_pods,
        )

    async def _write_annotations(self, instance: R, changes: Changes) -> None:
        def edit(current: Object) -> Object:
            return change_annotations(current, changes) if current["metadata"]["uid"] == instance.uid else current

        resource = self._registry.resource(self._reconciler.group, self._reconciler.plural)
        await resource.modify(*instance.key, edit, server_write_options())

    def _now(self) -> int:
        return int(self._registry.clock.now().timestamp())


def _describe_stopped(progress: SleepProgress) -> str:
    retained = f"; these run on, since nothing would create them again: {_list_titles(progress.retained)}"
    return f"its workloads are stopped{retained if progress.retained else ''}"


def _unprobed(instance: RemoteInstance) -> Sequence[Object]:
    if not isinstance(instance, VirtualClusterInstance):
        return ()
    message = "it is not probed while it is asleep"
    return [condition(each, UNKNOWN, "Sleeping", message) for each in (VC_ONLINE, VC_READY)]


def _describe_wake_failure(instance: RemoteInstance, error: InstanceError) -> Sequence[Object]:
    return (condition(ASLEEP, TRUE, WAKE_FAILED, f"it cannot be woken up: {error.message}; this is retried", WARNING),)


def _list_titles(titles: Iterable[str]) -> str:
    ordered = list(titles)
    more = f" and {len(ordered) - MAX_LISTED} more" if len(ordered) > MAX_LISTED else ""
    return f"{', '.join(ordered[:MAX_LISTED])}{more}"
